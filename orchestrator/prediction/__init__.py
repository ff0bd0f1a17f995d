# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How long does a round take, slot by slot?

The engine and what it is given: plans, rates, faults; measurements do not belong here.
"""
