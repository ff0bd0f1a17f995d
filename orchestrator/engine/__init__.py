# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How long does a round take, slot by slot?

The engine and what it is given: plans, participants, faults, the rates of links, their losses and
delays, TCP's windows. Measurements do not belong here.
"""
