# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Measured flights, channels that are fitted to them, and forecasts of other flights.

Readers of the log files of radios are in `orchestrator.exchange`.
"""
