# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Rounds: one after the other, decided, planned, played and recorded.

The package contains the loop over rounds, the conductor that plays a round, the carriers that say
how long its transfers take, hierarchies, and the choice of clients. It contains no formulas of
links and no measurements.
"""
