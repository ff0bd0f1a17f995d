# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Policies that decide the split points and shares of a round.

Policies are functions from a situation to an allocation and are selected by name. They do not
emulate anything.
"""
