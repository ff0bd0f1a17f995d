# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Import and export of channel traces and flights in the formats of other tools.

The package only reads and writes files. The channel itself is in `orchestrator.scenario`.
"""
