# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How do the clients' models become one again?

Rules over plain vectors; who trained them, and where they are kept, stands in
`workloads.learning`.
"""
