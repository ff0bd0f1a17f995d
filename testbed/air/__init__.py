# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What does the air do to frames beside their rate, and who does it?

netem behind a link, or a process where the kernel has none. Rates and the links themselves stand in
`testbed.network`.
"""
