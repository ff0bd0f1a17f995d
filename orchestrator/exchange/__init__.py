# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Import and export of channel traces and flights in the formats of other tools.

These are readers and writers of files; the channel itself is in `orchestrator.scenario`.
"""
