# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Presentation of results: pages, plots, traces.

The package only presents values from records. It does not compute new results.
"""
