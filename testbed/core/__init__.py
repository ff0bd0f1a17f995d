# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What words does everybody share: paradigm, schedule, timeline, clock, faults, errors.

Nothing here touches the machine: no sockets, no processes, no files.
"""
