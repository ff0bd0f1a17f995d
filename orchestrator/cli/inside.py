# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The command line inside virtual time; its output is formatted for the host's terminal.

    python -m orchestrator.cli.inside [ARGUMENTS]

Without arguments, the program becomes a template of warm guests: each copy runs the command in its
settings.

Imports are within a function, because the processes of the network are forked first.
"""

import gc
import sys

from orchestrator.emulated.guest_jobs import NODE_IMPORTS, become_copy, end, jobs
from testbed.runtimes.namespace import fork_ahead
from testbed.system import inside


def _main() -> None:
    settings = inside.guest_settings()
    if settings is None:
        sys.exit("testbed: this process is not in virtual time")
    fork_ahead(NODE_IMPORTS)
    if not sys.argv[1:]:
        jobs()
        settings = become_copy()
        sys.argv[1:] = settings["words"]
    gc.set_threshold(100_000)  # A collection goes through all objects, again and again.
    import rich

    from orchestrator.cli.console import out
    from orchestrator.cli.main import main

    # Not by environment variables, which the programs of a session would see.
    rich.reconfigure(width=settings["columns"], force_terminal=settings["colour"] or None)
    out.limits_lines = settings["columns"] is not None
    try:
        main()
    except SystemExit as exited:
        if not isinstance(exited.code, str):
            end(exited.code or 0)
        raise


if __name__ == "__main__":
    _main()
