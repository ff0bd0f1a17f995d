# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A run or a session on disk: its directory, manifest and tables.

Records of runs: what is recorded during a run, and how it is written, found and read;
`orchestrator.reporting` shows it.
"""
