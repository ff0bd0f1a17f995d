# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Execution of the nodes' forward and backward passes on the host, for runs in virtual time.

`client` sends a node's requests to the host. `worker` is the program on the host that answers these
requests, and `host` starts this program. The passes themselves are in `workloads.learning`.
"""
