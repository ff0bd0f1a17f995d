# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Studies: questions that need many runs, such as figures, overheads, cross-checks and validation.

A study defines what is varied and what is plotted. Campaigns compute the points. `validation` finds
the region in which an analytical model is accurate. The analytical models are in
`orchestrator.analytical`.
"""
