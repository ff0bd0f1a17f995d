# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Aggregation of the clients' models.

Rules on plain vectors; `workloads.learning` trains and stores these vectors.
"""
