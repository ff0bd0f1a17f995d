# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What programs are given, without a network: names, commands, environment, tables of counts."""

import math
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from small_scenario import TREE

from ns3_scenarios.trace import ChannelTrace, RateTrace, Replay
from orchestrator.emulated import programs
from orchestrator.emulated import rate_feed as module
from orchestrator.emulated.rate_feed import SessionRates
from orchestrator.emulated.session_table import Recorder
from orchestrator.engine.plan import fixed_allocation
from orchestrator.scenario.channel import Channel
from orchestrator.scenario.loading import validate
from testbed.core.errors import InputError
from testbed.core.node import BS, uav
from testbed.network.injector import DividedRates, Samples
from testbed.network.shaping import Shape
from testbed.runtimes import docker

SCENARIO = validate(TREE, "small").resolved(1.0)


def test_names_stand_for_nodes() -> None:
    assert programs.nodes_named("uav*", SCENARIO, "x") == [uav(1), uav(2), uav(3)]
    assert programs.nodes_named("bs", SCENARIO, "x") == [BS]
    with pytest.raises(InputError, match=r"^here: 'uav4' is not one of bs, uav1, uav2, uav3"):
        programs.nodes_named("uav4", SCENARIO, "here")


@pytest.mark.parametrize("command", ["nonsense --all", ["nonsense"], "/no/such/thing"])
def test_a_program_that_is_not_there_is_named(command) -> None:
    with pytest.raises(InputError, match=r"^here: there is no program '(nonsense|/no/such/thing)'"):
        programs.argv_of(command, "here")
    with pytest.raises(InputError, match=r"^here: is empty"):
        programs.argv_of(" " if isinstance(command, str) else [], "here")


@pytest.mark.parametrize("command", ["A=1 nonsense", "cd / && ls", "exec ls", "(nonsense)", "$X"])
def test_what_only_a_shell_can_tell_is_left_to_it(command) -> None:
    assert programs.argv_of(command, "here") == ["sh", "-c", command]


def test_nothing_of_the_users_session_leads_out_of_a_node(monkeypatch) -> None:
    for name in ("https_proxy", "XDG_RUNTIME_DIR", "SSH_AUTH_SOCK", "HOME", "MINE"):
        monkeypatch.setenv(name, "theirs")
    found = programs.environment_of(uav(2), Path("/a/home"), 5)
    assert found["MINE"] == "theirs"
    assert {"https_proxy", "XDG_RUNTIME_DIR", "SSH_AUTH_SOCK"}.isdisjoint(found)
    assert (found["HOME"], found["TESTBED_NODE"], found["TESTBED_EPOCH_NS"]) == (
        "/a/home",
        "uav2",
        "5",
    )


def test_a_program_is_shown_what_it_needs_and_what_its_words_name_in_tmp(tmp_path) -> None:
    assert tmp_path.is_relative_to("/tmp")
    (tmp_path / "d").mkdir()
    (file := tmp_path / "f").touch()
    words = (
        f"/ /tmp/../etc/passwd /proc/net/dev /dev/null /usr/bin a={tmp_path}/d /tmp/x; /dev/shm/y"
    )
    needs = programs.shown_to(["true"], {"PATH": f"/tmp:/a/bin:{file}"}, Path("/work"))
    found = programs.shown_to(["sh", "-c", f"ls {words}"], {}, Path("/work"))
    assert {Path("/work"), programs.SOURCES, Path("/a/bin"), file} <= set(needs)
    assert set(found) - set(needs) == {tmp_path / "d", Path("/tmp/x;"), Path("/dev/shm/y")}
    assert programs.shown_to([str(file)], {}, Path("/work"))[-1] == tmp_path


def feed(gain: np.ndarray, slot_s: float = 0.1, **links: Any) -> SessionRates:
    position_m = np.ones((*gain.shape, 3))
    channel = Channel.of(Replay(ChannelTrace(gain, slot_s, position_m)))
    scenario = validate(TREE | {"links": links}, "small").resolved(1.0)
    return SessionRates(scenario, channel, Shape(network=True))


class Injector:
    """Keeps the tables that it is given."""

    def __init__(self) -> None:
        self.given: list[tuple[int, np.ndarray]] = []

    def rates(self, first: int, up: np.ndarray, down: np.ndarray, warn_slots: int) -> None:
        self.given.append((first, up.rows if isinstance(up, DividedRates) else up))

    def impair_slots(self, first: int, *ways: np.ndarray) -> None:
        self.impaired = first, ways


def test_rates_come_on_as_long_as_the_trace_lasts_and_then_the_links_close() -> None:
    injector, source = Injector(), feed(np.full((3, 700), 1e-9))
    source.lead_in(injector, 4)
    first, table = injector.given.pop()
    assert (first, table.shape) == (-4, (3, 604))
    assert not table[:, :4].any()
    assert table[:, 4:].all()
    source.follow(injector, 10.0)
    assert not injector.given
    source.follow(injector, 31.0)
    first, table = injector.given.pop()
    assert (first, table.shape, source.slots) == (600, (3, 101), 700)
    assert table[:, :-1].all()
    assert not table[:, -1].any()
    source.follow(injector, 69.0)
    assert not injector.given


@pytest.mark.parametrize("slots", [1, 2, 299, 599, 600, 601, 899, 1199, 1200, 1201, 1800])
@pytest.mark.parametrize("kind", ["links", "delays", "cell"])
def test_a_session_plays_a_trace_of_any_length_to_its_end(slots: int, kind: str) -> None:
    """Rates are given 600 slots at a time, also where the trace ends with these."""
    gain = np.geomspace(1e-10, 1e-9, 3 * slots).reshape(3, slots)
    delays = {"one_way_delay_s": {"model": "distance"}} if kind == "delays" else {}
    source = lte_feed(gain) if kind == "cell" else feed(gain, **delays)
    injector = Injector()
    source.lead_in(injector, 4)
    for tick in range(slots + 20):
        source.follow(injector, tick / 10)
    assert source.slots == slots
    end = -4
    for first, table in injector.given:
        assert first == end, "no slot is missing, and none is given twice"
        end = first + table.shape[-1]
    assert end == slots + 1
    played = np.concatenate([table for _, table in injector.given], axis=-1)
    assert not played[..., :4].any()
    assert played[..., 4:-1].all()
    assert not played[..., -1].any()


@pytest.mark.parametrize("slots", [1, 599, 600, 601, 1200])
def test_a_repeated_trace_of_any_length_has_no_end(slots: int) -> None:
    source, injector = feed(np.full((3, slots), 1e-9), at_trace_end="repeat"), Injector()
    source.lead_in(injector, 0)
    for tick in range(1300):
        source.follow(injector, tick / 10)
    assert source.slots is None
    assert [first for first, _ in injector.given] == [0, 600, 1200]
    assert all(table.all() and table.shape[-1] == 600 for _, table in injector.given)


@pytest.mark.parametrize(("slot_s", "window"), [(0.001, 60_000), (7, 9), (60, 1), (100, 1)])
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_session_plays_slots_of_any_length_to_its_end(
    slot_s: float, window: int, more: int
) -> None:
    slots = max(1, window + more)
    source, injector = feed(np.full((3, slots), 1e-9), slot_s), Injector()
    source.lead_in(injector, 0)
    for tick in range(int((slots + 2) * slot_s / 5)):
        source.follow(injector, 5.0 * tick)
    assert source.slots == slots
    assert sum(table.shape[-1] for _, table in injector.given) == slots + 1


def test_a_link_that_begins_in_an_outage_is_opened_at_its_lowest_rate_before() -> None:
    injector, source = Injector(), feed(np.array([[0.0, 1e-9], [1e-9, 1e-9], [1e-9, 1e-9]]))
    source.open_up(injector)
    first, table = injector.given.pop()
    assert (first, table.shape) == (0, (3, 1))
    assert table[0] == Shape(network=True).lowest_rate(0.1)
    assert (table[1:] > table[0]).all()


def test_what_an_hour_has_brought_is_not_computed_anew(monkeypatch) -> None:
    computed: list[int] = []

    def impaired_slots(scenario, shares, radio, trace, **keys):
        computed.append(trace.slots)
        return real(scenario, shares, radio, trace, **keys)

    real = module.impaired_slots
    monkeypatch.setattr(module, "impaired_slots", impaired_slots)
    loss = {"model": "snr", "threshold_db": 3, "width_db": 1}
    source = feed(np.geomspace(1e-13, 1e-9, 108_000).reshape(3, 36_000), loss=loss)
    up, _ = source.rates(35_990, 36_000)
    assert up.shape == (3, 10)
    assert computed == [10]


def test_a_trace_may_be_repeated() -> None:
    gain = np.linspace(1e-9, 2e-9, 21).reshape(3, 7)
    source = feed(gain, at_trace_end="repeat")
    up, _ = source.rates(0, 21)
    assert source.slots is None
    assert (up[:, :7] == up[:, 14:]).all()
    assert len(set(up[0, :7])) == 7


def samples(
    first: int,
    sent: list[int],
    queued: list[int],
    late_ns: npt.ArrayLike = 0,
    prompt: npt.ArrayLike = 0,
) -> Samples:
    """Uplink 1 alone has any traffic, and is read so late."""
    count = len(sent)
    prompts = np.zeros((count, 3, 2), np.int64)
    prompts[:, 0, 0] = prompt
    table = np.zeros((2, count, 3, 2), np.int64)
    table[:, :, 0, 0] = sent, queued
    slots = np.arange(first, first + count)
    due = slots * 100_000_000
    read = np.broadcast_to((due + np.asarray(late_ns))[:, None, None], (count, 3, 2))
    return Samples(slots, due, due + 1000, read, *table, np.zeros_like(table[0]), prompts, 0)


def test_what_is_read_late_is_put_where_it_was_carried(tmp_path) -> None:
    recorder = Recorder(feed(np.full((3, 9), 1e-9)), 3, Shape(network=True), tmp_path / "t.parquet")
    # 10,000 bytes in each slot of 100 ms, of which some are read in the slot after theirs.
    late_ns = 1_000_000 * np.array([0, 0, 30, 0, 20])
    recorder.take(samples(-1, [0, 0, 13_000], [0, 9, 9], late_ns[:3]), None)
    recorder.take(samples(2, [20_000, 32_000], [9, 9], late_ns[3:]), None)
    recorder.close()
    table = pd.read_parquet(tmp_path / "t.parquet")
    uplink = table[(table.client == 1) & (table.direction == "up")]
    assert uplink.carried_bytes.tolist() == [10_000, 10_000, 10_000]


def test_what_is_done_when_it_is_read_late_counts_in_the_last_slot(tmp_path) -> None:
    recorder = Recorder(feed(np.full((3, 9), 1e-9)), 3, Shape(network=True), tmp_path / "t.parquet")
    recorder.take(samples(0, [0, 100_000], [0, 0], [0, 5_000_000]), 1)
    recorder.close()
    assert recorder.totals.carried_bytes[0, 0] == 100_000


def test_a_row_says_what_a_link_carried_from_one_boundary_to_the_next(tmp_path) -> None:
    source = feed(np.linspace(1e-9, 2e-9, 300).reshape(3, 100))  # no two slots are alike
    recorder = Recorder(source, 3, Shape(network=True), tmp_path / "t.parquet")
    recorder.take(samples(-1, [0, 0, 100], [0, 50, 60]), None)
    recorder.take(samples(2, [300, 700, 800], [70, 0, 9]), None)
    recorder.take(samples(5, [1000, 1100], [1, 1]), 5)
    recorder.close()
    table = pd.read_parquet(tmp_path / "t.parquet")
    assert list(table.columns) == [
        *("slot", "client", "direction", "rate_bps"),
        *("offered_bytes", "carried_bytes", "queued_bytes"),
    ]
    assert len(table) == 5 * 3 * 2
    uplink = table[(table.client == 1) & (table.direction == "up")]
    assert uplink.carried_bytes.tolist() == [100, 200, 400, 100, 200]
    assert uplink.queued_bytes.tolist() == [60, 70, 0, 9, 1]
    up, down = source.rates(0, 5)
    assert (table.rate_bps.to_numpy().reshape(5, 3, 2) == np.stack([up.T, down.T], axis=2)).all()
    assert len(set(table.rate_bps)) == len(table)
    assert np.allclose(table.offered_bytes, table.rate_bps * 0.1 / 8)
    assert not table[table.client != 1].carried_bytes.any()
    assert recorder.totals.carried_bytes[0].tolist() == [1000, 0]
    # Slots 0 and 1 had something waiting from end to end; so had 4.
    offered = uplink.offered_bytes.tolist()
    assert recorder.busy_errors.tolist() == pytest.approx(
        [100 / offered[0] - 1, 200 / offered[1] - 1, 200 / offered[4] - 1]
    )
    assert math.isclose(recorder.lateness_s[0], 1e-6)


def errors_of(
    folder: Path,
    sent: list[int],
    queued: list[int],
    prompt: list[int],
    shape: Shape | None = None,
    bps: float = 20e6,
    slot_s: float = 0.1,
) -> list[float]:
    """What is said of uplink 1: at 20 Mb/s it may carry 250,000 bytes per slot."""
    rates = {"uplink_bps": np.full((3, 20), bps), "downlink_bps": np.full((3, 20), 1e6)}
    channel = Channel.of(Replay(RateTrace(**rates, slot_s=slot_s)))
    source = SessionRates(SCENARIO, channel, Shape(network=True))
    recorder = Recorder(source, 3, shape or Shape(network=True), folder / "t.parquet")
    total, prompts = np.cumsum([0, *sent]).tolist(), np.cumsum([0, *prompt])
    recorder.take(samples(0, total, queued, prompt=prompts), None)
    recorder.close()
    return [round(error, 3) for error in recorder.busy_errors]


def lte_feed(gain: np.ndarray) -> SessionRates:
    """Of an LTE cell whose three UAVs share both directions."""
    radio = {"access": "lte", "uplink_bandwidth_hz": 5e6, "downlink_bandwidth_hz": 5e6}
    scenario = validate(TREE | {"radio": radio}, "small").resolved(1.0)
    channel = Channel.of(Replay(ChannelTrace(gain, 0.1)))
    return SessionRates(scenario, channel, Shape(network=True, shared_downlink=True))


def test_links_that_share_an_lte_cell_have_rates_by_the_number_of_active_ones() -> None:
    gain = np.full((3, 20), 1e-12)
    gain[2] = [*[1e-12] * 10, *[0.0] * 10]
    source, given = lte_feed(gain), []

    class Keeping:
        def rates(self, first: int, *tables: Any, warn_slots: int) -> None:
            given.append((first, tables))

    radio, shares = source.radio, fixed_allocation(SCENARIO)
    alone, both, all_ = (
        radio.link_rates(shares, gain, in_turns=False, active=n) for n in (1, 2, 3)
    )
    np.testing.assert_array_equal(source.rates(0, 20)[0], alone.uplink)
    source.lead_in(Keeping(), 2)
    ((first, (up, down)),) = given
    assert first == -2
    assert not up.rows[:, :, :2].any()
    for n, rates in enumerate((alone, both, all_)):
        for way, bps in ((up, rates.uplink), (down, rates.gradient)):
            row, part = way.division[n]
            np.testing.assert_allclose(part * way.rows[row][:, 2:22], bps, rtol=1e-12)
    assert source.highest_given_bps[:, 0].tolist() == alone.uplink.max(axis=1).tolist()
    ahead = source.ahead()
    np.testing.assert_array_equal(ahead.uplink, np.hstack([alone.uplink, all_.uplink]))
    np.testing.assert_array_equal(ahead.gradient, np.hstack([alone.gradient, all_.gradient]))


def test_uplinks_that_share_a_cell_must_carry_all_of_it_together(tmp_path: Path) -> None:
    source = lte_feed(np.full((3, 20), 1e-9))
    rates = source.radio.link_rates(
        fixed_allocation(SCENARIO), np.full((3, 2), 1e-9), in_turns=False, active=2
    )
    half = round(rates.uplink[0, 0] * 0.1 / 8)  # 12 of 25 resource blocks
    assert half < 0.485 * source.rates(0, 1)[0][0, 0] * 0.1 / 8
    recorder = Recorder(source, 3, Shape(network=True), tmp_path / "t.parquet")
    made = samples(0, [0, half, 2 * half], [3028, 3028, 3028])
    made.sent_bytes[:, 1, 0] = 0, half, half + half // 2
    recorder.take(made, None)
    recorder.close()
    assert recorder.busy_errors.tolist() == pytest.approx([0.0, -0.25], abs=0.01)
    table = pd.read_parquet(tmp_path / "t.parquet")
    assert np.allclose(table.rate_bps[table.direction == "up"], source.rates(0, 1)[0][0, 0])


def test_a_link_with_a_backlog_must_carry_its_rate(tmp_path: Path) -> None:
    # Two small packets wait, as TCP leaves them there; the second slot carries half.
    assert errors_of(tmp_path, [250_000, 125_000], [3028, 3028, 3028], [0, 2]) == [0, -0.5]
    assert errors_of(tmp_path, [250_000, 260_000], [3028, 3028, 3028], [0, 99]) == [0, 0.04]
    # At low rates the credit is less than a packet: it proves nothing.
    assert errors_of(tmp_path, [300_000], [3028, 3028], [0], bps=4.4e6, slot_s=1) == []


def test_a_sender_that_its_window_limits_leaves_the_link_idle(tmp_path: Path) -> None:
    """It sends 128 kB in each 80 ms: after the pause, 6 packets at once, which are the credit."""
    sent, queued = [167_000, 170_000, 165_000], [60_000, 20_000, 100_000, 40_000]
    assert errors_of(tmp_path, sent, queued, [6, 7, 13]) == []
    assert errors_of(tmp_path, sent, queued, [5, 7, 13]) == [-0.332]


def test_what_waits_at_the_start_must_be_carried(tmp_path: Path) -> None:
    sent, queued = [200_000], [260_000, 60_000]
    assert errors_of(tmp_path, sent, queued, [50]) == [-0.2]
    assert errors_of(tmp_path, sent, [260_000, 0], [50]) == [-0.2]
    codel = Shape(network=True, queue="fq_codel")
    assert errors_of(tmp_path, sent, queued, [50], codel) == [], "it drops what waits"


@pytest.mark.parametrize(
    ("cpus", "refused"), [(0.01, False), (2.0, False), (2.01, True), (4.0, True), (1024.0, True)]
)
def test_more_cpus_than_the_daemons_machine_has_are_refused_by_name(
    cpus, refused, monkeypatch
) -> None:
    monkeypatch.setattr(docker, "cores", lambda: 2)
    tree = TREE | {"emulation": {"runtime": "docker"}, "nodes": {"uav*": {"cpus": cpus}}}
    given = validate(tree, "small")
    words = rf"^nodes\.uav\*\.cpus: must be at most 2, the CPUs of this machine, not {cpus:g}$"
    with pytest.raises(InputError, match=words) if refused else nullcontext():
        programs.check_nodes(given)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("memory_bytes", value) for value in (0, -1, 4096, 4194304, 5000000, 6291455, 1 << 51)),
        *(("processes", value) for value in (0, -1, 15, 1 << 21)),
        *(("cpus", value) for value in (0, 0.009, 1025)),
    ],
)
def test_limits_that_docker_refuses_are_refused_at_loading(key, value) -> None:
    with pytest.raises(InputError, match=rf"nodes\.uav1\.{key}: must be"):
        validate(TREE | {"nodes": {"uav1": {key: value}}}, "small")


@pytest.mark.parametrize(("key", "value"), [("memory_bytes", 6291456), ("processes", 16)])
def test_the_least_that_docker_allows_is_allowed(key, value) -> None:
    given = validate(TREE | {"nodes": {"uav1": {key: value}}}, "small")
    assert getattr(given.programs_of(uav(1)), key) == value


@pytest.mark.parametrize(
    ("nodes", "node", "says"),
    [
        ({"uav1": {"memory_bytes": 1 << 26}}, uav(1), "(nodes.uav1.memory_bytes)"),
        ({"uav*": {"memory_bytes": 1 << 26}}, uav(1), "(nodes.uav*.memory_bytes)"),
        (
            {"uav*": {"memory_bytes": 1 << 26}, "uav2": {"memory_bytes": 1 << 27}},
            uav(2),
            "of 134217728 bytes of memory (nodes.uav2.memory_bytes)",
        ),
        ({"uav*": {"memory_bytes": 1 << 26}, "uav2": {}}, uav(2), "(nodes.uav*.memory_bytes)"),
        ({"bs": {"memory_bytes": 1 << 26}}, BS, "(nodes.bs.memory_bytes)"),
        ({}, BS, "three quarters of this machine's memory; nodes.bs.memory_bytes sets"),
    ],
)
def test_the_key_of_a_memory_limit_is_named(nodes, node, says) -> None:
    assert says in programs.exceeded_memory(validate(TREE | {"nodes": nodes}, "small"), node)
