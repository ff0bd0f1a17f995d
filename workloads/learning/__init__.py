# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What is learned, and what of it travels: split model and adapters.

No network and no clock: the same passes run in one process.
"""
