# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Definitions that all packages share: paradigm, schedule, timeline, clock, faults and errors.

Nothing in this package does I/O. It uses no sockets, processes or files.
"""
