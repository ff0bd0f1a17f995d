# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What do two timelines have in common, and where does a difference come from?

Joins, budgets, accounts, statistics over records; no drawing and no running.
"""
