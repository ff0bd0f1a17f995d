# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How can others check what a run or a campaign came to?

One file that holds all of it, described for machines, and how it is held against what comes out
elsewhere; what a run's or a campaign's own directory holds stands in `orchestrator.records` and
`orchestrator.campaign`.
"""
