# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What may be typed after `testbed`?

Options, tables, progress; whatever a command does can be called without it.
"""
