# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What can this machine do, and what is missing?

Examinations of the host; what uses its abilities stands elsewhere.
"""
