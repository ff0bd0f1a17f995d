# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""One warm guest for several commands: its copies are alike, and nothing is left of them."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from processes import until

from testbed.core.errors import RunError
from testbed.virtual import guest, kernel, warm

KERNEL = kernel.find()
pytestmark = [pytest.mark.guest, pytest.mark.timeout(600)]
PROGRAM = """
import json, os, time
from testbed.system import inside

settings = inside.become_copy()
print(json.dumps([settings["word"], time.time_ns(), os.urandom(8).hex()]), flush=True)
if settings["word"] == "waits":
    time.sleep(1e9)
raise SystemExit(len(settings["word"]))
"""
ARGV = [sys.executable, "-c", PROGRAM]
ASK = """
import sys
from testbed.virtual import kernel, warm

argv = [sys.executable, "-c", sys.argv[1]]
with warm.lent(kernel.find(), argv, memory=1 << 30, starts_ns=0) as template:
    template.run(settings={"word": "waits"}, started=lambda pid: print(pid, flush=True))
"""
USUAL = {"memory": 1 << 30, "starts_ns": 0}


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A keeper that this process's commands find; the path of its socket."""
    assert KERNEL is not None
    with warm.keeper(KERNEL) as environment:
        monkeypatch.setenv(warm.VARIABLE, environment[warm.VARIABLE])
        yield Path(environment[warm.VARIABLE])


def copied(word: str, argv: Sequence[str] = ARGV, **options: Any) -> list[Any]:
    """What a copy says, which has ended with the length of its word as status."""
    assert KERNEL is not None
    out = io.BytesIO()
    with warm.lent(KERNEL, argv, **USUAL | options) as template:
        assert template is not None
        done = template.run(settings={"word": word}, out=out)
    said = json.loads(out.getvalue())
    assert (said[0], done.status) == (word, len(word))
    return list(said[1:])


def family() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


@pytest.mark.usefixtures("kept")
def test_copies_for_several_commands_continue_from_one_guest() -> None:
    def guests() -> set[int]:
        return {process.pid for process in psutil.Process().children()} - others

    others: set[int] = set()
    others = guests()
    first = copied("one")
    (first_guest,) = guests()
    assert copied("another") == first
    assert guests() == {first_guest}
    assert copied("one", starts_ns=10**18) != first, "another clock needs another guest"
    assert first_guest not in guests()


def test_a_copy_ends_with_the_command_that_asked_for_it(kept: Path) -> None:
    before = copied("before")
    command = subprocess.Popen(
        [sys.executable, "-c", ASK, PROGRAM], stdout=subprocess.PIPE, text=True
    )
    assert command.stdout is not None
    copy = psutil.Process(int(command.stdout.readline()))
    command.kill()
    command.communicate()
    until(lambda: not copy.is_running())
    assert copied("after") == before
    assert kept.is_socket()


@pytest.mark.usefixtures("kept")
def test_a_copy_that_is_killed_is_named_by_its_signal() -> None:
    assert KERNEL is not None
    with warm.lent(KERNEL, ARGV, **USUAL) as template:
        assert template is not None
        with pytest.raises(RunError, match="the guest was ended by SIGKILL"):
            template.run(
                settings={"word": "waits"},
                started=lambda pid: os.kill(pid, signal.SIGKILL),
                out=io.BytesIO(),
            )


def test_nothing_is_left_of_a_keeper() -> None:
    assert KERNEL is not None
    before = family()
    with warm.keeper(KERNEL) as environment:
        place = Path(environment[warm.VARIABLE])
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(warm.VARIABLE, str(place))
            copied("one")
        started = [process for process in family() if process not in before]
        assert started
    until(lambda: not any(process.is_running() for process in started))
    assert not place.parent.exists()


def test_without_a_keeper_nothing_is_lent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert KERNEL is not None
    for place in (None, str(tmp_path / "gone")):
        if place is not None:
            monkeypatch.setenv(warm.VARIABLE, place)
        with warm.lent(KERNEL, ARGV, **USUAL) as template:
            assert template is None


@pytest.mark.usefixtures("kept")
def test_a_program_that_ends_before_it_is_copied_is_named_by_its_status() -> None:
    with pytest.raises(RunError, match="ended with status 3"):
        copied("one", [sys.executable, "-c", "raise SystemExit(3)"])
    assert copied("one"), "the keeper goes on"


@pytest.mark.usefixtures("kept")
def test_what_the_system_refuses_the_keeper_is_said_to_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(guest, "Template", refuse)
        with pytest.raises(RunError, match="No space left"):
            copied("one")
    assert copied("one"), "the keeper goes on"


@pytest.mark.usefixtures("kept")
def test_another_kernel_is_refused() -> None:
    assert KERNEL is not None
    with warm.lent(KERNEL, ARGV, **USUAL) as template:
        assert template is not None
        template._made_of = {**template._made_of, "kernel": {"version": "another"}}
        with pytest.raises(RunError, match="the kernel has changed"):
            template.run(settings={})
