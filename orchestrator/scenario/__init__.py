# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What is to happen, on which channel and links, at which costs?

Descriptions that are read and checked; nothing here predicts or runs.
"""
