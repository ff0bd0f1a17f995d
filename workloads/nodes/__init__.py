# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Programs of the base station and the UAVs.

They communicate over links; their tensors come from `workloads.learning`.
"""
