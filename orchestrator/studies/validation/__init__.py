# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Validation of an analytical model: where it is valid, how large its error is, and why.

It samples a space of scenarios, evaluates its points with engine, packets and kernel, and analyses
the errors. The models are in `orchestrator.analytical`, the workers in `orchestrator.campaigning`.
"""
