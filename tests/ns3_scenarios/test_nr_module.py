# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The build of 5G-LENA: which sources are taken, and how the result is kept and found.

The sources here are a few lines that look like the module to the build. What the real one does is
tested in test_ns3_radio.py, where it is built.
"""

import ctypes
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from ns3_scenarios import nr_module
from testbed.core.errors import InputError, RunError

NOTES = "5G-LENA Release Notes\n\nRelease NR-v4.0\n---------------\n\nRelease NR-v3.3\n"
LISTS = """\
set(source_files
    ${eigen_sources}
    helper/one.cc
    helper/grid-scenario-helper.cc
    model/two.cc
)
set(header_files
    model/two.h
)
"""
FILES = {
    "RELEASE_NOTES.md": NOTES,
    "CMakeLists.txt": LISTS,
    # Both have a logger of the same name, and the second finds the header beside it.
    "helper/one.cc": '#include "ns3/two.h"\nstatic int g_log = 1;\nint One() { return g_log; }\n',
    "model/two.cc": (
        '#include "two.h"\n#include "ns3/two.h"\nstatic int g_log = 2;\n'
        'extern "C" int Two() { return g_log; }\n'
    ),
    "model/two.h": "#pragma once\nconst int TWO = 2;\n",
    "model/nr-mimo-matrices-no-eigen.cc": "int Plain() { return 3; }\n",
}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(nr_module, "UNITS", 2)


def source(folder: Path, **changed: str | None) -> Path:
    """A folder that looks like the module to the build; None: without this file."""
    for name, text in (FILES | changed).items():
        if text is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
    return folder


def test_a_module_is_built_once_and_found(tmp_path: Path) -> None:
    assert nr_module.find() is None
    with pytest.raises(InputError, match=r"needs 5G-LENA.*testbed radio build nr --source FOLDER"):
        nr_module.required()
    said: list[tuple[str, float, float]] = []
    given = source(tmp_path / "nr")
    made, is_new = nr_module.build_module(given, progress=lambda *of: said.append(of))
    assert is_new
    assert (made.release, said[-1]) == ("NR-v4.0", ("compiling 5G-LENA", 2, 2))
    assert ctypes.CDLL(str(made.library)).Two() == 2
    assert sorted(path.name for path in (made.include / "ns3").iterdir()) == [
        "nr-module.h",
        "two.h",
    ]
    assert nr_module.required() == made
    again, is_new = nr_module.build_module(given)
    assert not is_new
    assert again.folder == made.folder


def test_the_module_that_was_built_or_asked_for_last_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = nr_module.build_module(source(tmp_path / "a"))
    other = source(tmp_path / "b", **{"model/two.h": "#pragma once\nconst int TWO = 3;\n"})
    second, _ = nr_module.build_module(other)
    assert second.source_sha256 != first.source_sha256
    later = iter(f"2099-01-01T00:00:0{n}+00:00" for n in range(2))

    class Later(nr_module.datetime):
        def isoformat(self, sep: str = "T", timespec: str = "auto") -> str:
            return next(later)

    monkeypatch.setattr(nr_module, "datetime", Later)
    for folder, module in (("a", first), ("b", second)):
        nr_module.build_module(tmp_path / folder)
        assert nr_module.required().source_sha256 == module.source_sha256


def test_whole_units_of_a_build_that_failed_are_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = source(tmp_path / "nr")
    compile_whole, made = nr_module.building.compile_whole, []

    def fails_once(command: object, text: str, target: Path, limit_s: float) -> None:
        made.append(target.name)
        if target.name == "libnr.so" and made.count("libnr.so") == 1:
            raise OSError(28, "No space left on device")
        compile_whole(command, text, target, limit_s)

    monkeypatch.setattr(nr_module.building, "compile_whole", fails_once)
    with pytest.raises(RunError, match=r"5G-LENA cannot be kept in the cache: .*No space left"):
        nr_module.build_module(given)
    assert nr_module.find() is None
    nr_module.build_module(given)
    assert sorted(made) == ["libnr.so", "libnr.so", "unit0.o", "unit1.o"]


def test_an_error_of_the_compiler_is_one_line(tmp_path: Path) -> None:
    wrong = source(tmp_path / "nr", **{"model/two.cc": "int Two( { }\n"})
    with pytest.raises(RunError, match=r"^5G-LENA cannot be built: g\+\+ fails: \S*two.cc:1:.*$"):
        nr_module.build_module(wrong)
    assert nr_module.find() is None


def test_a_library_that_was_changed_is_refused(tmp_path: Path) -> None:
    made, _ = nr_module.build_module(source(tmp_path / "nr"))
    made.library.write_bytes(made.library.read_bytes()[:-1])
    with pytest.raises(RunError, match=r"libnr.so: was changed after the build; remove "):
        nr_module.find()


REFUSED: dict[str, tuple[Callable[[Path], Path], str]] = {
    "no folder": (lambda at: at / "none", "there is no folder"),
    "a file": (lambda at: source(at / "nr") / "CMakeLists.txt", "there is no folder"),
    "other files": (lambda at: at.parent, "has other files$"),
    "the tree of ns-3": (
        lambda at: source(at / "ns3" / "contrib" / "nr").parents[1],
        "has other files; it may be .*/contrib/nr",
    ),
    "a later release": (
        lambda at: source(at, **{"RELEASE_NOTES.md": f"Release NR-v4.1\n{NOTES}"}),
        "is NR-v4.1",
    ),
    "an earlier release": (
        lambda at: source(at, **{"RELEASE_NOTES.md": "Release NR-v3.3\n-----\n"}),
        "is NR-v3.3",
    ),
    "no release": (
        lambda at: source(at, **{"RELEASE_NOTES.md": "Notes\n"}),
        "names no release in its notes",
    ),
    "no notes": (lambda at: source(at, **{"RELEASE_NOTES.md": None}), "has other files"),
    "other lists": (lambda at: source(at, **{"CMakeLists.txt": "project(x)\n"}), "has other files"),
    "a source is missing": (
        lambda at: source(at, **{"helper/one.cc": None}),
        "helper/one.cc is missing",
    ),
    "no plain matrices": (
        lambda at: source(at, **{"model/nr-mimo-matrices-no-eigen.cc": None}),
        "nr-mimo-matrices-no-eigen.cc is missing",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_another_source_is_refused_in_one_line(tmp_path: Path, name: str) -> None:
    make, why = REFUSED[name]
    with pytest.raises(InputError) as refused:
        nr_module.build_module(make(tmp_path / "given"))
    line = str(refused.value)
    assert line.startswith("source: must be the folder contrib/nr of 5G-LENA's release NR-v4.0; ")
    assert re.search(why, line)
    assert "\n" not in line
    assert not (tmp_path / "cache").exists()


def test_what_a_build_lacks_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(nr_module.build, "wheel", lambda: ("3.45", tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert nr_module.missing() == [
        "g++ is missing: apt-get install g++",
        "ns3 3.44, not 3.45: pip install 'ns3==3.44.*'",
    ]
    with pytest.raises(InputError, match=r"g\+\+ is missing: .*; ns3 3.44, not 3.45"):
        nr_module.build_module(source(tmp_path / "nr"))
