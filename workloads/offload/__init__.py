# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Computing of the passes of nodes in virtual time by the host.

`client` sends a node's requests to the host, `worker` is the program on the host that answers them,
and `host` starts it; the passes themselves are in `workloads.learning`.
"""
