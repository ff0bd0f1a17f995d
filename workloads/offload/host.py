# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What is computed on the host, for as long as a guest needs it."""

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
    """A folder in which nodes are answered, while the context lasts; see `answering`.

    Args:
        environment: That of the guest's commands, so that both compute alike.
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
            start_new_session=True,  # Ctrl-C in a terminal is for the guest alone.
        )

        def watch() -> None:
            while not over.wait(WATCH_S):
                if process.poll() is not None:
                    for node in nodes(place):
                        give_up(node, f"what computes ended with status {process.returncode}")
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
    """Have a guest stopped while nobody in it can go on before an answer is there.

    Args:
        place: Where its nodes ask.
        guest: Its process.
    """
    (place / GUEST).write_text(str(guest), encoding="ascii")


def is_waited_for(place: Path) -> bool:
    """Whether somebody in the guest waits for an answer that is not there."""
    return any(lacks_answer(node, waits) for node in nodes(place))


def wake(place: Path) -> None:
    """Have the guest go on, whoever waits."""
    with suppress(FileNotFoundError, ProcessLookupError):
        os.kill(int((place / GUEST).read_text()), signal.SIGCONT)
