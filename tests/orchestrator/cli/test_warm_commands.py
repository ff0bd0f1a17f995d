# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`testbed kernel warm`: commands start as copies of one guest, with the same results."""

import shlex
import signal
import subprocess
from pathlib import Path

import psutil
import pytest
from console import TESTBED
from processes import until

from testbed.system.files import sha256_of

pytestmark = [pytest.mark.guest, pytest.mark.timeout(600)]
RUN = [
    *("run", "quickstart", "--rounds", "1"),
    *("--set", "workload.compute=none", "--set", "emulation.clock=virtual"),
]


def digests(run: Path) -> dict[str, str]:
    return {path.name: sha256_of(path) for path in run.glob("*.parquet")}


def test_runs_of_a_shell_are_copies_of_one_guest_and_equal_one_of_their_own(tmp_path: Path) -> None:
    runs = [shlex.join([*TESTBED, *RUN, "--out", name]) for name in ("first", "second")]
    guests = "pgrep -fc -P $PPID '[u]mid=guest' > guests || true"
    script = "; ".join(["set -e", runs[0], guests, runs[1], "exit 3"])
    done = subprocess.run(
        [*TESTBED, "kernel", "warm", "--", "bash", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 3, done.stderr
    assert (tmp_path / "guests").read_text() == "1\n"
    subprocess.run([*TESTBED, *RUN, "--out", "alone"], cwd=tmp_path, check=True)
    alone = digests(tmp_path / "alone")
    assert "measured.parquet" in alone
    assert digests(tmp_path / "first") == digests(tmp_path / "second") == alone


def test_a_command_that_is_not_there_is_refused(tmp_path: Path) -> None:
    done = subprocess.run(
        [*TESTBED, "kernel", "warm", "--", "nothing-there"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr == "testbed: COMMAND: nothing-there: No such file or directory\n"


def test_a_signal_ends_the_command(tmp_path: Path) -> None:
    keeper = subprocess.Popen(
        [*TESTBED, "kernel", "warm", "--", "sh", "-c", "echo $$ > pid; exec sleep 1000"],
        cwd=tmp_path,
    )
    said = tmp_path / "pid"
    until(lambda: said.exists() and said.read_text().strip())
    command = psutil.Process(int(said.read_text()))
    keeper.terminate()
    assert keeper.wait(30) == 128 + signal.SIGTERM
    assert not command.is_running()
