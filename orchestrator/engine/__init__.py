# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Simulation of rounds slot by slot, which predicts their latency.

The engine and its inputs: plans, participants, faults, the rates of links, their losses and delays,
TCP's windows. Measurements do not belong here.
"""
