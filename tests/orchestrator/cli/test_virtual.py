# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a command does on the host while its guest runs; no guest is started here."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
import warm
from small_scenario import TREE

from orchestrator.cli.virtual import enter
from orchestrator.emulated import guests, virtual
from orchestrator.emulated.visits import SOCKET, closed_to_visitors, runs_in, visit
from orchestrator.records.directory import claimed, is_locked, part_of
from orchestrator.reporting import live
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from testbed.virtual import guest, kernel
from workloads.offload.client import Caller
from workloads.offload.messages import answer, take

Inside = Callable[..., int]


@pytest.fixture
def scenario() -> Scenario:
    return Scenario.model_validate(TREE | {"emulation": {"clock": "virtual"}})


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> Callable[[Inside], None]:
    """Has this function in the place of a guest; it is given the guest's options."""
    found = SimpleNamespace(to_json=dict)
    monkeypatch.setattr(kernel, "find", lambda: found)
    monkeypatch.setattr(guests, "find", lambda: found)

    def takes_its_place(what: Inside) -> None:
        def run(*_: object, **options: Any) -> SimpleNamespace:
            return SimpleNamespace(status=what(**options))

        monkeypatch.setattr(guest, "run", run)

    return takes_its_place


def test_a_run_directory_is_held_for_the_guest(
    scenario: Scenario, inside: Callable[[Inside], None], tmp_path: Path
) -> None:
    out = tmp_path / "deep" / "run"
    seen = []

    def run(**_: object) -> int:
        seen.append(is_locked(part_of(out)))
        with pytest.raises(InputError, match="is being written by another run"):
            enter(scenario, "s", holding=claimed(out, scenario))
        return 3

    inside(run)
    with pytest.raises(typer.Exit) as ended:
        enter(scenario, "s", holding=claimed(out, scenario))
    assert (seen, ended.value.exit_code) == ([True], 3)
    assert not out.parent.exists()  # The guest has left nothing, and so do we.


def test_what_nodes_learn_is_computed_beside_the_guest(
    scenario: Scenario, inside: Callable[[Inside], None]
) -> None:
    """Whoever asks there is answered while the guest lasts; a guest whose nodes learn nothing has
    nobody beside it."""
    seen: list[str | None] = []

    def run(settings: dict[str, Any], **options: Any) -> int:
        place = settings.get("computing")
        assert ("started" in options) == (place is not None)
        if place is not None:
            Caller(Path(place), "uav1", {}, 1)
            (node,) = Path(place).iterdir()
            while not (node / answer(0)).exists():
                time.sleep(0.01)
            failed, (kind, *_) = take(node / answer(0)).plain
            assert (failed, kind) == (True, "KeyError")
        seen.append(place)
        return 0

    inside(run)
    tiny = {"compute": "real", "model": "swin_nano_patch4_window4_64", "profile": None}
    workload = scenario.workload.model_copy(update=tiny)
    learns = scenario.model_copy(update={"workload": workload})
    for each, plays in ((scenario, True), (learns, False), (learns, True)):
        with pytest.raises(typer.Exit):
            enter(each, "s", plays_rounds=plays)
    *nothing, place = seen
    assert nothing == [None, None]
    assert place is not None
    assert not Path(place).exists()


def test_what_the_guest_has_made_of_it_stays(scenario: Scenario, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "run"
    with claimed(out, scenario) as part:
        part.rename(out)
    assert [path.name for path in out.parent.iterdir()] == ["run"]


def test_a_failed_run_that_nobody_got_to_resume_is_where_it_was(
    scenario: Scenario, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    out.mkdir()
    (out / "manifest.json").write_text(json.dumps({"status": "failed"}))
    with claimed(out, scenario, resume=True) as part:
        assert part.exists() > out.exists()
    assert (out / "manifest.json").is_file()
    assert not part.exists()


def test_the_page_is_served_here_and_shows_what_the_run_tells(
    scenario: Scenario, inside: Callable[[Inside], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    views: list[live.Mirror] = []
    make = live.Mirror.__init__
    monkeypatch.setattr(
        live.Mirror, "__init__", lambda self, of: (make(self, of), views.append(self))[0]
    )
    monkeypatch.setattr(live, "LINGER_S", 0.0)

    def run(show: Callable[[dict[str, Any]], object], **_: object) -> int:
        steps = [[1, 1, 0, 0.0, 0.1], [2, 1, 0, 0.0, 0.2]]
        (view,) = views
        assert view.state(-1, 0)["phase"] == "starting nodes"
        told = {"phase": "running", "round": 0, "from": 0, "steps": steps, "predicted": steps}
        show(told | {"now_s": 0.3})
        assert view.state(-1, 0)["steps"] == steps
        more = view.state(0, 1)
        assert (more["from"], more["steps"], more["predicted"]) == (1, steps[1:], None)
        return 0

    inside(run)
    with pytest.raises(typer.Exit):
        enter(scenario, "s", live=True)
    assert views[0].state(0, 2)["phase"] == "ended"


def test_nobody_enters_a_session_in_virtual_time(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    with closed_to_visitors(out, "out: runs in virtual time"):
        assert runs_in(out)
        with pytest.raises(InputError, match=r"^out: runs in virtual time$"):
            visit(out, "bs", ["true"], (0, 1, 2), env={}, terminal=False)
        with (
            pytest.raises(InputError, match="a session is running"),
            closed_to_visitors(out, ""),
        ):
            pass
    assert not out.parent.exists()


def test_a_session_finds_its_folder_free_and_keeps_it(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / SOCKET).touch()  # of one that was killed
    with closed_to_visitors(out, "no"):
        assert [path.name for path in out.iterdir()] == [SOCKET]
        (out / "manifest.json").touch()
    assert [path.name for path in out.iterdir()] == ["manifest.json"]


def test_without_an_end_a_session_in_virtual_time_is_refused(
    tmp_path: Path,
) -> None:
    words = ["up", "quickstart", "--set", "emulation.clock=virtual", "--out", tmp_path / "out"]
    done = warm.run(*words)
    assert done.returncode == 2
    *_, line = done.stderr.splitlines()
    assert line.startswith("testbed: --seconds: must be given where emulation.clock is 'virtual'")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("allowed", "said"), [(65_530, True), (guest.MAPS_WANTED, False)])
def test_many_uavs_need_more_mappings_than_linux_allows(
    scenario: Scenario,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    allowed: int,
    said: bool,
) -> None:
    (tmp_path / "maps").write_text(str(allowed))
    monkeypatch.setattr(guest, "MAPS", tmp_path / "maps")
    virtual.prepare(scenario, None)
    assert not caplog.records
    monkeypatch.setattr(virtual, "MANY_UAVS", scenario.uavs.count)
    virtual.prepare(scenario, None)
    assert ("sysctl -w vm.max_map_count=1048576" in caplog.text) == said
