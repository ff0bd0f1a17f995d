# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Costs of each split of a model: FLOPs, bytes, seconds on this machine.

This package only counts and measures; it does not train.
"""
