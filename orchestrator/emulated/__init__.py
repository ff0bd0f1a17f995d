# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Emulation of scenarios on real links, and the validity of its results.

An emulated network executes rounds of split learning (`rounds`) or sessions of programs
(`session`). The package also contains calibration, validity checks, dilation, hosts and virtual
time. The files of a run are in `orchestrator.records`.
"""
