# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The paper's closed forms, bounds and theorems, and their comparison with the engine.

The package contains no measurements.
"""
