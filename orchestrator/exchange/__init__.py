# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How do traces and flights of other tools come in, and ours go out?

Readers and writers of foreign files; what a channel is stands in `orchestrator.scenario`.
"""
