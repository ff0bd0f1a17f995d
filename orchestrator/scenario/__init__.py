# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Scenarios: keys, channels, links and costs.

The package reads and checks scenarios. It does not predict or execute them.
"""
