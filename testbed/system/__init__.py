# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Operating-system functions that the standard library does not provide.

The package contains system calls, atomic file operations, and the detection of resources
that earlier runs left behind. It does not depend on links or nodes.
"""
