# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Emulation of a scenario on real links, with a judgement of its validity.

One emulated network and its two users: rounds of split learning (`rounds`) and sessions of programs
(`session`); their calibration, validity, dilation, hosts and virtual time. `orchestrator.records`
describes the files of a run.
"""
