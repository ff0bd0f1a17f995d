# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How does the testbed run in virtual time, in a Linux kernel whose clock stands still?

`kernel` builds User-Mode Linux once from the recipe in `recipe/`; `guest` runs a command inside
it, and `init` is the first process there. Nothing here knows links, nodes or scenarios.
"""
