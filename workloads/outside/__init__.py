# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Who computes what nodes in virtual time learn?

`asking` is how a node has its passes computed on the host, `answering` the host's program that does
so; the passes themselves stand in `workloads.learning`.
"""
