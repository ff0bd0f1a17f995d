# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Capabilities of this machine, and a list of those that are missing.

This package only examines the host. Other packages use the capabilities.
"""
