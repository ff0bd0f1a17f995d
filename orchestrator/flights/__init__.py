# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Measured flights, channels that are fitted to them, and forecasts for other flights.

The functions that read the log files of radios are in `orchestrator.exchange`.
"""
