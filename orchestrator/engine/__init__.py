# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Prediction of the duration of a round, slot by slot.

The engine and its inputs: plans, participants, faults, rates of links, their losses and delays, and
TCP's windows. It contains no measurements.
"""
