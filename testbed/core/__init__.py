# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Definitions that all packages share: paradigm, schedule, timeline, clock, faults, errors.

Nothing in this package does I/O: no sockets, no processes, no files.
"""
