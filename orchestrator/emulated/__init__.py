# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Emulation of scenarios on real links, and checks of the validity of the results.

An emulated network executes rounds of split learning (`rounds`) or sessions of programs
(`session`). The package also contains calibration, validity checks, dilation, hosts and virtual
time. The code for the files of a run is in `orchestrator.records`.
"""
