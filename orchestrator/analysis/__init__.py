# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Comparison of timelines, and analysis of the causes of their differences.

The package joins timelines and computes error budgets, byte accounts and statistics of records. The
package does not plot or execute anything.
"""
