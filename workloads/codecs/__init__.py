# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Codecs for smashed data, gradients and adapters.

The package defines the formats of transferred tensors, and their sizes. The tensors are defined in
`workloads.learning` and sent by `workloads.nodes`.
"""
