# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Computing and communication of nodes.

Node programs, learning and its costs; decisions and predictions are made in `orchestrator`.
"""
