# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Becomes the program of ``cpp/radio``: ``python -m ns3_scenarios.radio_process PROGRAM``.

It exists so that the program can be started like the modules that run ns-3: within others, e.g.
confined. The program reads its parent's first line itself (see `ns3_scenarios.child`).
"""

import os
import resource
import sys


def main() -> None:
    """Run the program in place of this one."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # ns-3 aborts on errors.
    try:
        os.execv(sys.argv[1], sys.argv[1:])
    except OSError as error:
        sys.exit(f"{sys.argv[1]}: {error.strerror}")


if __name__ == "__main__":
    main()
