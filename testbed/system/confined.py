# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Runs a module as a program that can do no more than compute.

    python -m testbed.system.confined MODULE [ARGUMENTS]

As a node of the namespace runtime, it has no capabilities, may gain none, and opens no file for
writing (where the kernel has Landlock); what its parent opened for it stays open.
"""

import runpy
import sys

from testbed.system import linux


def main() -> None:
    """Confine this process, then be that module."""
    linux.confine()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
