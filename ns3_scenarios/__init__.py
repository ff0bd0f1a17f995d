# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Positions and radio channels of the UAVs: ns-3 models, their process, channel traces."""
