# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Runs in copies of one guest: the same bytes as in a guest of their own."""

import os
import signal
from pathlib import Path

import pytest
from small_scenario import TREE

from orchestrator.emulated import guest_jobs, guests
from orchestrator.emulated.options import RunOptions
from orchestrator.emulated.stage import NODE_IMPORTS
from orchestrator.emulated.virtual import run_in_guest
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import RunError
from testbed.system.files import sha256_of
from testbed.virtual import guest

pytestmark = [pytest.mark.guest, pytest.mark.timeout(1200)]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[guest.Template]:
    """The guests that start, rather than being copied."""
    seen: list[guest.Template] = []

    class Counted(guest.Template):
        def __init__(self, *words: object, **options: object) -> None:
            super().__init__(*words, **options)  # type: ignore[arg-type]
            seen.append(self)

    monkeypatch.setattr(guest, "Template", Counted)
    return seen


def played(folder: Path, **changes: object) -> dict[str, str]:
    """Play the small scenario; digests of all tables and captures of the run."""
    folder.mkdir()
    emulation = {**TREE.get("emulation", {}), "clock": "virtual"}
    scenario = Scenario.model_validate(TREE | {"emulation": emulation} | changes)
    run_in_guest(scenario, None, folder, RunOptions(capture="frames"))
    kept = [*folder.glob("*.parquet"), *folder.glob("pcap/*.pcap")]
    return {path.name: sha256_of(path) for path in kept}


@pytest.mark.full
def test_a_run_leaves_the_same_bytes_whatever_its_guest_was_copied_for_before(
    tmp_path: Path, started: list[guest.Template]
) -> None:
    with guests.warm():
        first = played(tmp_path / "first")
        other = played(tmp_path / "other", seed=5, rounds=2)
        third = played(tmp_path / "third")
    assert len(started) == 1
    alone = played(tmp_path / "alone")
    assert len(started) == 2
    assert {"measured.parquet", "accounts.parquet"} <= first.keys()
    assert "uav1.pcap" in first
    assert first == third == alone
    assert other["measured.parquet"] != first["measured.parquet"]


@pytest.mark.full
def test_after_a_guest_has_failed_the_next_run_starts_a_new_one_but_not_after_a_job(
    tmp_path: Path, started: list[guest.Template], monkeypatch: pytest.MonkeyPatch
) -> None:
    with guests.warm():
        with monkeypatch.context() as patch:
            patch.setattr(guest, "_attend", killing(guest._attend))
            with pytest.raises(RunError, match="the guest was ended by SIGKILL"):
                played(tmp_path / "killed")
        assert len(started) == 1
        with pytest.raises(RunError, match="ValueError"):
            guests.in_guest("nothing", {})
        assert len(started) == 2
        assert played(tmp_path / "whole")["measured.parquet"]
        assert len(started) == 2, "a job that fails in a copy leaves the template as it was"


def test_a_template_has_imported_what_nodes_import() -> None:
    assert set(NODE_IMPORTS) <= set(guest_jobs.NODE_IMPORTS)


def killing(attend):  # type: ignore[no-untyped-def]
    def kill(process, *words, answer=None):  # type: ignore[no-untyped-def]
        if answer is None:
            os.kill(process.pid, signal.SIGKILL)
        return attend(process, *words, answer=answer)

    return kill
