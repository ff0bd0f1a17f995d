# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How is a scenario played on real links, and may the result be believed?

One run from start to end; where it is kept stands in `orchestrator.runs`.
"""
