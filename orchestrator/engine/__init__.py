# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Prediction of the duration of a round, slot by slot.

The package contains the engine and its inputs: plans, participants, faults, the rates, losses and
delays of links, and TCP's windows. It contains no measurements.
"""
