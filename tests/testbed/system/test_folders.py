# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""One cache folder for all that the testbed remembers."""

from pathlib import Path

import pytest

from ns3_scenarios import build
from testbed.system import building, leftovers
from testbed.system.folders import cache_folder


@pytest.mark.parametrize("variable", ["relative/cache", "", None])
def test_only_an_absolute_place_is_another(
    variable: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if variable is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", variable)
    assert cache_folder() == tmp_path / "home/.cache/uav-sfl-testbed"
    monkeypatch.setattr(building, "_build", lambda _, __, target: target.touch())
    assert build.library().parent == cache_folder()
    assert leftovers.notes().parent == cache_folder()
    assert not (tmp_path / "relative").exists()


def test_an_absolute_place_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "uav-sfl-testbed"
