# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A run or a session in virtual time, for the Python API and for a campaign's workers.

    python -m orchestrator.emulated.guest_jobs

is the program in the guest. It imports and caches what jobs need, then becomes a template; each
copy does the job in its settings. Commands of `testbed` are repeated in the guest as a whole
instead: `orchestrator.cli.virtual`.

Imports are within functions, because the processes of the network are forked first.
"""

import atexit
import gc
import io
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

from testbed.core.errors import InputError, RunError
from testbed.runtimes.namespace import fork_ahead
from testbed.system import inside

NODE_IMPORTS = ("workloads.nodes.program", "workloads.nodes.uav", "workloads.nodes.base_station")


def jobs() -> dict[str, Callable[[dict[str, Any]], None]]:
    """Import and cache what runs and sessions need.

    Returns:
        Their functions, by name.
    """
    import numpy as np
    import pandas as pd

    import testbed.host.quiet  # noqa: F401
    from ns3_scenarios.child import start_ahead
    from orchestrator.emulated.repeated_session import play_job
    from orchestrator.emulated.virtual import run_job
    from orchestrator.engine.plan import link_bytes, payload_bytes
    from orchestrator.rounds.loop import predict
    from orchestrator.scenario.channel import ns3_launch, open_source
    from orchestrator.scenario.loading import OWN, load
    from orchestrator.scenario.profiles import profile_of

    scenario = load(OWN / "scenarios" / "quickstart.yaml", ("emulation.clock=virtual",))
    with open_source(scenario, None) as source:
        for sizing in (payload_bytes, link_bytes):
            predict(scenario, source, profile_of(scenario), sizing=sizing, rounds=1)
    start_ahead("ns3_scenarios.process", ns3_launch())
    time.sleep(1)  # until it waits for its settings
    pd.DataFrame({"number": np.ones(1), "text": ["a"]}).to_parquet(io.BytesIO())
    return {"run": run_job, "session": play_job}


def _main() -> int:
    if inside.guest_settings() is None:
        sys.exit("testbed: this process is not in virtual time")
    fork_ahead(NODE_IMPORTS)
    known = jobs()
    settings = become_copy()
    ((play, job),) = ((known[name], settings[name]) for name in known if name in settings)
    try:
        play(job)
    except (InputError, RunError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


def become_copy() -> dict[str, Any]:
    """Make this guest a template, whose memory changes as little as possible in copies."""
    # Garbage collection writes into objects, whose pages would then be copied by forks.
    gc.collect()
    gc.freeze()
    return inside.become_copy()


def end(status: int) -> NoReturn:
    """End without freeing each object, which takes long in a guest."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    end(_main())
