# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How is a run shown: pages, figures, traces?

Views of what others found; a number that is not in a record is not made here.
"""
