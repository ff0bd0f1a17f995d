# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Nodes of one run on several machines, used as if they were on a single machine.

The package contains streams, clocks, and an emulated world that consists of one part per machine.
Each part is created by `testbed.runtimes`.
"""
