# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How is a scenario played on real links, and may the result be believed?

One emulated network and its two tenants: rounds of split learning (`rounds`) and sessions of
programs (`session`); their calibration, validity, dilation, hosts and virtual time. What a run
leaves on disk is described in `orchestrator.records`.
"""
