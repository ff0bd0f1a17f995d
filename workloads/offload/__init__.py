# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Who computes the passes of nodes in virtual time?

`client` is how a node has its passes computed on the host, `worker` the host's program that does
so, `host` starts it; the passes themselves are in `workloads.learning`.
"""
