# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A run or a session in virtual time, for the Python API and for a campaign's workers.

    python -m orchestrator.emulated.guest_jobs

is the program in the guest; the job is in the settings that the host has given it. Commands of
`testbed` are repeated in the guest as a whole instead: `orchestrator.cli.virtual`.
"""

import gc
import signal
import sys
from importlib import import_module

from orchestrator.emulated.repeated_session import play_job
from orchestrator.emulated.virtual import run_job
from testbed.core.errors import InputError, RunError
from testbed.system import inside

JOBS = {"run": run_job, "session": play_job}
USED = (
    "orchestrator.emulated.rounds",
    "orchestrator.records.directory",
    "testbed.host.quiet",
    "testbed.runtimes.namespace",
)
"""What jobs import when they need it, and templates beforehand."""


def _main() -> int:
    settings = inside.guest_settings()
    if settings is None:
        sys.exit("testbed: this process is not in virtual time")
    for module in USED:
        import_module(module)
    # Garbage collection writes into objects, whose pages would have to be mapped again.
    gc.collect()
    gc.freeze()
    settings = inside.become_copy()
    ((name, job),) = ((name, settings[name]) for name in JOBS if name in settings)
    try:
        JOBS[name](job)
    except (InputError, RunError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


if __name__ == "__main__":
    sys.exit(_main())
