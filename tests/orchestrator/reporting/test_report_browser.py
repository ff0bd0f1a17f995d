# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The report in a headless Chromium: nothing complains, every control does what it says."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from chromium import PROGRAM, Page, chromium
from synthetic_run import make_run

from orchestrator.reporting.legend import STEP_COLOURS
from orchestrator.reporting.report import write_report

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium is installed")

ALL_FILES = ("rounds", "predicted", "predicted_wire", "measured", "rates", "injector", "budget")
ALL_FILES += ("budget_steps", "learning")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with chromium(tmp_path_factory.mktemp("chromium")) as page:
        yield page


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("three") / "run")


@pytest.fixture(scope="module")
def hundred(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("hundred") / "run", uavs=100, rounds=2)


@pytest.fixture
def report(page: Page, three: Path) -> Page:
    """The report of three UAVs, freshly opened."""
    return opened(page, three)


def opened(page: Page, run_dir: Path, **how: Any) -> Page:
    page.errors.clear()
    page.requests.clear()
    path = write_report(run_dir)
    page.open(path, **how)
    asked = {request for request in page.requests if not request.startswith("data:")}
    assert asked == {path.as_uri()}
    assert page.errors == []
    return page


def choose(page: Page, control: str, value: object) -> None:
    page.js(
        f"byId('{control}').value = {json.dumps(str(value))};"
        f"byId('{control}').dispatchEvent(new Event('change', {{bubbles: true}}))"
    )
    page.settle()
    assert page.js(f"byId('{control}').value") == str(value)


def press(page: Page, control: str) -> None:
    page.js(f"byId('{control}').click()")
    page.settle()


def place(page: Page, chart: str, time_s: float, y: float) -> tuple[float, float]:
    """Where a moment and a height of a chart are in the window, scrolled into view."""
    page.js(f"byId('{chart}').scrollIntoView({{block: 'center'}})")
    page.settle()
    x, top = page.js(
        f"(() => {{ const box = byId('{chart}').getBoundingClientRect();"
        "const at = scale([axis.from, axis.to],"
        "[box.left + GUTTER.left, box.right - GUTTER.right]);"
        f"return [at({time_s}), box.top] }})()"
    )
    return x, top + y


def window_of(page: Page) -> tuple[float, float]:
    from_s, to_s = page.js("[axis.from, axis.to]")
    return from_s, to_s


def tooltip(page: Page) -> str:
    return str(page.js("byId('tip').hidden ? '' : byId('tip').innerText"))


def colours(page: Page, chart: str) -> dict[str, int]:
    """How many pixels of a canvas have each step's colour."""
    counts = page.js(
        f"(() => {{ const c = byId('{chart}').querySelector('canvas');"
        "const p = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; const n = {};"
        "for (let i = 0; i < p.length; i += 4) {"
        "const key = (p[i] << 16) | (p[i + 1] << 8) | p[i + 2]; n[key] = (n[key] ?? 0) + 1; }"
        "return n })()"
    )
    return {step: counts.get(str(int(c[1:], 16)), 0) for step, c in STEP_COLOURS.items()}


def measured(run_dir: Path, **where: object) -> Any:
    table = pd.read_parquet(run_dir / "measured.parquet")
    for column, value in where.items():
        table = table[table[column] == value]
    (row,) = table.itertuples()
    return row


# --- loading -------------------------------------------------------------------------------------


def test_lost_frames_stand_in_their_slot_and_direction(
    page: Page, three: Path, tmp_path: Path
) -> None:
    run_dir = Path(shutil.copytree(three, tmp_path / "run"))
    rows = [(0, 2, 1, "up", 3, 90, 0.1), (0, 2, 1, "down", 1, 90, 0.1), (0, 4, 2, "up", 0, 9, 0.1)]
    names = ["round", "slot", "client", "direction", "lost_frames", "arrived_frames", "asked_loss"]
    pd.DataFrame(rows, columns=names).to_parquet(run_dir / "air_slots.parquet")
    opened(page, run_dir)
    told = []
    for time_s, row in ((0.25, 0), (0.25, 1), (0.35, 0)):
        page.mouse("mouseMoved", *place(page, "lost-frames", time_s, 26 + 34 * row + 17))
        page.settle()
        told.append(tooltip(page).split("\n"))
    assert told[0][0] == "UAV 1"
    assert told[0][1:] == ["frames lost up", "3", "frames lost down", "1", "slot from", "0.20 s"]
    assert told[1:] == [[""], [""]]


@pytest.mark.parametrize("dark", [False, True])
def test_an_lte_cell_shows_schemes_and_resource_blocks(
    page: Page, tmp_path: Path, dark: bool
) -> None:
    run_dir = make_run(tmp_path / "run", rounds=1, lte={})
    rows = [
        *((0, slot, 0.1 * slot, 1, "up", 0.1, 33.0, 28, 1) for slot in (2, 3)),
        (0, 2, 0.2, 1, "down", 0.05, 50.0, 10, 2),
        (0, 2, 0.2, 2, "up", 0.1, 0.0, -1, 1),
    ]
    names = ["round", "slot", "time_s", "client", "direction", "active_s", "resource_blocks"]
    table = pd.DataFrame(rows, columns=[*names, "mcs", "layers"])
    table.to_parquet(run_dir / "resource_blocks.parquet")
    opened(page, run_dir, dark=dark)
    legend = page.js("[...byId('cell-legend').children].map(item => item.innerText)")
    assert legend == ["MCS 28", "MCS 10", "out of range"]
    said = []
    # The middle of a row: uplinks above, downlinks below.
    for time_s, y in ((0.35, -5), (0.25, 5), (0.35, 5)):
        page.mouse("mouseMoved", *place(page, "cell", time_s, 26 + 27 + y))
        page.settle()
        said.append(tooltip(page).split("\n"))
    page.mouse("mouseMoved", *place(page, "cell", 0.25, 26 + 54 + 27 - 2))
    page.settle()
    said.append(tooltip(page).split("\n"))
    for lines, title, scheme, blocks, active, slots in (
        (said[0], "UAV 1, uplink", "MCS 28", "33.0", "100", "2 slots from"),
        (said[1], "UAV 1, downlink", "MCS 10, 2 layers", "50.0", "50", "slot from"),
        (said[3], "UAV 2, uplink", "out of range", "0.00", "100", "slot from"),
    ):
        assert lines[:3] == [title, "scheme", scheme]
        assert lines[3:7] == ["resource blocks, mean", blocks, "active", f"{active} % of the time"]
        assert lines[7:] == [slots, "0.20 s"]
    assert said[2] == [""]
    painted = page.js(
        "(() => { const c = byId('cell').querySelector('canvas');"
        "const p = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
        "const n = {}; for (let i = 0; i < p.length; i += 4) {"
        "const key = `rgb(${p[i]}, ${p[i + 1]}, ${p[i + 2]})`; n[key] = (n[key] ?? 0) + 1; }"
        "return [28, 10, -1].map((mcs) => n[schemeColour(mcs)] ?? 0) })()"
    )
    assert all(painted), painted


@pytest.mark.parametrize("dark", [False, True])
def test_opens_without_a_complaint_and_draws(page: Page, three: Path, dark: bool) -> None:
    opened(page, three, dark=dark)
    back = page.js("getComputedStyle(document.body).backgroundColor")
    assert (sum(json.loads(f"[{back[4:-1]}]")) < 3 * 128) == dark
    drawn = colours(page, "gantt")
    assert all(drawn[step] > 50 for step in STEP_COLOURS), drawn
    for chart in ("plan", "waterfall", "lateness", "learning-loss", "learning-accuracy"):
        assert page.js(f"byId('{chart}').querySelectorAll('svg *').length") > 8, chart
    assert page.js("byId('waterfall').querySelectorAll('rect').length") == 8
    assert page.js("byId('now').tBodies[0].rows.length") == 3


def test_fits_a_laptop_and_a_phone(page: Page, three: Path) -> None:
    for width in (1280, 420):
        opened(page, three, width=width)
        assert page.js("document.documentElement.scrollWidth") <= width


def test_every_control_has_a_name_and_every_chart_a_description(report: Page) -> None:
    nameless = report.js(
        "[...document.querySelectorAll('button, select, input')].filter(c =>"
        "!(c.innerText || c.ariaLabel || (c.labels && c.labels[0]?.innerText))).map(c => c.id)"
    )
    assert nameless == []
    silent = report.js(
        "[...document.querySelectorAll('canvas, svg')].filter(c => !c.getAttribute('aria-label'))"
        ".length"
    )
    assert silent == 0


@pytest.mark.parametrize("dark", [False, True])
def test_text_stands_out_from_its_ground(page: Page, three: Path, dark: bool) -> None:
    opened(page, three, dark=dark)
    pairs = [
        *((ink, ground) for ink in ("ink", "muted") for ground in ("page", "surface", "raised")),
        ("accent", "surface"),
        *((mark, f"{mark}-back") for mark in ("good", "bad", "unsure")),
        *((f"ring-{ring}", "surface") for ring in (1, 2, 3, 4)),
    ]

    def luminance(name: str) -> float:
        red, green, blue = json.loads(f"[{page.js(f'colour({name!r})')[4:-1]}]")
        linear = [
            c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4
            for c in (red / 255, green / 255, blue / 255)
        ]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for ink, ground in pairs:
        low, high = sorted((luminance(ink), luminance(ground)))
        assert (high + 0.05) / (low + 0.05) >= 4.5, (ink, ground)


def test_hostile_names_do_nothing(page: Page, three: Path, tmp_path: Path) -> None:
    run_dir = Path(shutil.copytree(three, tmp_path / "run"))
    name = "</script><img src=x onerror='window.hacked=1'><script>window.hacked=2</script>"
    tree = json.loads((run_dir / "scenario.json").read_text()) | {"name": name}
    (run_dir / "scenario.json").write_text(json.dumps(tree))
    learning = pd.read_parquet(run_dir / "learning.parquet").assign(paradigm=name)
    learning.to_parquet(run_dir / "learning.parquet")
    opened(page, run_dir)
    assert page.js("window.hacked") is None
    assert name in page.js("document.querySelector('h1').innerText")


def test_policy_stops_a_script_that_is_not_the_reports(report: Page) -> None:
    report.js(
        "document.body.append(Object.assign(document.createElement('script'),"
        "{textContent: 'window.hacked = 1'}))"
    )
    assert report.js("window.hacked") is None
    assert any("Content Security Policy" in error for error in report.errors)


@pytest.mark.parametrize("name", [*ALL_FILES, "trace"])
def test_without_one_file_the_rest_still_works(
    page: Page, three: Path, tmp_path: Path, name: str
) -> None:
    run_dir = Path(shutil.copytree(three, tmp_path / "run"))
    (run_dir / ("trace.npz" if name == "trace" else f"{name}.parquet")).unlink()
    opened(page, run_dir)
    assert sum(colours(page, "gantt").values()) > 1000
    for control in ("zoom-in", "zoom-reset"):
        press(page, control)
    choose(page, "round", "all")
    assert page.errors == []


def test_with_no_file_but_the_two(page: Page, three: Path, tmp_path: Path) -> None:
    for name in ("manifest.json", "scenario.json"):
        shutil.copy(three / name, tmp_path / name)
    opened(page, tmp_path)
    assert page.js("document.querySelectorAll('.absent').length") >= 8
    assert page.js("document.querySelector('canvas')") is None


# --- timeline ------------------------------------------------------------------------------------


def test_rounds_are_chosen_and_turned(report: Page, three: Path) -> None:
    latest = pd.read_parquet(three / "rounds.parquet").query("kind != 'predicted'")
    assert window_of(report) == pytest.approx(
        (0.0, max(latest[latest["round"] == 0]["latency_s"])), abs=1e-6
    )
    assert report.js("byId('round-before').disabled") is False  # "all" stands before round 0
    press(report, "round-after")
    second = _measured_rounds(three)[1]
    start_s, latency_s = second.start_s, second.latency_s
    from_s, to_s = window_of(report)
    assert from_s == pytest.approx(start_s, abs=1e-6)
    assert to_s >= start_s + latency_s - 1e-6
    assert to_s < start_s + 1.05 * latency_s
    assert report.js("byId('round-after').disabled") is True
    choose(report, "round", "all")
    assert window_of(report)[0] == 0.0
    assert window_of(report)[1] == pytest.approx(start_s + latency_s, rel=0.01)
    assert report.js("byId('round-before').disabled") is True


def _measured_rounds(run_dir: Path) -> list[Any]:
    rounds = pd.read_parquet(run_dir / "rounds.parquet")
    return list(rounds[rounds["kind"] == "measured"].sort_values("round").itertuples())


def test_hovering_a_step_tells_its_figures(report: Page, three: Path) -> None:
    row = measured(three, round=0, client=2, iteration=1, step="CA")
    row_height = report.js("rowHeight()")
    y = report.js("HEAD") + 1.65 * row_height  # the lower band of the second row
    report.mouse("mouseMoved", *place(report, "gantt", (row.start_s + row.end_s) / 2, y))
    text = tooltip(report)
    assert text.startswith("UAV 2 · CA smashed data uplink")
    assert f"{row.start_s:.3f} – {row.end_s:.3f} s ({row.end_s - row.start_s:.4f} s)" in text
    wire = pd.read_parquet(three / "predicted_wire.parquet")
    wire = wire[(wire["round"] == 0) & (wire["client"] == 2) & (wire["iteration"] == 1)]
    (predicted,) = wire[wire["step"] == "CA"].itertuples()
    gap_ms = 1e3 * (row.end_s - row.start_s - predicted.end_s + predicted.start_s)
    assert f"{gap_ms:+.3f} ms".replace("-", "−") in text
    assert f"payload\n{row.bytes:,} B" in text
    assert f"on the link\n{predicted.bytes:,} B" in text
    assert predicted.bytes > row.bytes
    assert f"{8e-6 * predicted.bytes / (row.end_s - row.start_s):.2f} Mb/s" in text
    x, top = place(report, "gantt", row.end_s, 3)
    report.mouse("mouseMoved", x, top)
    assert tooltip(report) == ""


def test_hovering_a_wait_tells_for_what(report: Page, three: Path) -> None:
    before = measured(three, round=0, client=2, iteration=1, step="S")
    after = measured(three, round=0, client=2, iteration=1, step="SG")
    assert after.start_s - before.end_s > 0.05
    y = report.js("HEAD + 1.65 * rowHeight()")
    report.mouse("mouseMoved", *place(report, "gantt", (before.end_s + after.start_s) / 2, y))
    text = tooltip(report)
    assert "UAV 2 waits" in text
    assert "SG gradient downlink" in text
    assert f"({after.start_s - before.end_s:.4f} s)" in text


def test_zoom_and_move_by_button_wheel_key_and_drag(report: Page) -> None:
    whole = window_of(report)
    press(report, "zoom-in")
    assert window_of(report)[1] - window_of(report)[0] == pytest.approx(0.6 * whole[1])
    press(report, "zoom-out")
    assert window_of(report) == pytest.approx(whole)

    x, y = place(report, "gantt", whole[1] / 4, 60)
    report.mouse("mouseWheel", x, y, deltaX=0, deltaY=-400, modifiers=2)
    report.wait(lambda: window_of(report) != whole)
    from_s, to_s = window_of(report)
    assert from_s < whole[1] / 4 < to_s
    assert (whole[1] / 4 - from_s) / (to_s - from_s) == pytest.approx(0.25, abs=0.01)

    report.mouse("mousePressed", x, y, button="left", clickCount=1)
    report.mouse("mouseMoved", x - 50, y, button="left", buttons=1)
    report.mouse("mouseReleased", x - 50, y, button="left", clickCount=1)
    moved = window_of(report)
    assert moved[0] > from_s
    assert moved[1] - moved[0] == pytest.approx(to_s - from_s)
    assert report.js("chosen.uav") is None  # a drag picks nothing

    report.js("byId('gantt').querySelector('canvas').focus()")
    report.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowLeft")
    report.settle()
    assert window_of(report)[0] < moved[0]
    report.call("Input.dispatchKeyEvent", type="keyDown", key="0")
    report.settle()
    assert window_of(report) == pytest.approx(whole)


def test_wheel_alone_scrolls_the_page(report: Page) -> None:
    whole = window_of(report)
    x, y = place(report, "gantt", whole[1] / 2, 60)
    before = report.js("scrollY")
    report.mouse("mouseWheel", x, y, deltaX=0, deltaY=200)
    report.wait(lambda: report.js("scrollY") > before)
    assert window_of(report) == whole


def test_zoom_shows_fewer_steps(report: Page, three: Path) -> None:
    row = measured(three, round=0, client=1, iteration=2, step="SG")
    report.js(f"axis.show({row.start_s}, {row.end_s})")
    report.settle()
    drawn = colours(report, "gantt")
    assert drawn["SG"] > 1000
    assert drawn["SM"] == drawn["CM"] == 0


def test_prediction_is_chosen(report: Page, three: Path) -> None:
    end_s = report.js("finish(chosen.prediction, 3, 0)")
    choose(report, "prediction", "predicted")
    payload = pd.read_parquet(three / "predicted.parquet")
    payload = payload[(payload["round"] == 0) & (payload["client"] == 3)]
    assert report.js("finish(chosen.prediction, 3, 0)") == pytest.approx(
        payload["end_s"].max(), abs=1e-6
    )
    assert end_s > payload["end_s"].max() + 0.1


def test_predictions_begin_where_the_measured_round_did(report: Page, three: Path) -> None:
    start_s = _measured_rounds(three)[1].start_s
    firsts = report.js(
        "['measured', 'predicted_wire'].map(kind => spans[kind][1].find(s => s.round === 1).start)"
    )
    assert firsts[1] == pytest.approx(start_s, abs=1e-6)
    own = pd.read_parquet(three / "predicted_wire.parquet").query("round == 1")["start_s"].min()
    assert abs(own - start_s) > 1e-4


def test_a_uav_is_chosen_everywhere_at_once(report: Page) -> None:
    y = report.js("HEAD + 1.5 * rowHeight()")
    report.click(*place(report, "gantt", 1.0, y))
    assert report.js("chosen.uav") == 2
    assert report.js("byId('now').querySelector('.chosen th').innerText") == "2"
    pressed = "[...document.querySelectorAll('#plan [aria-pressed=true]')].map(g => g.ariaLabel)"
    assert report.js(pressed) == ["UAV 2"]
    report.js("document.querySelectorAll('#plan .uav')[2].dispatchEvent(new Event('click'))")
    assert report.js("chosen.uav") == 3
    report.js("document.querySelectorAll('#plan .uav')[2].dispatchEvent(new Event('click'))")
    assert report.js("chosen.uav") is None


def test_hovering_a_rate_tells_it(report: Page, three: Path) -> None:
    rates = pd.read_parquet(three / "rates.parquet").query("client == 1 and slot == 20")
    (row,) = rates.itertuples()
    height = report.js(
        "(() => { const [low, high] = data.rates.uplink_kbps.flat().reduce((b, r) =>"
        "[Math.min(b[0], r), Math.max(b[1], r)], [Infinity, 0]);"
        "const floor = low > 0.4 * high ? low - 0.15 * (high - low) : 0;"
        f"return scale([floor, high + 0.06 * (high - floor)], [168, 28])({row.uplink_bps / 1e3})"
        "})()"
    )
    report.mouse("mouseMoved", *place(report, "uplink", row.time_s + 0.05, height))
    text = tooltip(report)
    assert text.startswith("UAV 1")
    assert f"{row.uplink_bps / 1e6:.3f} Mb/s" in text
    assert f"{row.time_s:.2f} s" in text


# --- map -----------------------------------------------------------------------------------------


def test_slider_moves_clock_uavs_and_table(report: Page, three: Path) -> None:
    spots = "[...document.querySelectorAll('#plan .uav circle')].map(c => +c.getAttribute('cx'))"
    before = report.js(spots)
    report.js("byId('time').value = 500; byId('time').dispatchEvent(new Event('input'))")
    report.settle()
    from_s, to_s = window_of(report)
    time_s = (from_s + to_s) / 2
    assert report.js("byId('clock').innerText") == f"{time_s:.2f} s"
    assert report.js(spots) != before
    rates = pd.read_parquet(three / "rates.parquet").query("client == 1")
    (uplink,) = rates[rates["slot"] == int(time_s / 0.1)]["uplink_bps"]
    spans = pd.read_parquet(three / "measured.parquet").query("client == 1")
    now = spans[(spans["start_s"] <= time_s) & (spans["end_s"] > time_s)]["step"].tolist()
    cells = report.js("[...byId('now').tBodies[0].rows[0].cells].map(c => c.innerText.trim())")
    assert cells[2] == f"{uplink / 1e6:.1f}"
    assert cells[4] == (now[0] if now else "–")
    assert report.js("axis.cursor") == pytest.approx(time_s)


def test_hovering_the_timeline_moves_the_map(report: Page) -> None:
    x, y = place(report, "gantt", 3.0, 60)
    report.mouse("mouseMoved", x, y)
    assert report.js("byId('clock').innerText") == "3.00 s"
    shown = report.js("byId('uplink').querySelector('.cursor').hidden")
    assert shown is False


def test_play_runs_and_pauses(report: Page) -> None:
    press(report, "play")
    assert "Pause" in report.js("byId('play').innerText")
    report.wait(lambda: float(report.js("byId('clock').innerText").split()[0]) > 0.05)
    press(report, "play")
    stopped = report.js("byId('clock').innerText")
    report.settle()
    assert report.js("byId('clock').innerText") == stopped


def test_view_closes_in_on_one_path(report: Page) -> None:
    whole = report.js("byId('plan').firstChild.getAttribute('viewBox').split(' ').map(Number)")
    choose(report, "view", 3)
    close = report.js("byId('plan').firstChild.getAttribute('viewBox').split(' ').map(Number)")
    assert close[3] < whole[3] / 4
    x, y = report.js(
        "(c => [+c.getAttribute('cx'), +c.getAttribute('cy')])"
        "(document.querySelectorAll('#plan .uav circle')[2])"
    )
    assert close[0] < x < close[0] + close[2]
    assert close[1] < y < close[1] + close[3]


# --- budget, theme, copying ----------------------------------------------------------------------


def test_waterfall_shows_the_round_and_what_framing_leaves(report: Page, three: Path) -> None:
    texts = "[...byId('waterfall').querySelectorAll('text.value')].map(t => t.textContent)"
    choose(report, "budget-round", 1)
    budget = pd.read_parquet(three / "budget.parquet").query("round == 1")
    seconds = budget.set_index("part")["seconds"]
    shown = report.js(texts)
    assert len(shown) == 8  # Links neither delay nor lose.
    assert shown[2] == f"{1e3 * seconds['framing']:+.1f} ms"
    assert shown[-1] == f"{_measured_rounds(three)[1].latency_s:.4f} s"
    choose(report, "budget-axis", "rest")
    rest = report.js(texts)
    assert len(rest) == 6
    heights = "[...byId('waterfall').querySelectorAll('rect')].map(r => +r.getAttribute('height'))"
    _, compute, _, _, rest_height, _ = report.js(heights)
    share = seconds["rest"] / seconds["compute"]
    assert rest_height / compute == pytest.approx(share, rel=0.05)


def test_theme_goes_round_and_the_charts_follow(report: Page) -> None:
    ink = report.js("colour('surface')")
    backs = []
    for name in ("light", "dark", "system"):
        press(report, "theme")
        assert report.js("byId('theme').innerText") == f"Theme: {name}"
        backs.append(report.js("colour('surface')"))
    assert backs[0] == ink == backs[2]
    assert backs[1] != ink


def test_copy_takes_the_command(report: Page) -> None:
    report.js(
        "navigator.clipboard.writeText = text => { window.copied = text; return Promise.resolve() }"
    )
    report.js("document.querySelector('[data-copy^=command]').click()")
    report.wait(lambda: report.js("window.copied"))
    command = "testbed run scenarios/quickstart.yaml --out 'runs/my demo'"
    assert report.js("window.copied") == command


# --- many UAVs -----------------------------------------------------------------------------------


def test_hundred_uavs_are_shown_a_few_at_a_time(page: Page, hundred: Path) -> None:
    opened(page, hundred)
    assert page.js("chosen.rows.length") == 10
    slowest_first = page.js("chosen.rows")
    assert page.js("byId('order').value") == "last"
    low = page.js("byId('gantt').clientHeight")
    choose(page, "amount", 100)
    assert page.js("chosen.rows.length") == 100
    assert page.js("byId('gantt').clientHeight") > 2 * low
    table = pd.read_parquet(hundred / "measured.parquet").query("round == 0")
    ends = table.groupby("client")["end_s"].max()
    assert slowest_first == ends.sort_values(ascending=False).index[:10].tolist()
    choose(page, "order", "number")
    assert page.js("chosen.rows") == list(range(1, 101))
    choose(page, "order", "last")
    choose(page, "amount", 25)
    drawn = page.js("chosen.rows")
    assert drawn == ends.sort_values(ascending=False).index[:25].tolist()
    assert page.errors == []
