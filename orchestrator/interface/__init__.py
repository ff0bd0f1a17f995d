# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The functions of `import orchestrator as tb` behind the commands that study, learn and fit.

Each command of `testbed` reads its options, calls one of these functions, and prints the result.
"""
