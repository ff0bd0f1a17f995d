# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The computing and communication of nodes.

Node programs, learning and its costs; decisions and predictions are made in `orchestrator`.
"""
