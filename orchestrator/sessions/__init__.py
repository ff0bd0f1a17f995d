# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What do other people's programs meet on the UAV network?

A session: links that follow the channel slot by slot, and whatever is started in the nodes. Rounds
of split learning do not belong here; they stand in `orchestrator.emulation`.
"""
