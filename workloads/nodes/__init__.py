# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Programs that run on the base station and the UAVs.

These programs communicate over links. The code that computes their tensors is in
`workloads.learning`.
"""
