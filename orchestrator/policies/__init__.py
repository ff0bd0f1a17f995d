# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Policies that decide a round's split points and shares.

They are functions from a situation to an allocation, found by name; they do not emulate.
"""
