# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Split models, their trained parameters, and their training.

This package uses no network and no clock, so the same passes can also run in a single process.
"""
