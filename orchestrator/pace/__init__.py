# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How much slower than real must emulated time run for this machine to keep up?

Its speeds, measured, and the dilation that follows; what runs at it stands in
`orchestrator.emulation`.
"""
