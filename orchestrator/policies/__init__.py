# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Who decides a round's split and shares?

Functions from a situation to an allocation, and how they are found; no emulation.
"""
