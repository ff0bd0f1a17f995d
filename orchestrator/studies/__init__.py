# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Studies: questions that need many runs, such as figures, overheads, cross-checks, validation.

A study defines what varies and what is drawn; campaigns compute the points. `validation` finds the
region in which an analytical model is valid; the models are in `orchestrator.theory`.
"""
