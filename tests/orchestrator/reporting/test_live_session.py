# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The live view of a session: its page, and what it is told of links that are counted."""

import json
import re
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from chromium import PROGRAM, chromium
from small_scenario import TREE

from orchestrator.reporting.live_session import MOST_SAMPLES, LiveSession, watched
from orchestrator.scenario.loading import validate

SCENARIO = validate(TREE, "small")


def counted(first: int, slots: int = 10) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    """Of three UAVs: uplinks carry half, downlinks nothing; 7 bytes a client wait in the end."""
    offered = np.full((slots, 3, 2), 1000.0)
    carried = np.zeros((slots, 3, 2), np.int64)
    carried[:, :, 0] = 500
    queued = np.zeros((slots, 3, 2), np.int64)
    queued[-1, :, 0] = 7 * np.arange(1, 4)
    return first, offered, carried, queued


def a_session() -> Any:
    return SimpleNamespace(
        scenario=SCENARIO,
        recorder=SimpleNamespace(watcher=None),
        options=SimpleNamespace(downlink="shared"),
        notes=["links are slower"],
        folder=Path("session"),
        programs=[
            SimpleNamespace(node="uav1", returncode=1),
            SimpleNamespace(node="bs", returncode=None),
        ],
    )


def test_the_page_is_told_what_links_did_and_each_look_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    session = a_session()
    with watched(session) as view:
        found = re.search(r"http://\S+", caplog.text)
        assert found

        def get(rest: str) -> str:
            return urllib.request.urlopen(found[0] + rest, timeout=20).read().decode()

        page = get("")
        kind = '<meta name="testbed-page" content="live_session">'
        assert page.count(kind) == 1
        assert "live_session" not in page.replace(kind, "").partition("<script>")[0]
        assert '"shared":true' in page
        assert "<p>Links are slower.</p>" in page
        assert json.loads(get("state?steps=0")) == {
            "phase": "before slot 0",
            "outcome": "",
            "report": None,
            "from": 0,
            "looks": [],
        }
        session.recorder.watcher(*counted(0))
        session.recorder.watcher(*counted(10))
        (one, two), begin = (lambda s: (s["looks"], s["from"]))(json.loads(get("state?steps=0")))
        assert begin == 0
        assert (one["end_s"], two["end_s"]) == (1.0, 2.0)
        assert one["offered_kbps"] == [[80.0, 80.0]] * 3
        assert one["carried_kbps"] == [[40.0, 0.0]] * 3
        assert one["queued_bytes"] == [[7, 0], [14, 0], [21, 0]]
        state = json.loads(get("state?steps=1"))
        assert (state["phase"], state["from"], state["looks"]) == ("running", 1, [two])
        view.requested_s = float("-inf")  # The page is no longer open.
    assert session.recorder.watcher is None


@pytest.mark.skipif(PROGRAM is None, reason="no Chromium is installed")
def test_links_are_drawn_as_they_go(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    session = a_session()
    row = "[...byId('now').rows[{}].cells].map(c => c.innerText).join(' | ')"
    with chromium(tmp_path / "chromium") as page:
        with watched(session):
            found = re.search(r"http://\S+", caplog.text)
            assert found
            session.recorder.watcher(*counted(0))
            page.show(found[0])
            page.wait(lambda: page.js("had") == 1)
            session.recorder.watcher(*counted(10))
            page.wait(lambda: page.js("had") == 2)
            assert page.js(row.format(2)) == "Uplink of UAV 2 |  | 0.08 | 0.04 | 14"
            assert page.js(row.format(6)) == "Downlink of UAV 3 |  | 0.08 | 0.00 | 0"
            points = "byId('now').rows[1].querySelector('polyline').getAttribute('points')"
            assert page.js(points) == "317.3,15.0 320.0,15.0"
            assert page.js("byId('clock').innerText") == "2.0 s"
            assert "share the cell" in page.js("byId('shared').innerText")
        page.wait(lambda: page.js("phase") == "ended")
        verdict = (
            "Commands: 1 ended with status 1 (uav1); 1 stopped at the end of the session (bs)."
        )
        assert verdict in page.js("byId('verdict').innerText")
        assert page.js("byId('report').innerText").endswith("session/report.html")
        assert page.errors == []


def test_it_keeps_two_minutes_however_long_the_session_is() -> None:
    view = LiveSession(SCENARIO)
    for look in range(MOST_SAMPLES + 30):
        view.take(*counted(10 * look))
    state = view.state(-1, 5)
    assert (state["from"], len(state["looks"])) == (30, MOST_SAMPLES)
    assert view.state(-1, MOST_SAMPLES + 30)["looks"] == []
