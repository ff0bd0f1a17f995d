# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What do ns-3's packets say of the same rounds?

The driver of the simulation; its C++ stands in `ns3_scenarios`.
"""
