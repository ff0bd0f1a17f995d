# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Where does an analytical model hold, by how much is it wrong, and why?

The space that is sampled, its points played by engine, packets and kernel, and what follows from
them. The models themselves stand in `orchestrator.theory`, who computes in `orchestrator.campaign`.
"""
