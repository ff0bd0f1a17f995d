# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Computation and communication of nodes.

The package contains node programs, learning and its costs. Decisions and predictions are made in
`orchestrator`.
"""
