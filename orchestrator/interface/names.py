# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Names that help texts show: they import nothing."""

VARIANTS = ("drl", "drl-", "fixed-ra", "fixed-u")
"""Variants of the agent."""
