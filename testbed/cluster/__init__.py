# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How do the nodes of one run live on several machines, as if they were on one?

Streams, clocks, and a world made of parts; what a part is made of stands in `testbed.runtimes`.
"""
