# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""One page of each kind, for tests of their looks; as pictures, to be looked at.

``python tests/support/all_pages.py FOLDER`` leaves pages there, and how a headless Chromium shows
each of them at the widths of phones, tablets, laptops and walls, in light and dark, and printed.
"""

import argparse
import base64
import logging
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
from chromium import Page, chromium
from finished_campaign import finished_campaign
from packet_cases import small
from small_flights import small_fit, small_forecast
from small_scenario import TREE
from small_trajectories import write_seeds
from synthetic_run import make_run, make_session, manifest

from orchestrator.analysis.byte_accounts import BYTES
from orchestrator.analysis.waterfall import PARTS
from orchestrator.flights.forecast import revealed
from orchestrator.flights.page import fit_page, forecast_page
from orchestrator.records.reader import read_run
from orchestrator.reporting import plots
from orchestrator.reporting.comparison import write_comparison
from orchestrator.reporting.index import write_index
from orchestrator.reporting.learned_report import write_learned_report
from orchestrator.reporting.live import serve
from orchestrator.reporting.live_session import watched
from orchestrator.reporting.report import write_report
from orchestrator.reporting.session_report import write_session_report
from orchestrator.scenario.loading import load, validate
from orchestrator.studies import cross_check_page, overhead_page, radio_figures
from orchestrator.studies.cross_check import (
    KERNEL,
    PACKETS,
    PAYLOAD,
    WIRE,
    ClosedForm,
    CrossCheck,
)
from orchestrator.studies.overhead import Outcome
from orchestrator.studies.paper_figures import comparison_charts, gantts_of
from orchestrator.studies.reproduction import Finding, Reproduction, Section
from orchestrator.studies.validation import study
from orchestrator.studies.validation.outcome import Request
from orchestrator.studies.validation.page import write
from orchestrator.studies.validation.space import Space
from testbed.core.clock import EmulatedClock
from testbed.core.timeline import SPAN, Round
from testbed.host.dask_cluster import Cluster
from testbed.system.files import write_json

ROOT = Path(__file__).resolve().parents[2]
KINDS = (
    "report",
    "broken",
    "compare",
    "learned",
    "campaign",
    "reproduction",
    "cross-check",
    "overhead",
    "radio",
    "validation",
    "session",
    "fit",
    "forecast",
    "index",
)
"""Pages that are files; `broken` is the report of a run over LTE that is not valid."""
LIVE = ("live", "live-session")
WIDTHS = (400, 768, 1280, 1920)
PAPER_PX = 703
"""A4 less its margins, at 96 dots an inch."""


def written(base: Path) -> dict[str, Path]:
    """Make one page of each of `KINDS`, each with the longest that may stand on it."""
    runs = [make_run(base / "a", uavs=10), make_run(base / "b", uavs=10, seed=2)]
    session = make_session(base / "session", slots=70)
    long = make_run(base / "a-run-whose-folder-has-quite-a-long-name", uavs=3, rounds=1)
    (long / "measured.parquet").unlink()  # it measured nothing
    write_comparison([*runs, long, session], base / "compare.html")
    pages = {
        "report": write_report(runs[0]),
        "broken": write_report(_broken(base / "broken")),
        "compare": base / "compare.html",
        "learned": write_learned_report(write_seeds(base / "learned")),
        "campaign": finished_campaign(base).path / "report.html",
        "reproduction": _reproduction(base / "reproduction"),
        "cross-check": _cross_check(base / "cross-check"),
        "overhead": _overhead(base / "overhead"),
        "radio": _radio(base / "radio"),
        "radio-nr": _radio(base / "radio-nr", "nr"),
        "validation": _validation(base / "validation"),
        "session": write_session_report(session),
        **_flights(base),
    }
    return pages | {"index": write_index(base)[0]}


def _broken(folder: Path) -> Path:
    """A run that broke every kind of check, each with something to say about where."""
    make_run(folder, uavs=3, lte={"interference_margin_db": 20})
    checks = [
        {"check": "injector_lateness_s", "limit": 5e-4, "value": 0.00131, "detail": "slot 70"},
        {"check": "compute_share", "limit": 0.01, "value": 0.0834, "detail": "round 1, UAV 3"},
        {"check": "cpu_others", "limit": 0.02, "value": 0.31, "detail": "python3 (4711), 0.62 of "
         "a core; /usr/lib/jvm/java-17-openjdk-amd64/bin/java (815), 0.11 of a core"},
        {"check": "dropped_frames", "limit": 0, "value": 0.0012, "detail": "uav2, downlink"},
    ]  # fmt: skip
    judged = [check | {"ok": False} for check in checks]
    failure = "round 1: uav3 was lost at 12.3 s: its program ended with status 137"
    write_json(folder / "manifest.json", manifest(valid=False, validity=judged, failure=failure))
    return folder


def _curves() -> pd.DataFrame:
    """Seven curves with intervals."""
    paradigms = [name for name in plots.STYLES if name != "sfl-pp"] + ["sfl-pp"]
    rows = [
        {"x": x, "paradigm": name, "latency_s": 9 - x + number, "latency_ci95_s": 0.1,
         "over_reference": 0.01 * number, "over_reference_ci95": 0.001}
        for x in (1, 2, 3, 4)
        for number, name in enumerate(paradigms)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def _reproduction(folder: Path) -> Path:
    """A figure of seven curves, a wide table, and a finding with much to say."""
    folder.mkdir()
    table = _curves()
    finding = Finding(
        "fig4", "a claim " * 9, "paper's " * 5, "30.1 % " * 4, "it is " * 9, False, 0.1, "note " * 9
    )
    wide = pd.DataFrame({f"column_of_name_{k}": [1.23456789] * 3 for k in range(9)})
    section = Section(
        "fig4",
        "Latency over u",
        [finding],
        wide,
        {"fig4": partial(plots.comparison, table, "Split point u", "sfl-pp")},
        "What one must know. " * 4,
        comparison_charts("fig4", table, "Split point u"),
        gantts_of(list(read_run(folder.with_name("a")).measured)[:1]),
    )
    Reproduction([section], "5 rounds, 2 seeds").write(folder)
    return folder / "report.html"


def _cross_check(folder: Path) -> Path:
    """Executions of many UAVs with every part of the page, and an emulation that is not valid."""
    predicted = read_run(folder.with_name("a")).predicted
    measured = read_run(folder.with_name("a")).measured
    timelines = dict.fromkeys((PAYLOAD, WIRE, PACKETS), predicted) | {KERNEL: measured}
    check = CrossCheck(
        closed_forms=[ClosedForm("hatted τ2, a lower bound of τ2", 12.345678, 12.345678)],
        timelines=timelines,
        delay_s=0.0,
        complaints=["transfer_error: 0.0442, at most 0.03 (worst 1.4: SG of client 4, round 0)"],
        by_delay=[(0.0, predicted), (0.02, measured)],
        radio="Shannon's rates, FDMA",
    )
    cross_check_page.write(check, read_run(folder.with_name("a")).scenario, folder)
    return folder / "cross-check.html"


def overhead_outcome(value: str, **changes: Any) -> Outcome:
    """An outcome with some bytes of each purpose and each part of the latency, but QUIC's."""
    up = dict.fromkeys(BYTES, 12_345.0) | {"payload_bytes": 9e6, "quic_bytes": 0.0}
    parts = dict.fromkeys(PARTS, 0.0123) | {"payload": 3.0, "computing": 2.0, "quic": 0.0}
    made = Outcome(
        value=value,
        up_bytes=up,
        down_bytes=up,
        parts_s=parts,
        predicted_s=5.0,
        predicted_wire_s=5.1,
        measured_s=sum(parts.values()),
        valid=True,
        complaints=[],
    )
    return replace(made, **changes)


def _overhead(folder: Path) -> Path:
    """A sweep over two values, one of which is not valid."""
    failed = overhead_outcome("per-transfer", valid=False, complaints=["cpu_others: 0.9"])
    outcomes = [overhead_outcome("kept"), failed]
    scenario = read_run(folder.with_name("a")).scenario
    return overhead_page.write(folder, "emulation.connection", outcomes, scenario)


def _radio(folder: Path, access: str = "lte") -> Path:
    """All statements with all radios, and tables of numbers that are as long as can be."""
    folder.mkdir()
    names = list(radio_figures.radios(-114, access))
    judged = [
        radio_figures.Judged(statement, {name: -123.4567 + 70 * k for k, name in enumerate(names)})
        for statement in radio_figures.STATEMENTS
    ]
    facts = pd.DataFrame(
        [{"radio": r} | dict.fromkeys(list(radio_figures.FACTS)[1:], 1234.5678) for r in names]
    )
    savings = {"x_label": "Split point u", "ticks": range(1, 9)}
    charts = comparison_charts("fig4-shannon", _curves(), "Split point u")
    section = {
        "name": "fig4",
        "title": "Latency over u",
        "charts": {"shannon": charts},
        "timelines": [],
        "radios": ["shannon", access],
        "judged": judged,
        "savings": savings | {"rows": {name: [-1234.5] * 8 for name in names}},
    }
    made = radio_figures.Verdicts(judged, facts, "5 rounds, 2 seeds")
    radio_figures.write_page(folder, made, [section])
    return folder / "report.html"


def _validation(folder: Path) -> Path:
    """A bound that does not hold everywhere, with its counterexample."""
    keys = {
        "workload.split": {"integers": [1, 4]},
        "radio.downlink_bandwidth_hz": {"log_uniform": [1e6, 1.6e7]},
        "uavs.compute_flops": [1e12, {"log_uniform": [1e11, 1e13]}],
    }
    asked = Request(small(), "tau2", Space.model_validate({"keys": keys}), samples=32, packets=0)
    write(study.validate(asked, folder, cluster=Cluster(workers=0)), folder)
    return folder / "validation.html"


def _flights(base: Path) -> dict[str, Path]:
    """The fit of two flights, a refused model included, and a forecast with what was measured."""
    fit = small_fit()
    refused = {"uma-av": "heights from 22.5 to 300 m; the flight goes down to 10.2 m " * 2}
    made, flight = small_forecast()
    pages = {
        "fit": fit_page(replace(fit, ranking=replace(fit.ranking, refused=refused))),
        "forecast": forecast_page(
            made.model_copy(update={"reveal": revealed(made, flight)}), flight
        ),
    }
    for name, page in pages.items():
        (base / f"{name}.html").write_text(page, encoding="utf-8")
    return {name: base / f"{name}.html" for name in pages}


@contextmanager
def shown_live(kind: str, page: Page, width: int, *, dark: bool = False) -> Iterator[None]:
    """A live page of `LIVE` in the browser while the context lasts, with something on it."""
    heard = _Heard()
    logger = logging.getLogger()
    logger.addHandler(heard)
    level = logger.level
    logger.setLevel("INFO")
    try:
        with _LIVE[kind](page, heard, width, dark):
            yield
    finally:
        page.show("about:blank")
        logger.removeHandler(heard)
        logger.setLevel(level)


class _Heard(logging.Handler):
    """Hears the address that a live view logs."""

    address = ""

    def emit(self, record: logging.LogRecord) -> None:
        if found := re.search(r"http://\S+", record.getMessage()):
            self.address = found[0]


@contextmanager
def _run(page: Page, heard: _Heard, width: int, dark: bool) -> Iterator[None]:
    scenario = load(ROOT / "scenarios" / "quickstart.yaml", ["rounds=1"])
    with serve(scenario) as live:
        steps = [(k, 1, 0, 0.0, 0.1 * k, 9) for k in (1, 2, 3)]
        steps += [(k, 1, 6, 5.0, 5.5, 9) for k in (1, 2, 3)]
        round_ = Round(0, "cpsfl", 2, 0.0, 5.5, np.ones(3), 9.5, np.array(steps, dtype=SPAN))
        rates = np.array([[1e6, 2e6], [3e6, 4e6], [5e6, 0.0]])
        position = np.arange(18.0).reshape(3, 2, 3) * 40
        clock = EmulatedClock(time.monotonic_ns(), 0.0, 1.0)
        live.begin(round_, clock, 0, rates, rates, position)
        page.size(width, dark=dark)
        page.show(heard.address)
        page.wait(lambda: page.js("state.phase === 'running'"), 30)
        page.settle()
        yield


@contextmanager
def _session(page: Page, heard: _Heard, width: int, dark: bool) -> Iterator[None]:
    recorder: Any = SimpleNamespace(watcher=None)
    session: Any = SimpleNamespace(
        scenario=validate(TREE, "small"),
        recorder=recorder,
        options=SimpleNamespace(downlink="shared"),
        notes=[],
        folder=Path("session"),
        programs=[],
    )
    with watched(session):
        for look in range(20):
            offered = np.full((10, 3, 2), 1e5 + 1e3 * look)
            carried = np.full((10, 3, 2), 10_000 * (look % 5))
            recorder.watcher(10 * look, offered, carried, 17 * carried)
        page.size(width, dark=dark)
        page.show(heard.address)
        page.wait(lambda: page.js("had") == 20)
        page.settle()
        yield


_LIVE = {"live": _run, "live-session": _session}


def print_out(page: Page, path: Path) -> None:
    """The page that is shown, as a PDF on A4."""
    made = page.call("Page.printToPDF", preferCSSPageSize=True, paperWidth=8.27, paperHeight=11.69)
    path.write_bytes(base64.b64decode(made["data"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE", help="others than these")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as profile, chromium(Path(profile)) as page:
        shown = {path.parent.name: path.resolve() for path in given.pages}
        for kind, path in (shown or written(given.folder / "pages")).items():
            for width in WIDTHS:
                for dark in (False, True):
                    page.open(path, width=width, dark=dark)
                    page.screenshot(given.folder / f"{kind}-{width}{'-dark' * dark}.png")
            print_out(page, given.folder / f"{kind}.pdf")
        for kind in () if shown else LIVE:
            for width in WIDTHS:
                for dark in (False, True):
                    with shown_live(kind, page, width, dark=dark):
                        page.screenshot(given.folder / f"{kind}-{width}{'-dark' * dark}.png")


if __name__ == "__main__":
    main()
