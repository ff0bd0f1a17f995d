# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What do smashed data and their gradients travel as?

Formats of tensors on the wire, and how many bytes they take; adapters are always float32. What the
tensors mean, and who sends them, stands in `workloads.learning` and `workloads.nodes`.
"""
