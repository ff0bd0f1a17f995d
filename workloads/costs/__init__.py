# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Costs of each split point of a model: FLOPs, bytes, and seconds on this machine.

This package only counts and measures. It does not train.
"""
