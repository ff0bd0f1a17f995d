# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Where the UAVs are and what the air gives them: ns-3 models, their process, channel traces."""
