# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Commands, options, tables and progress displays of the command-line program `testbed`.

Everything that a command does can also be done from Python without this package.
"""
