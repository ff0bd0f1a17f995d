# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Codecs of smashed data and their gradients.

Formats of tensors on the wire, and their sizes; adapters are always float32. The tensors are
defined in `workloads.learning` and sent by `workloads.nodes`.
"""
