# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Codecs of smashed data, their gradients, and adapters.

Formats of tensors on the wire, and their sizes. The tensors are defined in `workloads.learning` and
sent by `workloads.nodes`.
"""
