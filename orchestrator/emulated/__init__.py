# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How is a scenario played on real links, and may the result be believed?

One emulated network and its two users: rounds of split learning (`rounds`) and sessions of programs
(`session`); their calibration, validity, dilation, hosts and virtual time. `orchestrator.records`
describes the files of a run.
"""
