# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Runs a module as a confined program.

    python -m testbed.system.confined MODULE [ARGUMENTS]

Like a node of the namespace runtime, it has no capabilities, cannot gain any, and cannot open files
for writing (if the kernel has Landlock); inherited open files stay usable.
"""

import runpy
import sys

from testbed.system import linux


def main() -> None:
    """Confine this process, then run the module."""
    linux.confine()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
