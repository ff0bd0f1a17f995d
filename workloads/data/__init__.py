# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Training data of the clients.

The package contains datasets, their partition among clients, and batches. The code for training is
in `workloads.learning`.
"""
