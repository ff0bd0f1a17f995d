# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Campaigns: many scenarios that are computed on one or several machines, and their stored results.

The studies that use campaigns are in `orchestrator.studies`.
"""
