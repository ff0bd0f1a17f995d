# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Starts the computing for a guest on the host."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from testbed.system import leftovers
from workloads.learning.settings import ONE_THREAD
from workloads.offload.messages import GUEST, give_up, lacks_answer, nodes, waits

WATCH_S = 0.1


@contextmanager
def answered(environment: Mapping[str, str]) -> Iterator[Path]:
    """A folder in which nodes' requests are answered during the context; see `worker`.

    Args:
        environment: Environment of the guest's commands, so that both compute equal results.
    """
    over = threading.Event()
    with leftovers.temporary_folder("outside", "/tmp") as place:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "workloads.offload.worker", str(place)],
            stdin=subprocess.DEVNULL,
            env={
                **environment,
                **ONE_THREAD,
                "TMPDIR": tempfile.gettempdir(),
                leftovers.VARIABLE: leftovers.mark(),
            },
            start_new_session=True,  # Ctrl-C in a terminal must only reach the guest.
        )

        def watch() -> None:
            while not over.wait(WATCH_S):
                if process.poll() is not None:
                    for node in nodes(place):
                        give_up(node, f"the host's worker ended with status {process.returncode}")
                    wake(place)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            yield place
        finally:
            over.set()
            watcher.join()
            process.kill()
            process.wait()


def rests_while_waiting(place: Path, guest: int) -> None:
    """Allow the worker to stop a guest while all its nodes wait for answers.

    Args:
        place: Folder of the requests.
        guest: PID of the guest.
    """
    (place / GUEST).write_text(str(guest), encoding="ascii")


def is_waited_for(place: Path) -> bool:
    """Whether a node of the guest waits for a missing answer."""
    return any(lacks_answer(node, waits) for node in nodes(place))


def wake(place: Path) -> None:
    """Continue the guest, even if nodes are waiting."""
    with suppress(FileNotFoundError, ProcessLookupError):
        os.kill(int((place / GUEST).read_text()), signal.SIGCONT)
