# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Builds say that they compile, and old ones do not remain."""

import logging
import os
import time
from pathlib import Path

import pytest

from orchestrator.engine.core_library import native
from testbed.system import building


def test_compiling_is_said_once_and_removes_what_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(building, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(building, "PREBUILT", tmp_path / "none")
    source = tmp_path / "small.cc"
    source.write_text("")
    old, recent, other = (tmp_path / name for name in ("small-1.so", "small-2.so", "other-1.so"))
    before = tmp_path / "machine-code-1"
    before.mkdir()
    for file in (old, recent, other):
        file.touch()
    for file in (old, other, before):
        os.utime(file, (0, time.time() - 31 * 86400))
    with caplog.at_level(logging.INFO):
        native("small", source, [])
        native("small", source, [])
    assert caplog.messages == ["compiling small, once: about 10 s"]
    assert not old.exists()
    assert not before.exists()
    assert recent.exists()
    assert other.exists()


def test_a_build_that_is_used_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "cache_folder", lambda: tmp_path)
    source = tmp_path / "small.cc"
    source.write_text("")
    native("small", source, [])
    [built] = tmp_path.glob("small-*.so")
    os.utime(built, (0, time.time() - 31 * 86400))
    native("small", source, [])
    assert time.time() - built.stat().st_mtime < 60
