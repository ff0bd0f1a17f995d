# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Simulation of the same rounds with ns-3's packets.

This is the driver of the simulation; its C++ code is in `ns3_scenarios`.
"""
