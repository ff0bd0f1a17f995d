# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Presentation of results: pages, plots, traces.

It only shows values from records and calculates no new ones.
"""
