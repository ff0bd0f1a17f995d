# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Packet-level simulation of rounds with ns-3.

The package contains the Python driver of the simulation. The C++ code is in `ns3_scenarios`.
"""
