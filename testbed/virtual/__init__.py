# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The testbed in virtual time: a Linux kernel whose clock does not advance during computation.

`kernel` builds User-Mode Linux once from the recipe in `recipe/`. `guest` runs a command inside
this kernel, and `init` is the first process there. The package does not depend on links, nodes or
scenarios.
"""
