# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Closed forms, engine, ns-3's packets and the kernel, side by side."""

import json
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packet_cases import fading, small
from small_scenario import TREE

from ns3_scenarios.trace import ChannelTrace, Replay
from orchestrator.cli.main import app
from orchestrator.cli.printed_tables import cross_check_tables
from orchestrator.records.results import read_results
from orchestrator.reporting.formatting import listed, percent
from orchestrator.studies import cross_check as study
from orchestrator.studies.cross_check import (
    KERNEL,
    PACKETS,
    PAYLOAD,
    WIRE,
    CrossCheck,
    closed_forms,
    cross_check,
)
from orchestrator.studies.cross_check_page import page, verdict
from testbed.core.errors import InputError
from testbed.core.timeline import Round, Timeline


def still(clients: int = 3) -> Replay:
    """A channel that never changes, the same for all."""
    return Replay(ChannelTrace(np.full((clients, 2000), 1e-10), 0.1))


def slower(timeline: Timeline, factor: float) -> Timeline:
    """Every step of it takes so many times as long."""
    rounds: list[Round] = []
    for round_ in timeline:
        spans = round_.spans.copy()
        spans["end_s"] = spans["start_s"] + factor * (spans["end_s"] - spans["start_s"])
        rounds.append(replace(round_, spans=spans, latency_s=factor * round_.latency_s))
    return Timeline(rounds)


@pytest.fixture(scope="module")
def check() -> CrossCheck:
    return cross_check(small(rounds=2), fading(), None, delays_s=[0.0, 0.005, 0.01])


@pytest.mark.parametrize("paradigm", ["sfl-pp", "cpsfl-no-at"])
def test_closed_forms_are_exact_where_their_assumptions_hold(paradigm: str) -> None:
    scenario = small(paradigm=paradigm, uavs={"tx_power_w": [0.4, 0.4, 0.4]})
    form = closed_forms(scenario, still())[0]
    alone = cross_check(scenario, still(), None).timelines[PAYLOAD].rounds[0]
    assert form.with_adapters_s == pytest.approx(alone.latency_s, rel=1e-9)
    assert form.seconds < form.with_adapters_s


def test_bounds_are_on_their_sides_of_the_engine() -> None:
    scenario = small(paradigm="cpsfl", uavs={"tx_power_w": [0.4, 0.4, 0.4]})
    forms = {form.what: form for form in closed_forms(scenario, still())}
    latency_s = cross_check(scenario, still(), None).timelines[PAYLOAD].rounds[0].latency_s
    assert forms["lower bound, eq. (18)"].seconds < latency_s
    assert latency_s <= forms["upper bound, eq. (13)"].seconds * (1 + 1e-12)


def test_no_closed_form_where_none_holds() -> None:
    assert closed_forms(small(paradigm="sfl-sp"), still()) == []
    decided = small(allocation={"policy": "static"})
    assert closed_forms(decided, still()) == []
    gone = Replay(ChannelTrace(np.array([[0.0, 1e-10], [1e-10, 1e-10], [1e-10, 1e-10]]), 0.1))
    assert closed_forms(small(), gone) == []


def test_ns3_and_the_engine_agree_and_payload_is_less(check: CrossCheck) -> None:
    assert list(check.timelines) == [PAYLOAD, WIRE, PACKETS]
    table = study.latencies(check).set_index("execution")
    assert abs(table.loc[PACKETS, "difference_percent"]) < 0.2
    assert table.loc[WIRE, "difference_ms"] == 0
    assert table.loc[PAYLOAD, "difference_percent"] < -1
    steps = study.steps(check).set_index("step")
    assert steps[PACKETS].to_numpy() == pytest.approx(steps[WIRE].to_numpy(), rel=0.01)
    transfers = study.transfers(check)
    assert set(transfers["execution"]) == {PACKETS}
    assert transfers["max_percent"].max() < 2


def test_transfers_are_held_against_the_kernel_where_it_was_asked(check: CrossCheck) -> None:
    kernel = slower(check.timelines[WIRE], 1.25)
    asked = replace(check, timelines=check.timelines | {KERNEL: kernel})
    transfers = study.transfers(asked).set_index(["execution", "step"])
    assert transfers.loc[WIRE, "mean_percent"].to_numpy() == pytest.approx(-20.0)
    assert transfers.loc[WIRE, "max_percent"].to_numpy() == pytest.approx(20.0)
    assert transfers.loc[(WIRE, "CA"), "transfers"] == 12
    table = study.latencies(asked).set_index("execution")
    assert table.loc[WIRE, "difference_percent"] == pytest.approx(-20.0)


def test_delay_adds_to_every_round(check: CrossCheck) -> None:
    table = study.over_delay(check)
    assert table["delay_ms"].tolist() == [0, 5, 10]
    # At least what the way of the slowest client takes: SM, two times CA and SG, CM.
    assert (table["added_ms"] >= 6 * table["delay_ms"] - 1).all()
    assert table["added_ms"].is_monotonic_increasing


def test_tables_show_all_executions(check: CrossCheck) -> None:
    latency, steps, transfers, sweep = cross_check_tables(check)
    assert latency.row_count == len(check.closed_forms) + 3
    assert (steps.row_count, transfers.row_count, sweep.row_count) == (7, 4, 3)
    assert len(cross_check_tables(replace(check, by_delay=check.by_delay[:1]))) == 3


def test_the_verdict_names_the_largest_difference_and_its_step(check: CrossCheck) -> None:
    agree, largest, single, payload = verdict(check)
    assert agree.startswith("The engine with frames and ns-3's packets agree within 0.")
    of_kind = study.transfers(check).set_index("step")["max_percent"] / 100
    kinds = listed(f"{step} {percent(size, sign=False)}" for step, size in of_kind.items())
    assert single == (
        "Single transfers of ns-3's packets differ from those of the engine with frames by up to: "
        f"{kinds}."
    )
    most = f"{percent(of_kind.max(), sign=False)} ({of_kind.idxmax()}, ns-3's packets)."
    assert agree.endswith(
        f"in the mean latency of a round; single transfers differ by up to {most}"
    )
    assert largest.startswith("The largest difference is that of ns-3's packets from the engine")
    assert payload.endswith(" less than with them.")
    kernel = slower(check.timelines[WIRE], 1.25)
    agree, largest, of_frames, of_packets, _ = verdict(
        replace(check, timelines=check.timelines | {KERNEL: kernel})
    )
    assert of_frames.startswith("Single transfers of the engine with frames differ from those of")
    assert of_packets.startswith("Single transfers of ns-3's packets differ from those of the kern")
    assert agree.startswith("The engine with frames, ns-3's packets and the kernel's links agree")
    assert "agree within 25 %" in agree
    assert "from the kernel's links: −20 %" in largest
    assert "“server forward and backward” (S): −" in largest
    only = {PAYLOAD: check.timelines[PAYLOAD], WIRE: kernel, PACKETS: kernel}
    agree, same, _ = verdict(replace(check, timelines=only))
    assert "agree within 0 %" in agree
    assert agree.endswith("single transfers differ by up to 0 % (SM, ns-3's packets).")
    assert same == "All transfers of ns-3's packets take as long."


def test_page_begins_with_what_is_not_valid(check: CrossCheck) -> None:
    timelines = check.timelines | {KERNEL: slower(check.timelines[WIRE], 1.25)}
    failed = replace(check, timelines=timelines, complaints=["cpu_others: 0.9, at most 0.5"])
    html = unescape(page(failed, small(rounds=2)))
    warning, sentence = html.index("cpu_others: 0.9"), html.index(verdict(failed)[0])
    assert warning < sentence < html.index('id="gantts"')
    assert "Differences of transfer durations from the kernel's links" in html
    assert "The emulation is not valid" in html
    assert "The emulation is not valid" not in page(check, small(rounds=2))


def command(*words: str | Path) -> None:
    app(["cross-check", *map(str, words)], standalone_mode=False)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A scenario (YAML reads JSON) and a trace."""
    scenario, trace = tmp_path / "small.yaml", tmp_path / "trace.npz"
    scenario.write_text(json.dumps(TREE))
    fading().trace(4000).save(trace)
    return scenario, trace


def test_command_without_a_kernel(
    files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario, trace = files
    out = tmp_path / "out"
    command(scenario, "--trace", trace, "--no-emulated", "--delay-ms", "0,2", "--out", out)
    printed = capsys.readouterr().out
    assert printed.startswith("radio: Shannon's rates, FDMA\n")
    assert "ns-3's TCP over" not in printed
    said: dict[str, Any] = json.loads((out / "cross-check.json").read_text())
    assert list(said["executions"]) == [PAYLOAD, WIRE, PACKETS]
    assert [row["delay_ms"] for row in said["delay_sweep"]] == [0, 2]
    assert "packets_over" not in said
    assert {path.name for path in out.iterdir()} == {
        *(f"cross-check.{kind}" for kind in ("html", "json", "pdf", "png")),
        *("delay.pdf", "delay.png", "trace.json"),
    }
    assert json.loads((out / "trace.json").read_text())["traceEvents"]


def test_a_cell_that_uavs_share_is_checked_over_ns3_s_lte(
    files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario, trace = files
    result = tmp_path / "said.json"
    words = [f"--set=radio.{way}_bandwidth_hz=5e6" for way in ("uplink", "downlink")]
    words += ["--set=radio.access=lte", "--delay-ms=0,20", "--no-emulated"]
    command(scenario, "--trace", trace, *words, "--json", result)
    printed = capsys.readouterr().out.splitlines()
    assert printed[1] == "ns-3 packets: ns-3's TCP over ns-3's LTE"
    said = json.loads(result.read_text())
    assert said["packets_over"] == "ns-3's LTE"
    assert said["delay_sweep"][1]["added_ms"] > 6 * 20
    radios = {each.execution: each.radio for each in read_results(result)}
    assert radios[PACKETS] == radios[WIRE] + "; packets pass ns-3's LTE"


def test_command_with_the_kernel(files: tuple[Path, Path], tmp_path: Path) -> None:
    scenario, trace = files
    result = tmp_path / "said.json"
    command(scenario, "--trace", trace, "--json", result, "--set", "emulation.dilation=5")
    said = json.loads(result.read_text())
    latency = {name: rounds[0]["latency_s"] for name, rounds in said["executions"].items()}
    assert latency[KERNEL] == pytest.approx(latency[PACKETS], rel=0.1)
    assert {row["execution"] for row in said["transfers"]} == {WIRE, PACKETS}


def test_dilation_need_not_be_resolved_where_nothing_is_emulated(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    result = tmp_path / "result.json"
    words = ("--set", "emulation.dilation=auto", "--no-emulated", "--json", result)
    command(files[0], "--trace", files[1], *words)
    found = json.loads(result.read_text())["executions"]
    plain = tmp_path / "plain.json"
    command(files[0], "--trace", files[1], "--no-emulated", "--json", plain)
    assert found == json.loads(plain.read_text())["executions"]


@pytest.mark.parametrize("delay", ["fast", "-1", "1,,2", "nan"])
def test_what_is_no_delay_is_refused(delay: str, files: tuple[Path, Path]) -> None:
    with pytest.raises(InputError, match="--delay-ms"):
        command(files[0], "--no-emulated", "--delay-ms", delay)
