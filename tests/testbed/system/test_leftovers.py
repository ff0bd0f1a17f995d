# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What dead runs leave is found and removed, and nothing else is."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import warm

from testbed.system import building, leftovers
from testbed.system.leftovers import VARIABLE, alive, mark, noted, temporary_folder


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "uav-sfl-testbed"
    folder.mkdir()
    return folder


MADE: set[str] = set()
"""Marks of processes that have ended."""


def of_ended_process(program: str = "pass") -> str:
    """The mark of a process that has killed itself after running some lines."""
    lines = (
        f"import os; from testbed.system.leftovers import *; print(mark(), flush=True); {program}"
    )
    killed = f"{lines}; os.kill(os.getpid(), 9)"
    done = subprocess.run([sys.executable, "-c", killed], capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    MADE.add(done.stdout.strip())
    return done.stdout.strip()


def found() -> list[leftovers.Leftover]:
    """What is found of what these tests made: processes of other runs, which may die meanwhile,
    are seen as well."""
    return [
        leftover
        for leftover in leftovers.find()
        if not leftover.what.startswith("process ") or leftover.what.split()[-1] in MADE
    ]


def ours() -> list[str]:
    return [leftover.what for leftover in found()]


def clean() -> dict[str, str]:
    return dict(leftovers.remove(found()))


def test_a_mark_lives_as_long_as_its_process():
    assert alive(mark())
    dead = of_ended_process()
    assert not alive(dead)
    boot, namespace, pid, started = mark().split("-")
    assert not alive("-".join([boot, namespace, pid, str(int(started) - 1)])), "PID used again"
    assert not alive("-".join(["0" * 32, namespace, pid, started])), "of an earlier boot"
    assert alive("-".join([boot, "1", dead.split("-")[2], "1"])), "not to be told from here"
    assert alive("not of ours")


def test_processes_that_are_hidden_from_this_user_live(tmp_path, monkeypatch):
    boot, namespace, pid, started = mark().split("-")
    dead = "-".join([boot, namespace, pid, str(int(started) - 1)])
    own = tmp_path / "proc/self/ns"
    own.mkdir(parents=True)
    (own / "pid").symlink_to(f"pid:[{namespace}]")
    monkeypatch.setattr(leftovers, "_PROC", tmp_path / "proc")
    assert alive(dead), "/proc with hidepid=2: not even process 1 is seen"
    (tmp_path / "proc/1").mkdir()
    (tmp_path / "proc/1/stat").write_text("1 (init) S " + "0 " * 40)
    assert not alive(dead)


def test_a_zombie_is_dead():
    program = "from testbed.system.leftovers import mark; print(mark(), flush=True); input()"
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )
    mark_of_it = process.stdout.readline().strip()
    assert alive(mark_of_it)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not alive(mark_of_it)
    process.communicate()


def test_files_that_a_killed_process_noted_are_removed(tmp_path):
    """Both files and folders; not what was renamed in time, and not what nobody noted."""
    half, folder, kept = tmp_path / "half", tmp_path / "folder", tmp_path / "kept"
    (tmp_path / "beside").write_text("")
    paths = {"half": half, "folder": folder, "kept": kept}
    p = {name: f"Path({str(path)!r})" for name, path in paths.items()}
    of_ended_process(
        f"from pathlib import Path; a = noted({p['half']}); a.__enter__(); "
        f"{p['half']}.write_text('x'); "
        f"b = noted({p['folder']}); b.__enter__(); ({p['folder']} / 'in').mkdir(parents=True); "
        f"c = noted({p['kept']}); c.__enter__(); {p['kept']}.write_text('x'); "
        f"c.__exit__(None, None, None)"
    )
    assert {str(half), str(folder)} <= set(ours())
    done = clean()
    assert not any(done.values())
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "beside",
        "kept",
        "uav-sfl-testbed",
    ]
    assert ours() == []


def test_a_temporary_folder_ends_with_its_context_or_after_a_kill_by_clean(tmp_path, cache):
    with temporary_folder("test", str(tmp_path)) as folder:
        assert folder.parent == tmp_path
        assert folder.name.startswith("testbed-test-")
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "in").write_text("x")
        assert str(folder) in (cache / "temporary" / mark()).read_text()
    assert not folder.exists()
    of_ended_process(
        "from testbed.system.leftovers import temporary_folder; "
        f"a = temporary_folder('test', {str(tmp_path)!r}); (a.__enter__() / 'in').mkdir()"
    )
    (left,) = tmp_path.glob("testbed-test-*")
    assert not any(clean().values())
    assert not left.exists()


def test_files_of_live_processes_are_let_alone(tmp_path, cache):
    half = tmp_path / "half"
    with noted(half):
        half.write_text("x")
        assert json.loads((cache / "temporary" / mark()).read_text()) == [[str(half), ""]]
        assert clean() == {}
        assert half.exists()
    assert list((cache / "temporary").iterdir()) == []


def test_a_folder_with_something_worth_keeping_is_kept(tmp_path):
    folder = tmp_path / "run"
    for inside in ("other", "checkpoint"):
        of_ended_process(
            f"from pathlib import Path; p = Path({str(folder)!r}); "
            f"a = noted(p, 'checkpoint/round-*'); a.__enter__(); "
            f"(p / '{inside}').mkdir(parents=True); (p / '{inside}' / 'round-0').write_text('x')"
        )
        assert not any(clean().values())
        assert folder.exists() == (inside == "checkpoint")


def test_a_name_that_is_used_again_belongs_to_who_uses_it(tmp_path):
    folder = tmp_path / "part"
    of_ended_process(
        f"from pathlib import Path; a = noted(Path({str(folder)!r})); a.__enter__(); "
        f"Path({str(folder)!r}).mkdir()"
    )
    assert str(folder) in ours()
    with noted(folder):
        assert str(folder) not in ours()
        clean()
        assert folder.exists()


def test_a_fork_that_dies_does_not_take_its_parents_files_along(tmp_path, cache):
    half = tmp_path / "half"
    with noted(half):
        half.write_text("x")
        child = os.fork()
        if child == 0:
            own = noted(tmp_path / "own")
            own.__enter__()
            (tmp_path / "own").write_text("x")
            os._exit(0)
        os.waitpid(child, 0)
        clean()
        assert half.exists()
        assert not (tmp_path / "own").exists()


def sleeper(environment: dict[str, str]) -> subprocess.Popen:
    process = subprocess.Popen(["sleep", "1000"], env={**os.environ, **environment})
    process.send_signal(signal.SIGSTOP)
    return process


# A `testbed clean` beside, which the documents' commands hold, would end them first.
@pytest.mark.alone
def test_processes_of_dead_runs_are_ended_stopped_ones_too():
    dead = of_ended_process()
    theirs = sleeper({VARIABLE: dead})
    live, foreign = sleeper({VARIABLE: mark()}), sleeper({})
    try:
        time.sleep(0.1)
        assert ours() == [f"process {theirs.pid} of run {dead}"]
        assert clean() == {f"process {theirs.pid} of run {dead}": ""}
        assert theirs.wait(5) == -signal.SIGKILL
        assert live.poll() is None
        assert foreign.poll() is None
    finally:
        for process in (theirs, live, foreign):
            process.kill()
            process.wait()


def test_builds_that_stopped_half_way_are_removed_unless_one_goes_on(cache):
    (cache / "tmpabc").mkdir()
    with (cache / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert ours() == []
    assert clean() == {str(cache / "tmpabc"): ""}
    assert [path.name for path in cache.iterdir()] == ["build.lock"]


def test_what_cannot_be_removed_is_said():
    def refuse():
        raise PermissionError(1, "not yours")

    assert "not yours" in leftovers.remove([leftovers.Leftover("it", refuse)])["it"]


def test_emulations_see_each_other():
    assert os.getpid() not in leftovers.running()
    with leftovers.announced(), leftovers.announced():
        assert leftovers.running().count(os.getpid()) == 1
    assert os.getpid() not in leftovers.running()


FORGED = [
    *("x y", "1", "1/", "/deadbeef", "1/x", "0/deadbeef", "01/deadbeef", "-1/deadbeef"),
    *("+1/deadbeef", "1_0/deadbeef", "1/DEADBEEF", "1/deadbee", "1/deadbeef0", " 1/deadbeef"),
    *(
        "1/deadbeef ",
        "1/dead/beef",
        "١/deadbeef",
        "1e3/deadbeef",
        "99999999999/deadbeef",
        "0x1/00000000",
    ),
    *("1\n2/deadbeef", "1/deadbeef\n", "\xff/deadbeef", "@uav-sfl-testbed/1/deadbeef", ""),
]


@pytest.mark.parametrize("name", FORGED)
def test_names_that_no_emulation_has_are_passed_over(name: str):
    with socket.socket(socket.AF_UNIX) as sign:
        sign.bind(f"\0uav-sfl-testbed/{name}")
        sign.listen()
        assert 1 not in leftovers.running()


def bound_by(user: int, name: str, *, listens: bool = True) -> "subprocess.Popen[str]":
    """A process of a user that holds an abstract name."""
    program = (
        f"import os, socket, time; os.setuid({user}); s = socket.socket(socket.AF_UNIX); "
        f"s.bind({name!r}); {'s.listen()' if listens else ''}; print(flush=True); time.sleep(60)"
    )
    words = [sys.executable, "-c", program]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
@pytest.mark.parametrize(("user", "listens"), [(65534, True), (65534, False), (0, False)])
def test_a_name_of_another_user_is_no_emulation(user: int, listens: bool):
    with bound_by(user, "\0uav-sfl-testbed/1/deadbeef", listens=listens) as stranger:
        try:
            assert stranger.stdout is not None
            stranger.stdout.readline()
            assert 1 not in leftovers.running()
        finally:
            stranger.kill()
    with bound_by(0, "\0uav-sfl-testbed/1/deadbeef") as of_root:
        try:
            assert of_root.stdout is not None
            of_root.stdout.readline()
            assert 1 in leftovers.running()
        finally:
            of_root.kill()


@pytest.mark.parametrize(
    "forged",
    [
        *("", "a-b-c-d", "----", "1-2-3", "1-2-3-4-5", "x" * 32 + "-1-1-1", "0" * 32 + "-1-x y-1"),
        *("0" * 32 + "-1--1-1", "0" * 32 + "-1-0-1", "0" * 32 + "-1-1_0-1", "0" * 32 + "-1-١-1"),
        *("0" * 32 + "-1-" + "9" * 5000 + "-1", "0" * 31 + "-1-1-1", "0" * 32 + "-1-1-1\n"),
    ],
)
def test_a_mark_that_no_run_has_is_of_no_dead_run(forged: str):
    assert alive(forged)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_folder_that_another_user_has_made_is_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    building._temporary_cache.cache_clear()
    mine = tmp_path / f"uav-sfl-testbed-{os.getuid()}"
    assert building._temporary_cache() == mine
    for change in (lambda: mine.chmod(0o777), lambda: os.chown(mine, 65534, -1), mine.rmdir):
        change()
        if not mine.exists():
            mine.touch()
        building._temporary_cache.cache_clear()
        private = building._temporary_cache()
        assert private != mine
        assert private.parent == tmp_path
        assert private.stat().st_mode & 0o777 == 0o700
    building._temporary_cache.cache_clear()


@pytest.mark.alone
def test_the_command_says_what_it_removed(tmp_path, cache):
    half = tmp_path / "half"
    of_ended_process(f"from pathlib import Path; a = noted(Path({str(half)!r})); a.__enter__()")
    half.write_text("x")
    environment = {**os.environ, "DOCKER_HOST": f"unix://{tmp_path}/nothing.sock"}
    for wanted in (f"removed: {half}", "nothing else was found"):
        done = warm.run("clean", env=environment)
        assert done.returncode == 0, done.stderr
        assert wanted in done.stdout
        assert "no search for containers" in done.stderr
        assert "nothing was left" not in done.stdout
    assert not half.exists()
