# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What questions are answered by many runs: figures, overheads, cross-checks, validation?

Each study says what varies and what is drawn; the machinery is the campaign's. `validation` finds
where an analytical model holds; the models are in `orchestrator.theory`.
"""
