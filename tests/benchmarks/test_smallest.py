# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The smallest case of each benchmark. Where a page has its row, both are equal as printed."""

import json
import os
import re
import socket
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import srsran

from orchestrator.rounds.loop import predict
from orchestrator.scenario.loading import load as scenario_of
from testbed.core import orders

Load = Callable[[str], ModuleType]
Command = Callable[..., str]
Published = Callable[..., list[str]]

ROOT = Path(__file__).parents[2]
NANO = "swin_nano_patch4_window4_64"
SHORT = ("workload.local_iterations=1", "workload.batch_size=1", "workload.split=4")
SHORT_SET = [word for key in SHORT for word in ("--set", key)]


def test_each_benchmark_has_a_test() -> None:
    files = list(Path(__file__).parent.glob("test_*.py"))
    texts = "".join(path.read_text(encoding="utf-8") for path in files)
    tested = {path.stem.removeprefix("test_") for path in files}
    tested |= set(re.findall(r'(?:load|command)\("(\w+)"', texts))
    missing = {path.stem for path in (ROOT / "benchmarks").glob("*.py")} - tested
    assert missing <= {"commands", "many_uavs", "mininet_links", "performance", "ppo"}


# --- what is common ------------------------------------------------------------------------------


def test_a_text_is_written_with_the_revision_between_marks(load: Load, tmp_path: Path) -> None:
    common = load("common")
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- begin: x -->\nold\n<!-- end: x -->\nb\n")
    common.write_table(page, "x", [["head", "k"], ["1", "2"]])
    head = subprocess.run(
        ["git", "-C", ROOT, "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True
    )
    before, _, after = page.read_text().partition(f"Revision: `{head.stdout.strip()}")
    assert before == "a\n<!-- begin: x -->\n\n| head | k |\n| --- | --- |\n| 1 | 2 |\n\n"
    assert after.lstrip("+") == "`\n\n<!-- end: x -->\nb\n"


def test_cpu_seconds_are_those_of_the_process_and_its_children(load: Load) -> None:
    cpu_s = load("common").cpu_s
    began_s, spin = cpu_s(), "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-I", "-S", "-c", spin], check=True)
    assert 0.25 < cpu_s() - began_s < 3


# --- predictions ---------------------------------------------------------------------------------


def test_simpy_gives_the_engine_s_rounds(load: Load) -> None:
    engine = load("engine")
    scenario = scenario_of(engine.SCENARIO, ["workload.local_iterations=2"])
    assert engine.check_equal(scenario, 1) == 2 * 9
    more = engine.grown(scenario, 20)
    assert more.uavs.count == 20
    assert more.radio.uplink_bandwidth_hz == 2 * scenario.radio.uplink_bandwidth_hz


def test_the_engine_is_measured_beside_simpy_over_all_sizes(
    load: Load, command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    engine = load("engine")
    monkeypatch.setattr(engine, "CURVE", (10, 20))
    for name in ("start_up", "command_s"):
        monkeypatch.setattr(engine, name, partial(lambda once, _: once(1), getattr(engine, name)))
    monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None)  # This process has more to do.
    said = command("engine", "--rounds", 3, "--repeats", 1, "--json", tmp_path / "found.json")
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["rounds_compared_with_simpy"] == 5 * 2 * 9
    assert [row["clients"] for row in found["curve"]] == [10, 20]
    ways = {row["way"]: row for row in found["ways"]}
    assert ways["engine, a batch"]["engine_times"] == 1
    assert ways["SimPy"]["engine_times"] > ways["SimPy, transfers in one go"]["engine_times"] > 1
    assert "engine, a batch, nearly-done" in ways
    assert {row["radio"] for row in found["radios"]} == set(engine.ACCESS)
    assert said.count(": met)") + said.count(": MISSED)") == 7


@pytest.mark.parametrize("control", ["cubic", "bbr"])
def test_rounds_over_delays_last_as_published(
    control: str, load: Load, published: Published
) -> None:
    """The page has the kernel's latency, and the engine's relative to it."""
    air = load("air")
    cells = [("tcp", control, 0.0, delay_s) for delay_s in (0.0, 0.005, 0.02)]
    entries = air.played(cells, 1, ["engine"], [], 1, None)
    for row in air.by_cell(cells, entries):
        delay = f"{1e3 * row['delay_s']:g}"
        behind = "`python benchmarks/air.py --control"
        cell = published("measured-radio.md", behind, f"`{control}`", delay)[0]
        kernel_s, off, _ = re.findall(r"[+−]?[\d.]+", cell)
        percent = 100 * (row["engine_s"] / float(kernel_s) - 1)
        assert percent == pytest.approx(float(off.replace("−", "-")), abs=0.09)


def test_rounds_over_the_air_are_kept_and_drawn(command: Command, tmp_path: Path) -> None:
    file, words = tmp_path / "found.json", ["--without", "kernel", "--control", "cubic"]
    words += ["--loss", "0", "--delay-ms", "5", "--seeds", "1", *SHORT_SET]
    said = command("air", *words, "--json", file, "--picture", tmp_path / "picture.svg")
    entries = json.loads(file.read_text())
    latencies = {entry["execution"]: entry["latency_s"] for entry in entries}
    assert latencies["ns-3"] == pytest.approx(latencies["engine"], rel=0.01)
    assert "Delay 5 ms" in (tmp_path / "picture.svg").read_text()
    kept = file.stat().st_mtime_ns
    assert command("air", *words, "--json", file) == said
    assert file.stat().st_mtime_ns == kept


def test_each_order_takes_as_long_as_published(
    load: Load,
    command: Command,
    published: Published,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """By the engine; packets are another test's."""
    benchmark = load("orders")

    def by_engine(scenario: Any, channel: Any, profile: Any, decide: Any) -> Any:
        sizing = benchmark.link_bytes
        made = predict(scenario, channel, profile, sizing=sizing, decide=decide)
        return Namespace(timeline=made)

    monkeypatch.setattr(benchmark, "play", by_engine)
    sets = {"cpsfl": [], "pipesfl": ["--set", "base_station.compute_flops=3e12"]}
    for paradigm, keys in sets.items():
        command("orders", tmp_path, "--no-emulated", "--paradigms", paradigm, *keys)
        rows = json.loads((tmp_path / "orders.json").read_text())
        assert [row["order"] for row in rows] == [*orders.PAPERS, *orders.BUILT_IN]
        for row in rows:
            behind = "benchmarks/orders.py OUT" if paradigm == "cpsfl" else "--paradigms pipesfl"
            cells = published("measured-radio.md", behind, f"`{row['order']}`")
            assert f"{row['latency_s']:.3f}" == cells[0]
            assert (row["packets"], row["packets_out_of_turn"]) == (0, 0)


def test_packets_serve_as_the_engine_does(load: Load, command: Command, tmp_path: Path) -> None:
    words = ["--no-emulated", "--paradigms", "cpsfl", "--orders", "first-come", *SHORT_SET]
    command("orders", tmp_path, *words)
    (row,) = json.loads((tmp_path / "orders.json").read_text())
    assert 0 < abs(row["packets"]) < 1e-3
    alike = load("orders").is_alike
    assert alike(row)
    assert not alike(row | {"packets_out_of_turn": 1})
    assert not alike(row | {"kernel": 3e-4, "kernel_out_of_turn": 0, "valid": True})


def test_packets_are_as_many_as_the_bytes_need(command: Command, tmp_path: Path) -> None:
    """A bulk transfer takes as long as its frames; a round, as the engine says."""
    command("packets", "sfl-pp", *SHORT_SET, "--json", tmp_path / "found.json")
    found = json.loads((tmp_path / "found.json").read_text())
    bulk, round_ = found["bulk transfer"], found["paper, sfl-pp"]
    assert bulk["emulated_s"] == pytest.approx(8 * 30e6 * 1514 / 1448 / 100e6, rel=1e-3)
    scenario = scenario_of(ROOT / "scenarios/paper.yaml", ["paradigm=sfl-pp", "rounds=1", *SHORT])
    from orchestrator.engine.plan import link_bytes
    from orchestrator.scenario.channel import ns3_source
    from orchestrator.scenario.profiles import profile_of

    with ns3_source(scenario) as source:
        due = predict(scenario, source, profile_of(scenario), sizing=link_bytes)
    assert round_["emulated_s"] == pytest.approx(due.rounds[0].latency_s, rel=0.01)


def test_the_planner_decides_better_than_equal_shares(command: Command, tmp_path: Path) -> None:
    command("planner", "--rounds", 2, "--json", tmp_path / "found.json")
    found = json.loads((tmp_path / "found.json").read_text())
    assert found.pop("rounds") == 2
    planner, evolved, equal = (each["objective"] for each in found.values())
    assert planner < evolved <= equal
    assert found["equal shares"]["median_s"] < found["planner"]["median_s"]


def test_no_plan_is_below_its_lower_bound(load: Load) -> None:
    splits = load("splits")
    scenario = scenario_of(splits.PAPER, splits.FLEETS["0.5 to 10 TFLOP/s"])
    one, each = (splits.planned(scenario, name, 1) for name in splits.PLANNERS.values())
    assert each["bound"] <= one["bound"] <= one["objective"]
    assert each["objective"] < one["objective"]
    assert list(one["splits"].values()) == [10]
    assert sum(each["splits"].values()) == 10


@pytest.mark.full
def test_a_model_is_validated_and_tried_at_fresh_points(
    load: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    validate = load("validate")
    words = [
        "--models",
        "tau2",
        "--samples",
        "50",
        "--packets",
        "0",
        "--kernel",
        "0",
        "--fresh",
        "20",
    ]
    monkeypatch.setattr(sys, "argv", ["validate.py", str(tmp_path), *words])
    status = validate.main()
    found = json.loads((tmp_path / "figures.json").read_text())["models"]["tau2"]
    fresh = found["fresh"]
    assert fresh["points"] == 20
    assert 0 < fresh["right_in_region"] <= fresh["in_region"] <= 20
    assert fresh["right_in_region"] <= fresh["right_of_all"]
    assert fresh["share"] == fresh["right_in_region"] / fresh["in_region"]
    assert status == (fresh["share"] < validate.PURE - 0.01)
    assert (tmp_path / "tau2").is_dir()


# --- ns-3's radios -------------------------------------------------------------------------------


def test_an_lte_cell_of_ns3_has_the_published_goodput(load: Load, published: Published) -> None:
    lte = load("lte_radio")
    name = "K = 1, 6 blocks"
    (row,) = lte.rows({name: lte.compared(*lte.CASES[name], 20)})
    assert row[1:] == published("measured-radio.md", "begin: lte_radio", name)


def test_each_scheme_of_ns3_has_the_published_goodput(load: Load, published: Published) -> None:
    """Of the narrowest band, in the uplink."""
    lte = load("lte_radio")
    found = lte.scheme_rows({6: [lte.by_scheme(6, 0)] * 2})[:15]
    for way, cqi, mcs, share in found:
        assert share == published("measured-radio.md", "begin: lte_schemes", way, cqi, mcs)[0]


@pytest.mark.full
def test_handovers_of_ns3_take_as_long_as_published(load: Load, published: Published) -> None:
    found = load("handovers").row(120.0, 3)
    due = published("measured-radio.md", "begin: handovers", "120")
    assert found == f"| 120 | {' | '.join(due)} |"


@pytest.mark.parametrize(
    ("name", "way", "column"), [("K = 3", "down", 1), ("K = 3, hidden", "up", 0)]
)
def test_wifi_of_ns3_has_the_published_goodput(
    name: str, way: str, column: int, load: Load, published: Published
) -> None:
    wifi = load("wifi_radio")
    (row,) = wifi.rows({name: {way: wifi.compared(wifi.CASES[name], way, 5.0)}})
    assert row[1 + column] == published("measured-radio.md", "begin: wifi_radio", name)[column]


def test_senders_cost_ns3_more_than_idle_ones(load: Load) -> None:
    benchmark = load("radio_loop")
    idle, sending = (
        benchmark.cpu_s(benchmark.alone, benchmark.CASES[f"LTE, K = 3, {how}"], 3)
        for how in ("idle", "all send")
    )
    assert 0 < idle < sending
    rows = benchmark.rows({"x": {"session": 1.234, "alone": idle}})
    assert rows == [["x", "1.23", f"{idle:.2f}"]]


def test_flights_are_imported_and_fitted(
    load: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    flights = load("flights")
    (folder := tmp_path / "a").mkdir()
    seconds = np.arange(120)
    position_m = np.stack([100 + 5 * seconds, 0 * seconds, 30 + 0 * seconds], axis=1)
    loss_db = 20 * np.log10(np.hypot(position_m[:, 0], 20) / 100)
    logs = srsran.write_flight(folder, position_m, rsrp_dbm=-60 - loss_db, snr_up_db=25 - loss_db)
    for path, name in zip(
        logs, ("ue_radio_log.txt", "enb_radio_log.txt", "vehicleOut.txt"), strict=True
    ):
        path.rename(folder / name)
    (work := tmp_path / "work").mkdir()
    station = ",".join(map(str, (*srsran.STATION, 10)))
    assert flights.imported(tmp_path, station, work) == ["a"]
    lines = [line for line in flights.fits(["a"], work) if line.startswith("| a |")]
    assert [line.split(" | ")[1] for line in lines[:2]] == ["RSRP", "uplink SNR"]
    assert float(lines[0].split(" | ")[4]) < 3  # The level has no shadowing.


# --- the learning --------------------------------------------------------------------------------


def test_costs_of_the_learning_have_their_baselines(command: Command, tmp_path: Path) -> None:
    words = ["--model", NANO, "--batch", 1, "--repeats", 1, "--waiting", 2]
    file = tmp_path / "found.json"
    command("workload", "steps", "codec", "loopback", "together", *words, "--json", file)
    found = json.loads(file.read_text())
    assert {"peft monolithic", "monolithic", "split"} <= set(found["steps"]["cpu_s"])
    assert all(len(times) == 1 for times in found["steps"]["cpu_s"].values())
    codec = found["codec"]
    size = codec["tensor_mib"] * 2**20
    assert codec["float32 bytes"] == size
    assert size / 2 <= codec["float16 bytes"] < size / 2 + 100
    assert set(found["loopback"]) == {
        f"{name}_mib_per_s" for name in ("gRPC", "plain sendall", "wire")
    }
    assert found["together"]["waiting"] == 2
    assert 0 < found["codec over step"] < 1


@pytest.mark.full
def test_one_backbone_takes_less_memory_than_one_per_client(load: Load) -> None:
    workload = load("workload")
    found = workload.memory(workload.ModelConfig(NANO, classes=100), 2, 12)
    ours, theirs = (
        found[way]["beyond_python_and_torch_mib"] for way in ("one backbone", "K copies")
    )
    assert theirs - ours > 6 * found["backbone_mib"]


def test_each_step_of_a_round_is_timed_alone(load: Load) -> None:
    benchmark = load("whole_round")
    scenario = scenario_of(ROOT / "scenarios/quickstart.yaml", ["workload.split=[1, 2, 2]"])
    found = benchmark.steps_alone(scenario, 1)
    assert set(found) == {1, 2}
    for times in found.values():
        assert list(times) == ["CF", "S", "CB"]
        assert all(len(seconds) == 1 and seconds[0] > 0 for seconds in times.values())
    assert found[2]["CF"] != found[1]["CF"]
    process = benchmark.psutil.Process()
    assert 0.3 < benchmark.pss_bytes(process) / process.memory_info().rss <= 1


def test_the_testbed_and_a_plain_loop_train_the_same_network(
    load: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    learning = load("learning")
    draw = np.random.default_rng(1)
    made = (
        draw.integers(0, 256, (60, 8, 8), np.uint8),
        draw.integers(0, 10, 60),
        np.arange(60) % 10 > 0,
    )
    monkeypatch.setattr(learning, "digits", lambda: made)
    learning.write_package(tmp_path)
    learning.write_samples(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    from testbed.core.registry import installed

    installed.cache_clear()
    counts = {"clients": 4, "per_round": 2, "rounds": 2}
    try:
        for way in ("testbed", "plain"):
            found = learning.WAYS[way](tmp_path, counts)
            assert 0 <= found["accuracy"] <= 1
            first_s, last_s = found["ends_s"]
            assert first_s < last_s
    finally:
        installed.cache_clear()
    from digits_net import Digits

    assert sum(each.numel() for each in Digits(10).parameters()) == 38_570
    with pytest.raises(SystemExit, match="--flower: none does not exist"):
        learning.version_of_flower(Path("none"))


# --- links ---------------------------------------------------------------------------------------


def test_the_sender_of_one_transfer_waits_for_its_moment(load: Load) -> None:
    program = Path(load("one_transfer").__file__)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    words = [sys.executable, "-I", "-S", str(program)]
    with subprocess.Popen([*words, "receive", port, "5000"], stdout=subprocess.PIPE) as receiver:
        import time

        while not Path(f"/proc/{receiver.pid}/net/tcp").read_text().count(f":{int(port):04X} "):
            time.sleep(0.01)
        at_ns = time.monotonic_ns() + 300_000_000
        subprocess.run([*words, "send", "127.0.0.1", port, "5000", str(at_ns)], check=True)
        came_ns = int(receiver.communicate()[0])
    assert at_ns <= came_ns <= time.monotonic_ns()


def test_the_error_of_a_transfer_is_that_of_its_duration(load: Load) -> None:
    error = load("fidelity")._integral_error
    rate_bps = np.array([1e6, 3e6, 1e6])
    assert error(rate_bps, 0.1, 0.2e6, (0.05, 0.15)) == pytest.approx(0)
    assert error(rate_bps, 0.1, 0.2e6, (0.05, 0.16)) == pytest.approx(0.1)


def test_errors_of_a_session_are_those_of_busy_links(load: Load) -> None:
    slots = np.arange(60)
    link = {"slot": slots, "direction": "up", "queued_bytes": 1, "offered_bytes": 1000.0}
    exact = pd.DataFrame(link | {"client": 1, "carried_bytes": 1000.0})
    off = pd.DataFrame(link | {"client": 2, "carried_bytes": np.where(slots % 2, 1010.0, 1000.0)})
    errors = load("sessions").errors
    assert set(errors(exact, "up").values()) == {0}
    found = errors(pd.concat([exact, off]), "up")
    assert found["overall, worst link"] == pytest.approx(0.005)
    assert found["0.1 s, p95"] == pytest.approx(0.01)
    with pytest.raises(SystemExit, match="a uplink had nothing waiting"):
        errors(exact.assign(queued_bytes=0), "up")


@pytest.mark.skipif(os.geteuid() != 0, reason="making namespaces of network and time needs root")
def test_the_clock_of_another_host_is_known_within_its_bound(load: Load, tmp_path: Path) -> None:
    program, file = Path(load("host_clocks").__file__), tmp_path / "found.json"
    words = [sys.executable, program, "idle", "--minutes", "0.02", "--json", file]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text())
    assert found["summary"]["within_bound"] == 1
    assert found["summary"]["seconds"] == len(found["samples"]) == 2
    assert all(sample["bound_ns"] > 0 for sample in found["samples"])


def test_the_emulated_points_of_the_paper_are_played_by_both_clocks(
    load: Load, tmp_path: Path
) -> None:
    clocks = load("clocks")
    from orchestrator.campaigning.folder import distinct
    from orchestrator.campaigning.spec import cells, load_campaign

    for clock in clocks.CLOCKS:
        file = clocks.emulated_only(clocks.FILE, clock, tmp_path)
        points = distinct(cells(load_campaign(file))).values()
        assert len(points) == 12
        assert {(p.mode, p.scenario.emulation.clock) for p in points} == {("run", clock)}
    one: dict[str, Any] = {"study": "s", "place": {}, "latency_s": 2.0, "budget_s": {"rest": 0.5}}
    found = clocks.together(one, one | {"latency_s": 1.6, "budget_s": {"wire": 0.1}})
    assert found["difference"] == pytest.approx(0.25)
    assert found["parts_apart_s"] == {"wire": -0.1, "rest": 0.5}
    assert sum(found["parts_apart_s"].values()) == pytest.approx(found["difference_s"])


# --- virtual time --------------------------------------------------------------------------------


@pytest.mark.guest
def test_a_link_delays_frames_by_as_much_as_asked(load: Load) -> None:
    """In virtual time within 17 ns, as published."""
    frames = load("air_frames")
    late_ns = []
    for links in ({}, {"one_way_delay_s": {"up": 0.005}}):
        (arrived,) = frames.datagrams("virtual", links, 1, 1, frames.FIRST + 50, 100, 4e-4)
        late_ns.append(arrived[arrived[:, 0] >= frames.FIRST, 1])
    assert len(late_ns[0]) == len(late_ns[1]) == 50
    assert np.abs(late_ns[1] - np.median(late_ns[0]) - 5e6).max() <= 17


@pytest.mark.guest
@pytest.mark.full
def test_transfers_take_the_published_time(load: Load, published: Published) -> None:
    row = load("air_transfers").compared("cubic", 25.0, 0.0, 0.0, 2_400_000, 2)
    behind = "`python benchmarks/air_transfers.py`"
    cell = published("measured-radio.md", behind, "`cubic`", "25", "0")[0]
    found = f"{100 * (row['model_s'] / row['kernel_s'] - 1):+.1f} %"
    assert found.replace("-", "−") == cell
    assert load("transfers_in_turn").PAUSE_S > 0


@pytest.mark.guest
def test_messages_arrive_with_their_last_bit_in_virtual_time(load: Load) -> None:
    messages = load("messages")
    found = messages.played("10e6", Namespace(clock="virtual", down=False))
    assert set(found.bytes) == set(messages.SIZES)
    assert found.error_ms.abs().quantile(0.95) < 0.01
    assert load("message_ends").PORT > 1024


@pytest.mark.guest
@pytest.mark.full
def test_busy_links_of_a_session_carry_their_rates(command: Command) -> None:
    said = command("sessions", "up3", "--seconds", 6, "--clock", "virtual")
    found = dict(re.findall(r"([\w. ,]+?) ([\d.e+-]+)(?:;|$)", said.partition(": ")[2].strip()))
    assert float(found["overall, worst link"]) < 1e-4
    assert float(found[" valid"]) == 1


@pytest.mark.guest
def test_accounts_have_the_bytes_of_captures(
    load: Load, command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    virtual = {"tcp": ["emulation.clock=virtual"]}
    monkeypatch.setattr(load("overhead"), "TRANSPORTS", virtual)
    command("overhead", "bytes", "--json", tmp_path / "found.json")
    rows = json.loads((tmp_path / "found.json").read_text())["bytes"]
    assert len(rows) == 3 * 2
    assert all(row["accounts"] > 0 and row["less capture"] == 0 for row in rows)


@pytest.mark.guest
@pytest.mark.full
def test_a_run_in_virtual_time_repeats_elsewhere_within_the_published_error(
    command: Command, published: Published, tmp_path: Path
) -> None:
    file = tmp_path / "found.json"
    command("virtual_time", "quickstart", "--runs", 2, "--hogs", 0, "--json", file)
    one, other = json.loads(file.read_text())["quickstart"]
    assert (one["measured"], one["kept"]) == (other["measured"], other["kept"])
    assert [each["elsewhere"] for each in (one, other)] == [False, True]
    cells = published("measured.md", "## Virtual time", "TCP, all paradigms")
    of_round, of_transfers = (float(cell.split()[0]) for cell in cells)
    assert 100 * one["errors"]["round"] <= of_round
    assert 100 * max(one["errors"][step] for step in ("SM", "CA", "SG", "CM")) <= of_transfers


@pytest.mark.guest
@pytest.mark.full
def test_copies_of_a_template_measure_the_same(load: Load) -> None:
    import orchestrator as tb

    benchmark = load("warm_guests")
    scenario = tb.load("quickstart", benchmark.VIRTUAL)
    own = benchmark.measured(benchmark.in_guest, scenario)
    with benchmark.guests.warm():
        benchmark.measured(benchmark.in_guest, scenario)
        copy = benchmark.measured(benchmark.in_guest, scenario)
    assert copy["measured"] == own["measured"]
    assert 0 < copy["cpu_s"] < own["cpu_s"]


@pytest.mark.guest
def test_a_guest_asks_its_controller_for_each_sleep(load: Load) -> None:
    benchmark = load("coupled_guests")
    kernel = benchmark.find()
    played = {sleeps: benchmark.play(kernel, 1, 0, sleeps)[2] for sleeps in (0, 10)}
    assert played[10] - played[0] >= 2 * 10
    assert benchmark.play(kernel, 1, None, 0)[2] == 0


@pytest.mark.guest
@pytest.mark.full
def test_steered_sessions_repeat_to_the_byte(command: Command) -> None:
    said = command("steered", "--seconds", 2, "--lte-seconds", 0)
    counts = re.findall(r"(\d+) of (\d+) files equal", said)
    assert len(counts) == 3
    assert all(same == of for same, of in counts)
    assert "not valid" not in said
