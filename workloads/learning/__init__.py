# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Split model, what is trained of it, and its training.

This package uses no network and no clock: the same passes can run in one process.
"""
