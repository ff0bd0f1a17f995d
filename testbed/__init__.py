# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The shared vocabulary and the emulated world.

How a round is described stands in `core`; what experiments mean stands in `orchestrator`.
"""
