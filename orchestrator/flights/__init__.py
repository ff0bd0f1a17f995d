# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Measured flights: positions of UAVs, and what a radio reported at each of them.

Readers of the log files of radios are in `orchestrator.exchange`.
"""
