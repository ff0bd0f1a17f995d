# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Nodes of one run on several machines, as if they were on one.

Streams, clocks, and a world that consists of parts; `testbed.runtimes` makes each part.
"""
