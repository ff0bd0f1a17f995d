# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Shared definitions and the emulated network.

`core` describes rounds. Experiments are defined in `orchestrator`.
"""
