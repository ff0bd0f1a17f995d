# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What does the testbed ask of the operating system beyond the standard library?

Calls, files that appear whole, marks of what was left; nothing that knows links or nodes.
"""
