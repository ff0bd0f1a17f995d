# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Scenarios: keys, channels, links and costs.

Descriptions are read and checked here; the package does not predict or run them.
"""
