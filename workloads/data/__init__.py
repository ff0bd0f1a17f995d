# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Training data of the clients.

Data sets, their partition among clients, and batches; training is in `workloads.learning`.
"""
