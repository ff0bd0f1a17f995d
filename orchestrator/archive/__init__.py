# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Bundles of runs and campaigns that other people can check, and the code that checks them.

A bundle is one file with a machine-readable description. The directories of runs and campaigns
themselves are read and written by `orchestrator.records` and `orchestrator.campaigning`.
"""
