# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What do nodes compute and exchange?

Programs, learning and its costs; who decides and predicts stands in `orchestrator`.
"""
