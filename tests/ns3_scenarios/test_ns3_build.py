# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The library of ns-3 models: built once, whole or not at all."""

import fcntl
import os
import select
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ns3_scenarios import build
from ns3_scenarios.errors import ChannelError
from testbed.system import building

FAKE_COMPILER = """#!/bin/sh
case "$*" in *-dumpfullversion*) echo "${FAKE_VERSION:-1.0}"; exit 0;; esac
echo built >> "$FAKE_LOG"
echo "$*" >> "$(dirname "$FAKE_LOG")/calls"
cat > /dev/null
sleep 0.3
if [ -n "$FAKE_FAILS" ]; then echo 'x.cc:1: error: no such thing' >&2; exit 1; fi
for last; do :; done
echo library > "$last"
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that only counts its calls, and an empty cache."""
    compiler = tmp_path / "bin" / "g++"
    compiler.parent.mkdir()
    compiler.write_text(FAKE_COMPILER)
    compiler.chmod(compiler.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{compiler.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    return tmp_path / "log"


def builds(log: Path) -> int:
    return log.read_text().count("built") if log.exists() else 0


def cached(tmp_path: Path) -> list[str]:
    """Endings of the files that the build has left in the cache."""
    folder = tmp_path / "cache" / "uav-sfl-testbed"
    assert not [*folder.glob("temporary/*")]  # notes of temporary files
    return sorted(path.suffix for path in folder.iterdir() if path.is_file())


def test_builds_once(log: Path, tmp_path: Path) -> None:
    first = build.library()
    assert first.read_bytes().startswith(b"library\n")
    assert build.library() == first
    assert builds(log) == 1
    assert cached(tmp_path) == [".lock", ".so"]


def test_programs_are_built_like_libraries(log: Path, tmp_path: Path) -> None:
    """What is linked decides whether a process may run it: LTE needs symbols that do not exist."""
    program = build.library("radio")
    assert program.suffix == ""
    assert build.library("radio") == program
    assert builds(log) == 1
    build.library("packets")
    of_program, of_library = (
        line.split() for line in (tmp_path / "calls").read_text().splitlines()
    )
    assert "-shared" in of_library
    assert "-shared" not in of_program
    ignored = "-Wl,--unresolved-symbols=ignore-in-shared-libs"
    assert ignored in of_program
    assert ignored not in of_library


def test_what_goes_in_decides_the_name(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {build.library()}
    monkeypatch.setenv("FAKE_VERSION", "2.0")
    building._identity.cache_clear()
    names.add(build.library())
    sources = tmp_path / "cpp"
    shutil.copytree(build._SOURCES, sources)
    monkeypatch.setattr(build, "_SOURCES", sources)
    assert build.library() in names  # Same contents, another folder.
    header = sources / "channel" / "rma-av-propagation-loss-model.h"
    header.write_text(header.read_text() + "\n")
    names.add(build.library())
    assert len(names) == 3
    assert builds(log) == 3


def test_concurrent_builds_build_once(log: Path) -> None:
    code = "from ns3_scenarios import build; print(build.library())"
    started = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    answers = {process.communicate()[0] for process in started}
    assert [process.returncode for process in started] == [0] * 4
    assert len(answers) == 1
    assert builds(log) == 1


def test_failed_build_leaves_nothing(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_FAILS", "1")
    with pytest.raises(ChannelError, match=r"ns-3 models cannot be built: .*x\.cc:1: error"):
        build.library()
    assert cached(tmp_path) == [".lock"]
    monkeypatch.delenv("FAKE_FAILS")
    assert build.library().exists()


@pytest.mark.parametrize("damage", ["cut", "empty", "changed", "longer"])
@pytest.mark.parametrize("models", ["channel", "radio"])
def test_a_damaged_file_is_built_again(log: Path, models: build.Models, damage: str) -> None:
    built = build.library(models)
    whole = built.read_bytes()
    damaged = {
        "cut": whole[:-1],
        "empty": b"",
        "changed": whole.replace(b"r", b"\0"),
        "longer": whole + b"\0",
    }
    built.write_bytes(damaged[damage])
    assert build.library(models).read_bytes() == whole
    assert builds(log) == 2
    build.library(models)
    assert builds(log) == 2


def test_a_full_cache_is_named(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, temporary: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(temporary / "missing"))
    compiler = tmp_path / "bin" / "g++"
    said = "ld: final link failed: No space left on device\ncollect2: error: ld returned 1"
    compiler.write_text(FAKE_COMPILER.replace("echo library", f"echo '{said}' >&2; exit 1; echo"))
    with pytest.raises(ChannelError, match=rf"No space left on device: .{tmp_path}/cache/.*\.so"):
        build.library()
    assert cached(tmp_path) == [".lock"]


def test_a_compiler_ends_with_who_has_started_it(log: Path, tmp_path: Path) -> None:
    """With its own processes, which a signal to it alone does not reach."""
    compiler, child = tmp_path / "bin" / "g++", tmp_path / "child"
    script = f"(echo $BASHPID > {child}.part; mv {child}.part {child}; exec sleep 1000)\nexit 1"
    compiler.write_text(
        FAKE_COMPILER.replace("#!/bin/sh", "#!/bin/bash").replace("sleep 0.3", script)
    )
    code = "from ns3_scenarios import build; build.library()"
    with subprocess.Popen([sys.executable, "-c", code]) as builder:
        while not child.exists():
            time.sleep(0.01)
        ended = os.pidfd_open(int(child.read_text()))
        builder.kill()
    assert select.select([ended], [], [], 20)[0]
    os.close(ended)


def test_a_compiler_that_does_not_end_is_given_up(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "bin" / "g++"
    compiler.write_text("#!/bin/sh\nexec sleep 1000\n")
    monkeypatch.setattr(building, "BUILD_S", 0.1)
    with pytest.raises(ChannelError, match=r"waited 0.1 s for g\+\+ to end$"):
        build.library()


def test_another_process_that_builds_for_ever_is_named(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "cache" / "uav-sfl-testbed" / "build.lock"
    lock.parent.mkdir(parents=True)
    monkeypatch.setattr(building, "BUILD_S", 0.2)
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(ChannelError, match=f"another process that builds.*{lock}"):
            build.library()
    assert builds(log) == 0


def test_missing_compiler_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(ChannelError, match=r"apt-get install g\+\+"):
        build.library()


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder within that for temporary files, and a cache that cannot be used."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    building._temporary_cache.cache_clear()
    return tmp_path / "temporary" / f"uav-sfl-testbed-{os.getuid()}"


def test_without_a_cache_it_builds_in_a_temporary_folder_of_the_user(
    log: Path, temporary: Path
) -> None:
    built = build.library()
    assert built.parent == temporary
    assert stat.S_IMODE(temporary.stat().st_mode) == 0o700
    assert build.library() == built
    assert builds(log) == 1


def test_a_temporary_folder_that_others_can_write_is_not_used(log: Path, temporary: Path) -> None:
    temporary.mkdir()
    temporary.chmod(0o777)
    private = build.library().parent
    assert private != temporary
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert not list(temporary.iterdir())
    building._temporary_cache.cache_clear()
    temporary.rmdir()
    temporary.symlink_to(temporary.parent)
    assert build.library().parent not in (private, temporary)
    assert builds(log) == 2


def test_unusable_cache_is_named(
    log: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(temporary / "missing"))
    with pytest.raises(ChannelError, match=r"cannot be kept in a cache: .*file"):
        build.library()
    assert builds(log) == 0


def test_what_was_built_for_all_users_is_used(
    log: Path, temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = build.library()
    monkeypatch.setattr(building, "PREBUILT", tmp_path / "share" / "uav-sfl-testbed")
    shutil.copytree(built.parent, building.PREBUILT)
    assert build.library() == building.PREBUILT / built.name
    assert builds(log) == 1


def test_missing_wheel_is_named(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ChannelError, match="pip install ns3"):
        build.library()
    assert builds(log) == 0
