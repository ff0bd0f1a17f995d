# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What do the base station and a UAV do in a round?

Programs that talk over links; the tensors they carry come from `workloads.learning`.
"""
