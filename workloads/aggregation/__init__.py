# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Aggregation of the clients' models.

The package contains aggregation rules, which operate on plain vectors. `workloads.learning` trains
and stores these vectors.
"""
