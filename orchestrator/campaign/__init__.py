# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Campaigns: many scenarios, computed on one or several machines, and their stored results.

The questions that studies answer with them are in `orchestrator.studies`.
"""
