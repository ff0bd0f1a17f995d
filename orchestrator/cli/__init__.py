# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The commands, options, tables and progress displays of the command line `testbed`.

Everything that a command does can also be called from Python without it.
"""
