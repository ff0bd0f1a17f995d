# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Copies of a guest: each continues from the same state, and none affects another."""

import io
import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from processes import until

from testbed.core.errors import RunError
from testbed.core.progress import silent
from testbed.virtual import guest, init, kernel

KERNEL = kernel.find()
pytestmark = [pytest.mark.guest, pytest.mark.timeout(600)]
PROGRAM = """
import json, mmap, os, socket, threading, time
from pathlib import Path
from testbed.system import inside

pages = bytearray(b"before" * 100_000)
mapped = mmap.mmap(-1, 1 << 20)
mapped[:5] = b"early"
sleeper = os.fork()
if sleeper == 0:
    time.sleep(2)
    os._exit(7)
time.sleep(1)
settings = inside.become_copy()
seen = [time.monotonic_ns(), time.time_ns(), os.urandom(8).hex(), os.getpid()]
listening = socket.create_server(("127.0.0.1", 5000))
connected = socket.create_connection(("127.0.0.1", 5000))
seen += [connected.getsockname(), bytes(mapped[:5]).decode(), pages.count(b"before")]
mapped[:5] = b"later"
pages[:] = bytes(len(pages))
place = Path("/dev/shm/left")
seen += [place.exists(), inside.guest_settings() == settings]
place.touch()
seen += [os.waitstatus_to_exitcode(os.waitpid(sleeper, 0)[1]), time.monotonic_ns()]
inside.report_progress(settings["word"], 1, 2)
print(json.dumps({"word": settings["word"], "seen": seen}), flush=True)
if settings["word"] == "waits":
    time.sleep(1e9)
"""


@pytest.fixture(scope="module")
def template() -> Iterator[guest.Template]:
    assert KERNEL is not None
    made = guest.Template(KERNEL, [sys.executable, "-c", PROGRAM], memory=1 << 30)
    yield made
    made.close()


def copied(template: guest.Template, word: str) -> tuple[dict[str, Any], list[Any]]:
    out, progress = io.BytesIO(), []
    done = template.run(
        settings={"word": word}, out=out, progress=lambda *report: progress.append(report)
    )
    assert done.status == 0
    return json.loads(out.getvalue()), progress


def test_each_copy_continues_from_the_same_state(template: guest.Template) -> None:
    (first, reported), (second, _) = copied(template, "one"), copied(template, "another")
    assert (first["word"], second["word"]) == ("one", "another")
    assert reported == [("one", 1, 2)]
    assert first["seen"] == second["seen"]
    *_, text, count, left, known, status, _ = first["seen"]
    assert (text, count, left, known, status) == ("early", 100_000, False, True, 7)


def test_a_copy_that_is_killed_affects_no_other(template: guest.Template) -> None:
    before, _ = copied(template, "before")

    def kill(pid: int) -> None:
        os.kill(pid, signal.SIGKILL)

    with pytest.raises(RunError, match="the guest was ended by SIGKILL"):
        template.run(settings={"word": "killed"}, started=kill, out=io.BytesIO())
    after, _ = copied(template, "after")
    assert after["seen"] == before["seen"]


def test_what_a_copy_is_made_of_decides_whether_it_fits(
    template: guest.Template, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert KERNEL is not None
    argv = [sys.executable, "-c", PROGRAM]
    usual = {"memory": 1 << 30, "starts_ns": guest.STARTED_NS}
    assert template.fits(KERNEL, argv, **usual)
    assert not template.fits(KERNEL, [*argv, "more"], **usual)
    assert not template.fits(KERNEL, argv, **usual | {"starts_ns": 0})
    assert not template.fits(KERNEL, argv, **usual | {"memory": 1 << 31})
    monkeypatch.setenv("HOME", "/elsewhere")
    assert not template.fits(KERNEL, argv, **usual)
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert not template.fits(KERNEL, argv, **usual)


def test_nothing_is_left_of_a_template_that_is_closed() -> None:
    assert KERNEL is not None
    before = psutil.Process().children(recursive=True)
    made = guest.Template(KERNEL, [sys.executable, "-c", PROGRAM], memory=1 << 30)
    copied(made, "one")
    family = [p for p in psutil.Process().children(recursive=True) if p not in before]
    assert family
    made.close()
    until(lambda: not any(process.is_running() for process in family))


@pytest.mark.parametrize("status", [3, -9, None])
def test_the_status_of_a_template_is_read_before_the_end_of_its_answers(status: int | None) -> None:
    """Both can be read at the same time."""
    callbacks = guest._Callbacks(silent, None, lambda: False, None, None)
    template: Any = SimpleNamespace(poll=lambda: None, pid=os.getpid())
    with guest._Line.open() as line, ExitStack() as stack:
        answers, its_answers, stops, _ = (
            stack.enter_context(end) for _ in range(2) for end in socket.socketpair()
        )
        if status is not None:
            body = status.to_bytes(4, sys.byteorder, signed=True)
            line.its_words.sendall(init.FRAME.pack(b"x", len(body)) + body)
        its_answers.close()
        found = guest._converse(template, line, stops, {}, None, callbacks, answers)
        assert found == (status or 0)


def test_a_program_that_ends_before_it_is_copied_is_named_by_its_status() -> None:
    assert KERNEL is not None
    made = guest.Template(KERNEL, [sys.executable, "-c", "raise SystemExit(3)"], memory=1 << 30)
    try:
        with pytest.raises(guest.ProgramEndedError, match="ended with status 3"):
            made.run()
    finally:
        made.close()
