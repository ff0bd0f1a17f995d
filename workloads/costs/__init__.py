# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What does each split of a model cost: FLOPs, bytes, seconds on this machine?

Counting and timing alone; nothing here learns.
"""
