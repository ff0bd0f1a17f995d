# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Measured flights: positions of UAVs, and the values that a radio reported at each of them.

The readers of radio log files are in `orchestrator.exchange`.
"""
