# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The testbed in virtual time, in a Linux kernel whose clock does not advance during computing.

`kernel` builds User-Mode Linux once from the recipe in `recipe/`; `guest` runs a command inside it,
and `init` is the first process there. Nothing here depends on links, nodes or scenarios.
"""
