# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What do clients train on, and who has what of it?

Data sets, their partition among clients, and batches; what is learned from them stands in
`workloads.learning`.
"""
