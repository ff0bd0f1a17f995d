# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Which networks can be cut, and where?

Families of timm and models of packages as chains; what trains in them stands in
`workloads.learning`.
"""
