# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Functions of the operating system beyond the standard library.

System calls, atomic files, detection of leftovers; nothing here depends on links or nodes.
"""
