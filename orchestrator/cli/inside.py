# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The command line inside virtual time; its output is formatted for the host's terminal.

python -m orchestrator.cli.inside ARGUMENTS
"""

import sys

import rich

from orchestrator.cli.console import out
from orchestrator.cli.main import main
from testbed.system import inside


def _main() -> None:
    settings = inside.guest_settings()
    if settings is None:
        sys.exit("testbed: this process is not in virtual time")
    # Not by environment variables, which the programs of a session would see.
    rich.reconfigure(width=settings["columns"], force_terminal=settings["colour"] or None)
    out.limits_lines = settings["columns"] is not None
    main()


if __name__ == "__main__":
    _main()
