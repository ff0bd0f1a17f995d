# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Who takes part in a round: who is chosen for it, and who is lost to faults?

Rules of choosing, and fault schedules; what a round does with whom it has stands in
`orchestrator.prediction` and `orchestrator.emulation`.
"""
