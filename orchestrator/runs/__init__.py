# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What is a run on disk: its directory, manifest, tables?

Filling and finding run directories; how they are shown stands in `orchestrator.reporting`.
"""
