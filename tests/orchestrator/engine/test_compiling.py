# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Machine code on disk is of the very sources that are there."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.analytical.closed_forms import _serve
from orchestrator.engine import compiling
from testbed.system.files import is_intact

COMPILES = re.compile(r"^\s*(import|from) numba|import .*\bcompiled\b", re.MULTILINE)


def test_all_that_is_compiled_is_in_the_folders_that_are_looked_at() -> None:
    tops = ("testbed", "ns3_scenarios", "workloads", "orchestrator")
    files = [file for top in tops for file in (compiling.ROOT / top).rglob("*.py")]
    found = [file for file in files if COMPILES.search(file.read_text("utf-8"))]
    assert len(found) >= 5
    for file in found:
        assert any(file.is_relative_to(compiling.ROOT / folder) for folder in compiling.SOURCES), (
            file
        )


def test_other_sources_have_other_machine_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Path(_serve.stats.cache_path).parent == Path(compiling._machine_code_folder())
    for folder in compiling.SOURCES:
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.setattr(compiling, "ROOT", tmp_path)
    places = []
    for text in ("a = 1", "a = 2"):
        (tmp_path / compiling.SOURCES[0] / "called.py").write_text(text)
        compiling._machine_code_folder.cache_clear()
        places.append(compiling._machine_code_folder())
    compiling._machine_code_folder.cache_clear()
    assert places[0] != places[1]
    assert all(Path(place).parent == tmp_path / "orchestrator" / "__pycache__" for place in places)


def test_users_who_cannot_write_next_to_the_sources_get_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container whose image has the machine code."""
    own = Path(compiling._machine_code_folder.__wrapped__())
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "pyproject.toml").touch()
    there = sources / "orchestrator" / "__pycache__" / own.name
    there.mkdir(parents=True)
    (there / "code").write_text("compiled")
    for folder in compiling.SOURCES:
        shutil.copytree(
            compiling.ROOT / folder, sources / folder, ignore=shutil.ignore_patterns("__pycache__")
        )
    monkeypatch.setattr(compiling, "ROOT", sources)
    assert Path(compiling._machine_code_folder.__wrapped__()) == there
    monkeypatch.setattr("os.access", lambda path, mode: False)
    (tmp_path / "file").write_text("")
    for cache in (tmp_path / "cache", tmp_path / "file"):  # The second cannot be used.
        monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
        copy = Path(compiling._machine_code_folder.__wrapped__())
        assert copy.name == own.name
        assert copy.is_relative_to(cache) == cache.is_dir()
        assert [path.name for path in copy.parent.iterdir()] == [copy.name]
        assert (copy / "code").read_text() == "compiled"


def _twice(number: float) -> float:
    return 2 * number


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
@pytest.mark.parametrize("damage", ["cut", "empty", "changed"])
def test_damaged_machine_code_is_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str, damage: str
) -> None:
    monkeypatch.setattr(compiling, "_machine_code_folder", lambda: str(tmp_path))
    assert compiling.compiled(_twice)(1.5) == 3
    (file,) = tmp_path.rglob(f"*.{ending}")
    whole = file.read_bytes()
    middle = len(whole) // 2
    changed = whole[:middle] + bytes(8) + whole[middle + 8 :]
    file.write_bytes({"cut": whole[:middle], "empty": b"", "changed": changed}[damage])
    for compilations in (1, 0):  # The second finds what the first has written.
        again: Any = compiling.compiled(_twice)
        assert again(1.5) == 3
        assert len(again.stats.cache_misses) == compilations
        assert is_intact(file)


def test_an_installed_package_stays_as_it_was_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise `pip uninstall` would leave the machine code behind."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(compiling, "PREBUILT", tmp_path / "share")
    site = tmp_path / "site-packages"
    for folder in compiling.SOURCES:
        (site / folder).mkdir(parents=True)
    monkeypatch.setattr(compiling, "ROOT", site)
    own = Path(compiling._machine_code_folder.__wrapped__())
    assert own.parent == compiling.cache_folder()
    (tmp_path / "share" / own.name).mkdir(parents=True)
    (tmp_path / "share" / own.name / "code").write_text("compiled")
    assert Path(compiling._machine_code_folder.__wrapped__()) == own
    assert (own / "code").read_text() == "compiled"


def test_compiles_where_nothing_can_be_cached() -> None:
    # A cache only for modules inside a zip archive: no place for ours, as in a read-only install.
    program = (
        "from orchestrator.analytical.closed_forms import _serve as f; "
        "print(type(f._cache).__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"NUMBA_CACHE_LOCATOR_CLASSES": "ZipCacheLocator"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "NullCache\n", done.stderr
