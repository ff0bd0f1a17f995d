# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The live view: a run is watched in Chromium; who lacks the token learns nothing; it ends."""

import html
import http.client
import json
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from chromium import PROGRAM, chromium

from ns3_scenarios.trace import RateTrace
from orchestrator.engine.radio import WHILE_ALL_SEND
from orchestrator.records.emulation import Check
from orchestrator.reporting import live as module
from orchestrator.reporting.live import Live, serve
from orchestrator.scenario.loading import load
from testbed.control.messages import Progress
from testbed.core.clock import EmulatedClock
from testbed.core.errors import RunError
from testbed.core.paradigm import paradigm
from testbed.core.schedule import Schedule
from testbed.core.timeline import SPAN, Round

QUICK = Path(__file__).resolve().parents[3] / "scenarios" / "quickstart.yaml"
SMALL = load(QUICK, ["rounds=1"])


def a_round() -> Round:
    steps = [(k, 1, 0, 0.0, 0.1 * k, 9) for k in (1, 2, 3)]
    steps += [(k, 1, 6, 5.0, 5.5, 9) for k in (1, 2, 3)]
    return Round(0, "cpsfl", 2, 0.0, 5.5, np.ones(3), 9.5, np.array(steps, dtype=SPAN))


def begun(live: Live) -> Live:
    rates = np.array([[1e6, 2e6], [3e6, 4e6], [5e6, 0.0]])
    position = np.arange(18.0).reshape(3, 2, 3)
    live.begin(a_round(), EmulatedClock(time.monotonic_ns(), 0.0, 1.0), 0, rates, rates, position)
    return live


@pytest.fixture
def view(caplog: pytest.LogCaptureFixture) -> Iterator[tuple[Live, str]]:
    """A live view and its address."""
    caplog.set_level("INFO")
    with serve(SMALL) as live:
        address = re.search(r"http://\S+", caplog.text)
        assert address
        yield live, address[0]


def get(address: str) -> tuple[int, bytes, dict[str, str]]:
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:
            return answer.status, answer.read(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, error.read(), dict(error.headers)


def test_it_listens_on_loopback_only_and_with_a_token_of_its_own(view, caplog) -> None:
    _, address = view
    found = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/([\w-]{32})/", address)
    assert found
    own = [c for c in psutil.Process().net_connections() if c.status == psutil.CONN_LISTEN]
    assert [c.laddr.ip for c in own if c.laddr.port == int(found[1])] == ["127.0.0.1"]
    caplog.clear()
    with serve(SMALL):
        assert "http://" in caplog.text
        assert found[2] not in caplog.text


@pytest.mark.parametrize(
    "path", ["", "x", "state", "{wrong}/", "{wrong}/state", "{token}x/", "../"]
)
def test_without_the_token_nobody_learns_anything(view, path: str) -> None:
    live, address = view
    begun(live)
    base, token = address.rstrip("/").rsplit("/", 1)
    wrong = token[:-1] + ("a" if token[-1] != "a" else "b")
    status, body, headers = get(f"{base}/{path.format(wrong=wrong, token=token)}")
    assert (status, body) == (403, b"")
    assert headers.keys().isdisjoint({"Server", "Date"})


def test_whatever_else_is_asked_is_refused_alike(view) -> None:
    _, address = view
    host = address.split("/")[2]
    for method in ("POST", "HEAD", "BREW"):
        connection = http.client.HTTPConnection(host, timeout=10)
        connection.request(method, address.split(host)[1])
        answer = connection.getresponse()
        assert (answer.status, answer.read()) == (403, b"")
    with socket.create_connection(tuple(host.split(":")), timeout=10) as raw:
        raw.sendall(b"\xff\xfe\r\n\r\n")
        assert raw.recv(100) == b""  # no HTTP, no answer


def test_the_page_gets_what_is_new(view) -> None:
    live, address = view
    assert json.loads(get(f"{address}state?round=-1&steps=0")[1])["phase"] == "starting nodes"
    begun(live)
    first = json.loads(get(f"{address}state?round=-1&steps=0")[1])
    assert (first["phase"], first["round"], first["from"], first["steps"]) == ("running", 0, 0, [])
    assert len(first["predicted"]) == 6
    assert first["up_kbps"] == [1000, 3000, 5000]
    assert first["position_m"] == [[0, 1], [6, 7], [12, 13]]
    waiting = {"compute": (), "transmit": (3, 1)}
    live.heard(Progress(((1, 1, "SM", 0.0, 0.1, 9),), waiting))
    live.heard(Progress(((2, 1, "CA", 0.1, 0.2, 9),), waiting))
    more = json.loads(get(f"{address}state?round=0&steps=1")[1])
    assert (more["from"], more["steps"], more["predicted"]) == (1, [[2, 1, 2, 0.1, 0.2]], None)
    assert more["waiting"]["transmit"] == [3, 1]
    live.finished(a_round())
    after = json.loads(get(f"{address}state?round=0&steps=2")[1])
    assert (after["phase"], after["from"], len(after["steps"])) == ("between rounds", 0, 6)
    assert after["latencies_s"] == [5.5]
    for odd in ("round=x&steps=-1", "steps=99999999999999", "round=0&steps=7", ""):
        assert json.loads(get(f"{address}state?{odd}")[1])["from"] == 0


def test_it_ends_with_the_run_and_tells_a_page_that_watches(monkeypatch, caplog) -> None:
    monkeypatch.setattr(module, "LINGER_S", 0.3)
    caplog.set_level("INFO")
    began = time.monotonic()
    with serve(SMALL):
        pass
    assert time.monotonic() - began < 5
    caplog.clear()
    with serve(SMALL) as live:
        address = re.search(r"http://\S+", caplog.text)
        assert address
        assert get(address[0])[0] == 200
    with pytest.raises(urllib.error.URLError):
        get(address[0])
    assert live.phase == "ended"


@pytest.mark.parametrize(
    ("keys", "trace", "words", "shares"),
    [
        ([], None, "Radio: Shannon's rates, FDMA.", False),
        ([], RateTrace(np.ones((3, 2)), np.ones((3, 2)), 0.1), "Radio: rates of a trace.", False),
        (
            ["radio.access=lte"],
            None,
            "Radio: LTE, 100 resource blocks, shared equally, 64QAM, 1 layer.",
            True,
        ),
        (
            ["radio.access=lte", "radio.lte.scheduler=shares"],
            None,
            "Radio: LTE, 100 resource blocks, in shares beta, 64QAM, 1 layer.",
            False,
        ),
    ],
)
def test_the_page_names_the_radio(keys, trace, words, shares, caplog) -> None:
    caplog.set_level("INFO")
    cell = [f"radio.{way}link_bandwidth_hz=2e7" for way in ("up", "down")]
    with serve(load(QUICK, ["rounds=1", *cell, *keys]), trace):
        found = re.search(r"http://\S+", caplog.text)
        assert found
        page = html.unescape(get(found[0])[1].decode())
    assert words in re.sub("<[^>]*>", "", page)
    assert (WHILE_ALL_SEND in page) == shares


def test_a_run_that_fails_in_its_first_round_ends_like_any_other(monkeypatch) -> None:
    monkeypatch.setattr(module, "LINGER_S", 0.0)
    live = begun(Live(SMALL))
    assert live.state(-1, 0)["up_kbps"] == [1000, 3000, 5000]
    live.end()
    assert live.state(0, 0)["phase"] == "ended"


def test_the_end_shows_the_verdict_and_the_report(tmp_path: Path) -> None:
    live = begun(Live(SMALL))
    assert live.state(-1, 0)["outcome"] == ""
    live.finished(a_round())
    live.concluded([Check("cpu_steal", 0.05, 0.01, True)], tmp_path / "run")
    state = live.state(0, 0)
    assert state["outcome"].startswith("The run is valid. With CPSFL, a round took 5.500 s")
    assert state["report"] == str(tmp_path / "run" / "report.html")
    live.concluded([Check("cpu_steal", 0.05, 0.1, False)], None)
    failed = "not valid: 1 of 1 check failed (CPU time taken by other guests)"
    assert failed in live.whole()["outcome"]
    assert live.whole()["report"] is None
    mirror = module.Mirror(SMALL)
    mirror.show(live.whole())
    assert mirror.whole()["outcome"] == live.whole()["outcome"]


def test_a_failure_is_shown(monkeypatch) -> None:
    monkeypatch.setattr(module, "LINGER_S", 0.0)
    live = Live(SMALL)
    with pytest.raises(RunError), module.served(live, ""):
        raise RunError("uav3 was lost")
    assert live.whole()["outcome"] == "It failed: uav3 was lost"


def test_before_its_start_a_round_shows_its_first_slot() -> None:
    live = begun(Live(SMALL))
    live.clock = EmulatedClock(time.monotonic_ns() + 10**9, 0.7, 1.0)
    live.first = 7
    assert live.state(-1, 0)["up_kbps"] == [1000, 3000, 5000]


def test_who_waits_is_in_the_order_of_service() -> None:
    schedule = Schedule(paradigm("cpsfl"), 3)
    for client, lag_s in ((1, 2.0), (2, 3.0), (3, 1.0)):
        schedule.smashed_arrived(client, 1, 0.0, 0.0)
        schedule.computed(client, 1, 0.1, -lag_s)  # the larger lag goes first
    assert schedule.waiting()["transmit"] == [2, 1, 3]
    schedule.start()
    assert schedule.waiting() == {"compute": [], "transmit": [1, 3]}
    gated = Schedule(paradigm("sfl-ps"), 3)
    gated.smashed_arrived(1, 1, 0.0, 0.0)
    gated.computed(1, 1, 0.1, 0.0)
    gated.start()
    assert gated.waiting()["transmit"] == [1]


@pytest.mark.skipif(PROGRAM is None, reason="no Chromium is installed")
def test_a_run_is_watched_as_it_goes(tmp_path: Path) -> None:
    words = ["run", QUICK, "--live", "--out", tmp_path / "run"]
    sets = ["workload.compute=none", "emulation.dilation=1", "rounds=2", "paradigm=cpsfl"]
    words += [word for pair in sets for word in ("--set", pair)]
    run = subprocess.Popen(
        [sys.executable, "-m", "orchestrator", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert run.stderr is not None
    with run, chromium(tmp_path / "chromium") as page:
        # Other lines may go before: another emulation on this machine is mentioned.
        said = (re.search(r"http://\S+", line) for line in run.stderr)
        address = next(found for found in said if found)
        page.show(address[0])
        page.wait(lambda: page.js("state.phase === 'running' && state.steps.length > 10"), 60)
        seen = page.js("state.steps.length")
        at = "[...document.querySelectorAll('.uav circle')].map(c => c.getAttribute('cx'))"
        places = page.js(at)
        assert len(set(places)) == 3
        strokes = "[...document.querySelectorAll('.link')].map(l => l.getAttribute('stroke'))"
        assert len(set(page.js(strokes))) >= 2
        picture = "byId('gantt').querySelector('canvas').toDataURL()"
        before = page.js(picture)
        page.wait(lambda: page.js("state.steps.length") > seen + 3)
        assert page.js(picture) != before
        page.wait(lambda: page.js(at) != places)
        page.wait(lambda: page.js("state.latencies_s.length") >= 1)
        assert page.js("byId('round').innerText") in ("0 (rounds 0 to 1)", "1 (rounds 0 to 1)")
        page.wait(lambda: page.js("state.phase === 'ended'"), 60)
        assert page.js("state.steps.length") == 3 * (2 + 5 * 3)
        assert "Latencies of the finished rounds: " in page.js("byId('done').innerText")
        verdict = page.js("byId('verdict').innerText")
        assert verdict.startswith("The run is ")
        assert "With CPSFL, a round took" in verdict
        shown = page.js("byId('report').innerText")
        assert shown == f"Report: {tmp_path / 'run' / 'report.html'}"
        assert page.errors == []
        assert run.wait(60) == 0
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["status"] == "complete"


def test_a_name_is_text_and_nothing_else() -> None:
    hostile = SMALL.model_copy(update={"name": "</script><img src=x onerror=alert(1)>"})
    page = module._page(hostile)
    assert "<img" not in page
    assert page.count("</script>") == 2
