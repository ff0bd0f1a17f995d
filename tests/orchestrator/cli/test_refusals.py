# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What the machine refuses, and streams that are not as usual: a line, never a traceback."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import warm
from small_campaign import write_campaign
from small_scenario import TEXT

from orchestrator.cli import main as command_line
from testbed.system.files import write_json, write_whole

TESTBED = f"{sys.executable} -m orchestrator"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "s.yaml").write_text(TEXT)
    gain = 10 ** np.random.default_rng(1).uniform(-10.5, -9, (3, 3000))
    np.savez(tmp_path / "t.npz", gain=gain, slot_s=0.1)
    return tmp_path


def shell(folder: Path, line: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    """Run a line of a shell; the line on stderr that describes a trace is not logged."""
    env = {"PYTHONPATH": str(Path(__file__).parents[3]), "TESTBED_LOG": "warning"} | env
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        cwd=folder,
        capture_output=True,
        env=os.environ | env,
        timeout=120,
    )


@pytest.mark.parametrize(
    "command",
    [
        "train s.yaml --variant drl- --rounds 12",
        "reproduce table2",
        "campaign run small.yaml",
        "validate s.yaml --model tau2-hat --samples 16",
        "cross-check s.yaml --trace t.npz",
        "overhead s.yaml --trace t.npz",
        "export .",
    ],
)
def test_results_are_not_written_through_a_symbolic_link(folder: Path, command: str) -> None:
    write_campaign(folder)
    (folder / "precious").mkdir()
    (folder / "out").symlink_to(folder / "precious")
    done = warm.run(*command.split(), "--out", "out", cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "testbed: --out: out is a symbolic link; name the folder itself\n"
    assert not any((folder / "precious").iterdir())


def test_a_file_that_may_not_be_so_long(folder: Path) -> None:
    predict = f"{TESTBED} predict s.yaml --trace t.npz --rounds 30 --json o.json"
    done = shell(folder, f"ulimit -f 8; {predict}")
    assert (done.returncode, done.stderr) == (1, b"testbed: o.json: File too large\n")
    assert not list(folder.glob("*o.json*"))


def test_what_is_no_file_is_not_replaced_by_one(folder: Path) -> None:
    """As root, `--json /dev/null` would take the device from the whole machine."""
    os.mkfifo(folder / "pipe")
    (folder / "stdout").symlink_to("/proc/self/fd/1")
    for name in ("pipe", "stdout"):
        done = shell(folder, f"{TESTBED} predict s.yaml --trace t.npz --json {name}")
        said = f"testbed: --json: {name} is not a regular file\n"
        assert (done.returncode, done.stdout, done.stderr) == (2, b"", said.encode())
        with pytest.raises(OSError, match="is not a regular file"):
            write_json(folder / name, {})
    assert (folder / "pipe").is_fifo()
    assert (folder / "stdout").is_symlink()
    assert not list(folder.glob("*.part"))


def test_too_little_memory(folder: Path) -> None:
    line = f"ulimit -v 130000; {TESTBED} predict s.yaml --trace t.npz"
    done = shell(folder, line, OPENBLAS_NUM_THREADS="1")  # Each thread has memory of its own.
    assert done.returncode == 1
    assert done.stderr.startswith(b"testbed: ")
    assert done.stderr.count(b"\n") == 1


def test_a_full_disk_behind_stdout(folder: Path) -> None:
    done = shell(folder, f"{TESTBED} predict s.yaml --trace t.npz > /dev/full")
    assert (done.returncode, done.stderr) == (1, b"testbed: output: No space left on device\n")


@pytest.mark.parametrize(
    "command", ["--help", "show s.yaml", "predict s.yaml --trace t.npz --json -"]
)
def test_a_reader_that_closes_the_pipe_is_no_failure(folder: Path, command: str) -> None:
    done = shell(folder, f"{TESTBED} {command} | true; echo ${{PIPESTATUS[0]}}")
    assert done.stdout == b"141\n"
    assert b"Error" not in done.stderr
    assert b"SIGPIPE" not in done.stderr


def test_a_message_that_cannot_be_written_does_not_end_a_command(folder: Path) -> None:
    done = shell(folder, f"{TESTBED} -v predict s.yaml --trace t.npz 2> /dev/full")
    assert done.returncode == 0
    assert done.stdout


def test_streams_that_were_closed_are_open_in_other_processes(folder: Path) -> None:
    program = "import os, orchestrator.cli.main as m; m._open_streams(); os.system('echo said >&2')"
    done = shell(folder, f'{sys.executable} -c "{program}" 2>&-')
    assert (done.returncode, done.stdout) == (0, b"said\n")


def test_a_terminal_that_is_not_utf8_and_names_that_are_not(folder: Path) -> None:
    name = b"\xff\xc3\xa9.yaml"
    (folder / "s.yaml").rename(folder / os.fsdecode(name))
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    line = f"{TESTBED} predict $'\\xff\\xc3\\xa9.yaml' --trace t.npz"
    done = shell(folder, line, **plain)
    assert (done.returncode, done.stderr) == (0, b"")
    missing = shell(folder, f"{TESTBED} predict $'\\xfe.yaml'")
    assert (missing.returncode, missing.stdout) == (2, b"")
    assert missing.stderr == b"testbed: \\udcfe.yaml: no such scenario file\n"


def test_what_is_said_with_stderr_closed_is_still_said(folder: Path) -> None:
    done = shell(folder, f"{TESTBED} predict none.yaml 2>&-")
    assert (done.returncode, done.stderr) == (2, b"")
    assert done.stdout == b"testbed: none.yaml: no such scenario file\n"
    done = shell(folder, f"{TESTBED} predict s.yaml --trace t.npz --json o.json >&- 2>&-")
    assert (done.returncode, done.stdout) == (0, b"")
    assert (folder / "o.json").read_bytes().startswith(b"{")


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (RuntimeError("can't start new thread"), "no further process or thread can be started"),
        (BlockingIOError(11, "Resource temporarily unavailable"), "no further process or thread"),
        (MemoryError(), "out of memory"),
        (RuntimeError("unable to mmap 9 bytes: Cannot allocate memory (12)"), "out of memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "out of memory"),
        (PermissionError(13, "Permission denied", "x"), "x: Permission denied"),
    ],
)
def test_what_the_system_refuses_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, says: str
) -> None:
    def app(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(command_line, "app", app)
    monkeypatch.setattr(command_line.signal, "signal", lambda *_: None)
    monkeypatch.setattr(command_line, "_open_streams", lambda: None)
    with pytest.raises(SystemExit) as end:
        command_line.main()
    assert end.value.code == 1
    assert f"testbed: {says}" in capsys.readouterr().err


def test_a_defect_of_ours_still_has_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def app(*_: object, **__: object) -> None:
        raise OSError(9, "Bad file descriptor")

    monkeypatch.setattr(command_line, "app", app)
    monkeypatch.setattr(command_line.signal, "signal", lambda *_: None)
    monkeypatch.setattr(command_line, "_open_streams", lambda: None)
    with pytest.raises(OSError, match="Bad file"):
        command_line.main()


def test_a_full_disk_is_told_with_the_files_name(tmp_path: Path) -> None:
    def full(part: Path) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space") as error:
        write_whole(tmp_path / "a.parquet", full)
    assert error.value.filename == str(tmp_path / "a.parquet")
    write_json(tmp_path / "b.json", 1)
    assert {path.name for path in tmp_path.iterdir()} == {"b.json"}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("predict s.yaml --json /proc/x.json", "--json: /proc/x.json cannot be created"),
        ("show s.yaml --json /proc/x.json", "--json: /proc/x.json cannot be created"),
        ("trace s.yaml --slots 5 --out /proc/t.npz", "--out: /proc/t.npz cannot be created"),
        ("init /proc/s.yaml", "FILE: /proc/s.yaml cannot be created"),
        ("init /proc/self/s.yaml", "FILE: /proc/self/s.yaml cannot be created"),
        (
            f"init {'a' * 300}.yaml",
            f"FILE: {'a' * 300}.yaml cannot be created (File name too long)",
        ),
        ("init no/s.yaml", "FILE: the folder no does not exist"),
        ("theory s.yaml --json /proc/x", "--json: /proc/x cannot be created"),
        ("combinations --json /proc/x", "--json: /proc/x cannot be created"),
        ("doctor --json /proc/x", "--json: /proc/x cannot be created"),
        ("run s.yaml --out /proc/x", "--out: /proc cannot be written"),
        ("up s.yaml --out /proc/x --seconds 1", "--out: /proc cannot be written"),
        ("learn s.yaml --out /proc/x", "--out: the folder /proc cannot be written"),
        ("train s.yaml --out /proc/x", "--out: the folder /proc cannot be written"),
        ("campaign run small.yaml --out /proc/x", "--out: the folder /proc cannot be written"),
        ("cross-check s.yaml --out /proc/x", "--out: the folder /proc cannot be written"),
        ("overhead s.yaml --out /proc/x", "--out: the folder /proc cannot be written"),
        ("reproduce table2 --out /proc/x", "--out: the folder /proc cannot be written"),
        (
            "validate s.yaml --model tau2-hat --samples 16 --out /proc/x",
            "--out: the folder /proc cannot be written",
        ),
    ],
)
def test_outputs_that_cannot_be_created_are_refused_with_the_option(
    folder: Path, line: str, says: str
) -> None:
    write_campaign(folder)
    done = warm.run(*line.split(), cwd=folder)
    assert (done.returncode, done.stdout) == (2, "")
    (said,) = done.stderr.splitlines()
    assert said.startswith(f"testbed: {says}")


@pytest.mark.parametrize("line", ["predict paper --json x.json", "predict paper", "init s.yaml"])
def test_a_deleted_working_directory_is_one_line(tmp_path: Path, line: str) -> None:
    done = shell(tmp_path, f"mkdir gone; cd gone; rmdir ../gone; {TESTBED} {line}")
    assert done.returncode == 2
    (said,) = done.stderr.splitlines()
    assert b"cannot be created" in said or b"the working directory was deleted" in said
