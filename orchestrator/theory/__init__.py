# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The paper's closed forms, bounds and theorems, and their comparison with the engine.

It contains no measurements.
"""
