# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Runs and sessions on disk: directories, manifests, tables.

The package contains the records of a run in progress, and functions that write, find and read them.
`orchestrator.reporting` presents the records.
"""
