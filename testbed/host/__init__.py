# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Capabilities of this machine, and what is missing.

This package only examines the host; other packages use its capabilities.
"""
