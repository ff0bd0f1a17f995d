# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What is a run or a session on disk: its directory, manifest, tables?

What is recorded while it goes on, and how it is written, found and read again; how it is shown is
in `orchestrator.reporting`.
"""
