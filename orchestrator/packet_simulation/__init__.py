# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Simulation of the same rounds packet by packet with ns-3.

The package contains the Python driver of the simulation. The C++ code is in `ns3_scenarios`.
"""
