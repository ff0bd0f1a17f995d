# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Comparison of timelines, and the causes of their differences.

Joins, error budgets, byte accounts and statistics of records; no plots and no execution.
"""
