# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a run is judged by, made of a few numbers."""

import os
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from small_scenario import TREE

from orchestrator.emulated.calibration import LEVELS
from orchestrator.emulated.validity import (
    CHECKS,
    PAUSE_S,
    _acknowledgements,
    _in_all,
    _judged,
    calibration_error,
    session_validity,
    to_json,
    validity,
)
from orchestrator.records.emulation import Emulation
from orchestrator.scenario.loading import validate
from orchestrator.scenario.schema import Limits
from testbed.network.shaping import Shape
from testbed.system.machine import Machine


class Run(SimpleNamespace):
    """A run of a few numbers, which shows its records as `Emulation` does."""

    records, place = Emulation.records, Emulation.place
    tables, _of_records, tagged = Emulation.tables, Emulation._of_records, Emulation.tagged


LONG: dict[str, float] = {"due_s": 1e6, "rate_bps": 1e9}
"""A transfer of which a packet is nothing."""


class Record(SimpleNamespace):
    """A record of a base station's round, which need not be complete."""

    edge = 0


class Done(SimpleNamespace):
    """A run of such records."""

    records, place, tables = Emulation.records, Emulation.place, Emulation.tables
    _of_records, tagged = Emulation._of_records, Emulation.tagged


def test_transfers_are_judged_by_their_95th_percentile_and_lateness_by_its_99th() -> None:
    """Of a hundred transfers three are far off; of a hundred rate changes one."""
    errors = np.concatenate([np.full(97, -0.01), np.full(3, 0.5)])
    late_s = np.concatenate([np.full(98, 1e-4), [0.02, 0.02]])
    steps = {"step": "CA", "client": 1, "round": 0, **LONG}
    links = SimpleNamespace(
        exhausted=0,
        uplink=[SimpleNamespace(dropped_frames=0, sent_frames=9, backlog_bytes=0)],
        downlink=[SimpleNamespace(dropped_frames=3, sent_frames=297, backlog_bytes=5)],
    )
    record = Record(
        injector=pd.DataFrame({"lateness_s": late_s}),
        links=links,
        measured=SimpleNamespace(latency_s=10.0, lost=[]),
        budget=SimpleNamespace(seconds={"injection": -0.01, "rest": 0.02, "compute": 0.0}),
        transfers=pd.DataFrame({"error": errors, **steps}),
    )
    tree = TREE | {"uavs": {"tx_power_w": [1]}, "emulation": {"clock": "virtual"}}
    scenario = validate(tree, "one").resolved(1.0)
    done = Done(
        calibration=None,
        rounds=[record],
        scenario=scenario,
        measured=[record.measured],
        overruns_s=[],
    )
    given: Any = done
    values = {check.check: check.value for check in validity(given)}
    assert values["transfer_error"] == pytest.approx(0.01)
    assert values["injector_lateness_s"] == pytest.approx(0.02)
    assert values["dropped_frames"] == pytest.approx(0.01)
    assert values["backlog_bytes"] == 5
    assert values["injection_share"] == pytest.approx(1e-3)
    assert values["rest_share"] == pytest.approx(2e-3)
    record.transfers.loc[:6, "error"] = 0.3
    assert {c.check: c.value for c in validity(given)}["transfer_error"] == pytest.approx(0.3)


def test_limits_are_tighter_in_virtual_time_where_none_were_given() -> None:
    def limits(**keys: Any) -> dict[str, float]:
        emulation = validate(TREE | {"emulation": keys}, "one").emulation
        return {name: check.limit(name, emulation) for name, check in CHECKS.items()}

    real, virtual = limits(), limits(clock="virtual")
    assert real == dict(Limits())
    tighter = {name: check.virtual_limit for name, check in CHECKS.items() if check.virtual_limit}
    assert len(tighter) == 8
    assert virtual == real | tighter
    assert all(virtual[name] <= limit for name, limit in real.items())
    given = limits(clock="virtual", limits={"rest_share": 0.3})
    assert given == virtual | {"rest_share": 0.3}


def test_outages_of_the_direction_of_acknowledgements_are_counted_in_late_transfers() -> None:
    """Client 2's SG takes slots 3 to 6, of which the uplink is out in 4 and 5; its CA is in time,
    and so is client 1's SG, whose uplink is out, too."""
    slots = pd.DataFrame({"slot": np.tile(np.arange(10), 2), "client": np.repeat([1, 2], 10)})
    rates = slots.assign(uplink_bps=1e6 * ~slots["slot"].isin([4, 5]), downlink_bps=1e6)
    transfers = pd.DataFrame(
        {
            "client": [1, 2, 2],
            "step": pd.Categorical(["SG", "SG", "CA"]),
            "start_s": [0.35, 0.35, 0.35],
            "duration_s": 0.3,
            "error": [0.0, 0.3, 0.01],
            "round": 0,
            **LONG,
        }
    )
    record = Record(transfers=transfers, rates=rates)
    scenario = validate(TREE | {"emulation": {"clock": "virtual"}}, "one").resolved(1.0)
    done: Any = Done(scenario=scenario, rounds=[record])
    assert _acknowledgements(done) == (
        "the uplink, which carries the acknowledgements, was out in 2 of 4 slots of late transfers"
    )
    channel: Any = None
    run = Emulation(scenario, channel, rounds=[record])
    judged = {"transfer_error", "broadcast_error"}
    only = {check for name, check in CHECKS.items() if name in judged}
    (check,) = _judged(scenario.emulation, lambda each: each.of_run if each in only else None, run)
    where = "largest error 30 %: SG of client 2, round 0; the uplink, which carries"
    assert check.detail.startswith(where)
    assert {name for name, each in CHECKS.items() if each.cause} == judged | {"rest_share"}
    transfers["error"] = [0.0, 0.0, 0.3]
    assert _acknowledgements(done) == "", "the downlink never was"
    rates["downlink_bps"] *= rates["slot"] != 3
    assert _acknowledgements(done).startswith("the downlink, which carries the ack")


def test_a_link_that_its_acknowledgements_cannot_follow_is_named() -> None:
    """Packets of 42 frames of 1514 B are 963 times as long as an acknowledgement of 66 B."""
    slots = pd.DataFrame({"slot": np.arange(10), "client": 1})
    rates = slots.assign(uplink_bps=1e6, downlink_bps=9e8 + 8e7 * (slots["slot"] == 4))
    transfers = pd.DataFrame(
        {
            "client": [1],
            "step": pd.Categorical(["SG"]),
            "start_s": [0.35],
            "duration_s": 0.3,
            "error": [0.3],
            "round": 0,
            **LONG,
        }
    )

    def cause(clock: str) -> str:
        scenario = validate(TREE | {"emulation": {"clock": clock}}, "one").resolved(1.0)
        record = Record(transfers=transfers, rates=rates)
        done: Any = Done(scenario=scenario, rounds=[record])
        return _acknowledgements(done)

    assert cause("virtual") == (
        "the downlink was up to 980 times as fast as the uplink, which carries the "
        "acknowledgements: TCP fills it up to 963 times"
    )
    assert cause("real") == "", "links save up credit for them"
    rates["downlink_bps"] = 9e8
    assert cause("virtual") == ""


def test_links_counters_begin_anew_with_each_session() -> None:
    assert _in_all([[1, 2]]).tolist() == [1, 2]
    assert _in_all([[1, 2], [3, 4], [1, 4], [2, 5]]).tolist() == [5, 9]


def way(**counts: int) -> SimpleNamespace:
    names = ("dropped", "sent", "lost", "arrived", "late", "unaccounted")
    return SimpleNamespace(**{f"{n}_frames": counts.get(n, 0) for n in names}, backlog_bytes=0)


def machine(**passed: Any) -> Machine:
    usual = {"monotonic_ns": 10**9, "raw_ns": 10**9, "cpu_ticks": 1000, "stolen_ticks": 0}
    return Machine(**usual | {"program_ticks": 0, "own_s": 0.0} | passed)


def round_record(
    uplink: list[SimpleNamespace], downlink: list[SimpleNamespace], **more: Any
) -> SimpleNamespace:
    """A round of 2 s in which nothing was wrong, but for what is given."""
    nothing = {"injection": 0.0, "rest": 0.0, "compute": 0.0}
    transfers = {"error": [0.0], "step": "CA", "client": 1, "round": 0, **LONG}
    return Record(
        injector=pd.DataFrame({"lateness_s": more.get("lateness_s", [0.0])}),
        links=SimpleNamespace(
            exhausted=more.get("exhausted", 0),
            uplink=uplink,
            downlink=downlink,
            clock_error_s=more.get("clock_error_s", 0.0),
        ),
        measured=SimpleNamespace(latency_s=2.0, lost=[]),
        budget=SimpleNamespace(seconds=nothing | more.get("budget", {})),
        transfers=pd.DataFrame(transfers | more.get("transfers", {})),
        machine=more.get("machine", machine()),
        elsewhere=more.get("elsewhere", {}),
    )


def emulation(
    records: list[Any],
    overruns_s: tuple[float, ...] = (),
    lost: Any = (),
    calibration: Any = None,
    others: tuple[str, ...] | list[str] = (),
    **keys: Any,
) -> Any:
    """A run of two UAVs that came to these records."""
    for record in records:
        record.measured.lost = [SimpleNamespace(client=k) for k in lost]
    two = validate(TREE | {"uavs": {"tx_power_w": [1, 0.1]}} | keys, "two")
    return Done(
        calibration=calibration,
        rounds=records,
        scenario=two.resolved(float(two.emulation.dilation)),
        measured=[record.measured for record in records],
        overruns_s=overruns_s,
        others=others,
    )


def observed(records: list[Any], *args: Any, **keys: Any) -> dict[str, tuple[float, str]]:
    done = emulation(records, *args, **keys)
    return {check.check: (check.value, check.detail) for check in validity(done)}


def test_every_check_names_where_it_was_worst() -> None:
    ends = [way(sent=99, dropped=1), way(sent=95, dropped=5)]
    calm = round_record(ends, [way(), way(sent=10)])
    busy = round_record(
        [way(sent=199, dropped=1), way(sent=195, dropped=5)],
        [way(sent=4), way(sent=20)],
        exhausted=3,
        budget={"compute": -0.5, "rest": 0.3, "injection": -0.1},
        transfers={"error": [-0.2], "step": "SG", "client": 2, "round": 1},
        machine=machine(monotonic_ns=10**9 + 5000, stolen_ticks=20, program_ticks=300, own_s=1.0),
    )
    busy.links.downlink[1].backlog_bytes = 77
    found = observed([calm, busy], (-0.2, 0.5, 0.25))
    assert found["exhausted_slots"][0] == 3
    assert found["dropped_frames"] == (pytest.approx(5 / 200), "uplink 2")
    assert found["backlog_bytes"] == (77, "downlink 2")
    assert found["compute_share"] == (
        0.25,
        "round 1; 2 of 3 steps overran, by 0.5 s at most",
    )
    assert found["rest_share"] == (pytest.approx(0.15), "round 1")
    assert found["injection_share"] == (pytest.approx(0.05), "round 1")
    value, where = found["transfer_error"]
    assert value == pytest.approx(0.19)
    assert where == "largest error 20 %: SG of client 2, round 1, too early"
    assert found["cpu_steal"] == (pytest.approx(0.02), "round 1")
    own_ticks = os.sysconf("SC_CLK_TCK")
    assert found["cpu_others"] == (pytest.approx((300 - own_ticks) / 1000), "round 1")
    assert found["clock_drift_ppm"] == (pytest.approx(5.0), "round 1")
    assert "loss_deviation" not in found


def test_whoever_takes_the_cpu_is_named() -> None:
    ends = [way(sent=1), way(sent=1)]
    found = observed([round_record(ends, ends)], others=["java (815) 0.62", "cc1 (9) 0.05"])
    assert found["cpu_others"][1] == "round 0; cores by program: java (815) 0.62, cc1 (9) 0.05"


def test_a_host_that_others_compute_on_is_named() -> None:
    ends = [way(sent=1), way(sent=1)]
    busy = machine(program_ticks=300, stolen_ticks=30)
    quiet = machine(program_ticks=100, monotonic_ns=10**9 + 7000)
    rounds = [
        round_record(ends, ends, machine=machine(program_ticks=200)),
        round_record(ends, ends, elsewhere={"beta": quiet, "gamma": busy}),
    ]
    found = observed(rounds, others=["java (815) 0.62"])  # of this machine
    assert found["cpu_others"] == (pytest.approx(0.3), "host gamma, round 1")
    assert found["cpu_steal"] == (pytest.approx(0.03), "host gamma, round 1")
    assert found["clock_drift_ppm"] == (pytest.approx(7.0), "host beta, round 1")


def test_the_broadcast_is_judged_alone_and_what_lost_uavs_left_waiting_does_not_count() -> None:
    only = round_record(
        [way(sent=1), way(sent=1)],
        [way(), way()],
        transfers={"error": [0.9, 0.1], "step": ["SM", "CA"], "client": 1, "round": 0},
    )
    only.links.uplink[1].backlog_bytes = 500
    only.links.downlink[0].backlog_bytes = 20
    assert observed([only])["transfer_error"][0] == pytest.approx(0.1)
    assert observed([only])["broadcast_error"] == (
        pytest.approx(0.9),
        "largest error 90 %: SM of client 1, round 0",
    )
    # In an asynchronous round, adapters go to one after the other.
    assert "broadcast_error" not in observed([only], paradigm="asfl-ps")
    assert observed([only])["backlog_bytes"] == (500, "uplink 2")
    assert observed([only], lost=[2])["backlog_bytes"] == (20, "downlink 1")
    measured = TREE["workload"] | {"compute_time": "measured", "compute": "real"}
    assert "compute_share" not in observed([only], workload=measured)


def test_frames_that_the_air_lost_are_held_against_what_was_asked() -> None:
    """A tenth of 900 frames: 90, with a standard deviation of 9."""
    clean = way(lost=90, arrived=810, sent=900)
    first = round_record([clean, clean], [way(lost=45, arrived=405), clean])
    second = round_record(
        [way(lost=180, arrived=1620, sent=1800), way(lost=180, arrived=1620, late=18)],
        [way(lost=117, arrived=783), way(lost=180, arrived=1620)],
        budget={"rest": 1.0},
    )
    found = observed([first, second], links={"loss": 0.1})
    assert found["loss_deviation"] == (pytest.approx(3.0), "downlink 1: lost 117 of 900 frames")
    assert found["late_frames"] == (pytest.approx(18 / 1620), "uplink 2"), "counters go on"
    assert "rest_share" not in found, "windows are no fault of ours"
    only = round_record([way(arrived=1, late=1), way()], [way(), way()])
    assert observed([only], links={"loss": 0.1})["late_frames"] == (1, "uplink 1")
    assert "injection_share" in found


def of_one(error: float, step: str = "CA", **keys: Any) -> float:
    """What one transfer of 0.1 s at 12 Mb/s, so of 99 frames of 1 ms, comes to."""
    transfers = {"error": [error], "step": step, "due_s": 0.1, "rate_bps": 1514 * 8 / 1e-3}
    only = round_record([way(sent=1)] * 2, [way(sent=1)] * 2, transfers=transfers)
    name = "broadcast_error" if step == "SM" else "transfer_error"
    return observed([only], **keys)[name][0]


def test_a_packet_by_which_a_transfer_ends_early_is_no_error() -> None:
    early = Shape().early_at(1514 * 8 / 1e-3) / 0.1
    assert 0.005 < early < 0.015
    assert of_one(-early) == 0
    assert of_one(-early - 0.03) == pytest.approx(0.03)
    assert of_one(0.03) == pytest.approx(0.03)
    # At a dilation of 4, a frame takes as much of the transfer, and waking up a quarter.
    slower = Shape().early_at(1514 * 2 / 1e-3) / 4 / 0.1
    dilated = {"emulation": {"dilation": 4}}
    assert of_one(-slower - 0.03, **dilated) == pytest.approx(0.03)
    assert of_one(0.5, "SM", **dilated) == pytest.approx(0.5 - PAUSE_S / 4 / 0.1)


def test_in_virtual_time_reads_of_the_clock_are_no_error_and_nothing_is_early() -> None:
    virtual = {"emulation": {"clock": "virtual"}}
    assert of_one(1e-4, **virtual) == pytest.approx(0.0, abs=1e-12), "10 us of 0.1 s"
    assert of_one(0.03, **virtual) == pytest.approx(0.03 - 1e-4)
    assert of_one(-0.005, **virtual) == pytest.approx(0.005)


def test_a_transfer_of_nothing_has_no_rate_and_is_no_error() -> None:
    transfers = {"error": [0.2, np.nan], "rate_bps": [1e9, np.nan]}
    only = round_record([way(sent=1)] * 2, [way(sent=1)] * 2, transfers=transfers)
    assert observed([only])["transfer_error"][0] == pytest.approx(0.2)


def test_by_the_real_clock_the_broadcast_may_pause() -> None:
    assert of_one(0.05, "SM") == pytest.approx(0.05 - PAUSE_S / 0.1)
    assert of_one(PAUSE_S / 0.2, "SM") == 0
    assert of_one(0.05, "SM", emulation={"clock": "virtual"}) == pytest.approx(0.05 - 1e-4)


def test_air_makes_transfers_late_but_never_early() -> None:
    early = Shape().early_at(1514 * 8 / 1e-3) / 0.1
    for keys in ({"loss": 0.1}, {"one_way_delay_s": 0.01}):
        assert of_one(3.0, links=keys) == of_one(-early, links=keys) == 0
        assert of_one(-early - 0.1, links=keys) == pytest.approx(0.1)
    jitter = {"one_way_delay_s": 0.01, "jitter_s": {"up": 0.0, "down": 0.002}}
    assert of_one(-early - 0.05, links=jitter) == 0
    assert of_one(-early - 0.2, links=jitter) == pytest.approx(0.1)
    far = {"one_way_delay_s": {"model": "distance"}}
    with pytest.raises(KeyError):
        of_one(-1.0, links=far)


def test_clocks_are_judged_where_there_are_several() -> None:
    ends = [way(sent=1), way(sent=1)]
    apart = round_record(ends, ends, clock_error_s=2e-4)
    further = round_record(ends, ends, clock_error_s=3e-4)
    assert observed([apart, further])["clock_error_s"] == (3e-4, "round 1")
    assert "clock_error_s" not in observed([round_record(ends, ends)])


def test_a_check_may_just_reach_its_limit() -> None:
    only = round_record([way(sent=1), way(sent=1)], [way(), way()], budget={"rest": 0.1})
    for limit, fine in ((0.05, True), (0.049, False)):
        keys = {"emulation": {"limits": {"rest_share": limit}}}
        done = emulation([only], **keys)
        (check,) = (c for c in validity(done) if c.check == "rest_share")
        assert (check.ok, check.value, check.limit) == (fine, 0.05, limit)
        (row,) = (row for row in to_json([check]))
        assert row == {
            "check": "rest_share",
            "limit": limit,
            "value": 0.05,
            "ok": fine,
            "detail": "round 0",
        }


def test_other_programs_are_told_from_our_own() -> None:
    before = Machine(0, 0, 1000, 0, 100, 1.0)
    ticks = os.sysconf("SC_CLK_TCK")
    after = Machine(1, 1, 1000 + 10 * ticks, 0, 100 + 4 * ticks, 1.5)
    passed = after.since(before, nodes_s=1.5)
    assert passed.own_s == pytest.approx(2)
    assert passed.others == pytest.approx(0.2)


SHAPE = Shape()


def calibration(*errors: float, rate_bps: float = 1e8) -> pd.DataFrame:
    """One link's transfers of 0.2 s at its three rates."""
    table = {"direction": "uplink", "client": 1, "level": LEVELS, "rate_bps": rate_bps}
    return pd.DataFrame(table | {"error": errors, "due_s": 0.2})


@pytest.mark.parametrize(
    ("rate_bps", "early_s"),
    [(2.886687e7, 0.000359), (3.891938e6, 0.001705), (2.543755e6, 0.002518)],
)
def test_that_a_transfer_ends_a_packet_early_is_no_error(rate_bps: float, early_s: float) -> None:
    """As seen in virtual time, where nobody is late."""
    frames = SHAPE.packet_frames(rate_bps)
    assert SHAPE.early_at(rate_bps, frames) == pytest.approx(early_s, rel=0.01)
    table = calibration(*[-early_s / 0.2] * 3, rate_bps=rate_bps)
    assert calibration_error(table, SHAPE, 1.0)[0] < 1e-4
    late, _ = calibration_error(table.assign(error=-table["error"] - 0.03), SHAPE, 1.0)
    assert late == pytest.approx(0.03 - 2 * early_s / 0.2, abs=1e-4)


def test_a_link_that_is_wrong_at_one_rate_alone_is_found() -> None:
    worst, where = calibration_error(calibration(0.66, 0.001, 0.002), SHAPE, 1.0)
    assert worst == pytest.approx(0.65, abs=2e-3)
    assert where.startswith("uplink 1 at its lowest rate")


def test_a_pause_of_this_machine_is_no_fault_of_a_link() -> None:
    table = calibration(0.01, 0.005, 0.006)
    worst, _ = calibration_error(table, SHAPE, 1.0)
    assert worst == pytest.approx(0.006, abs=2e-3)  # the median: 2 ms of 0.2 s explain the 0.01
    slower, _ = calibration_error(table, SHAPE, 10.0)
    assert slower == pytest.approx(0.009, abs=1e-3)  # in emulated time the pause was 0.2 ms


def test_the_worst_link_is_named_and_the_rate_at_which_it_was_worst() -> None:
    links = [
        calibration(*errors).assign(direction=way, client=client)
        for way, client, errors in (
            ("uplink", 1, (0.01, -0.03, 0.03)),
            ("downlink", 2, (0.02, -0.04, 0.05)),
            ("downlink", 1, (0.01, 0.07, 0.0)),
        )
    ]
    table = pd.concat(links, ignore_index=True)
    early = SHAPE.early_at(1e8, SHAPE.packet_frames(1e8)) / 0.2
    worst, where = calibration_error(table, SHAPE, 1.0)
    assert worst == pytest.approx(0.07 - early - PAUSE_S / 0.2)
    at, whole = f"its {LEVELS[1]} rate", "largest error, tolerance included,"
    assert where == f"downlink 1 at {at}; {whole} 7 %: downlink 1 at {at}"
    # Without the one pause, the median of a link counts, and the rate is told beside it.
    calm = table[table["error"] < 0.06]
    worst, where = calibration_error(calm, SHAPE, 1.0)
    assert worst == pytest.approx(0.04 - early)
    at = f"its {LEVELS[2]} rate"
    assert where == f"downlink 2; {whole} 5 %: downlink 2 at {at}"


def test_a_calibration_stands_with_the_checks() -> None:
    only = round_record([way(sent=1)] * 2, [way(sent=1)] * 2)
    assert "calibration_error" not in observed([only])
    assert "calibration_error" not in observed([only], calibration=calibration(0, 0, 0).iloc[:0])
    table = calibration(0.03, 0.03, 0.03)
    found = observed([only], calibration=table, emulation={"dilation": 4})
    assert found["calibration_error"] == calibration_error(table, SHAPE, 4.0)


def over_ns3(access: str, **emulation: Any) -> dict[str, Any]:
    return {
        "radio": {
            "access": access,
            "uplink_bandwidth_hz": 20e6,
            "downlink_bandwidth_hz": 20e6,
        },
        "emulation": {"air": "ns3"} | emulation,
    }


def test_ns3s_lateness_is_judged_by_a_limit_of_its_own() -> None:
    ends = [way(sent=1), way(sent=1)]
    records = [
        round_record(ends, ends, lateness_s=np.full(90, 2e-4)),
        round_record(ends, ends, lateness_s=np.repeat([2e-4, 6e-3], [8, 2])),
    ]
    found = observed(records, **over_ns3("lte"))
    assert found["radio_lateness_s"][0] == pytest.approx(6e-3)
    assert "injector_lateness_s" not in found
    links = observed(records)
    assert links["injector_lateness_s"][0] == pytest.approx(6e-3)
    assert "radio_lateness_s" not in links
    assert "unaccounted_packets" not in links
    for keys, limit in (
        ({}, 5e-3),
        ({"clock": "virtual"}, 1e-4),
        ({"clock": "virtual", "limits": {"radio_lateness_s": 2e-4}}, 2e-4),
    ):
        checks = {
            each.check: each for each in validity(emulation(records, **over_ns3("lte", **keys)))
        }
        assert checks["radio_lateness_s"].limit == limit
        assert not checks["radio_lateness_s"].ok


@pytest.mark.parametrize("access", ["lte", "wifi"])
def test_the_link_with_most_unaccounted_packets_is_named(access: str) -> None:
    ends = [way(sent=1), way(sent=1)]
    first = round_record([way(sent=1), way(sent=1, unaccounted=2)], ends)
    second = round_record(ends, [way(sent=1), way(sent=1, unaccounted=3)])
    done = emulation([first, second], **over_ns3(access))
    checks = {each.check: each for each in validity(done)}
    check = checks["unaccounted_packets"]
    assert (check.value, check.limit, check.ok, check.detail) == (3, 0, False, "downlink 2")
    calm = emulation([round_record(ends, ends)], **over_ns3(access))
    checks = {each.check: each for each in validity(calm)}
    assert (checks["unaccounted_packets"].value, checks["unaccounted_packets"].ok) == (0, True)


def test_transfers_are_judged_over_lte_and_not_over_wifi() -> None:
    """Nothing says what each UAV of a Wi-Fi cell should have got."""
    transfers = {"error": [0.4, 0.4], "step": ["SM", "CA"]}
    only = round_record([way(sent=1)] * 2, [way(sent=1)] * 2, transfers=transfers)
    over_lte, over_wifi = (observed([only], **over_ns3(access)) for access in ("lte", "wifi"))
    assert over_lte["transfer_error"][0] == pytest.approx(0.4)
    assert over_lte["broadcast_error"][0] == pytest.approx(0.4, abs=0.01)
    assert not {"transfer_error", "broadcast_error"} & set(over_wifi)


@pytest.mark.parametrize("air", ["links", "ns3"])
def test_a_session_is_judged_by_its_radio(air: str) -> None:
    keys = over_ns3("lte", air=air)
    scenario = validate(TREE | {"uavs": {"tx_power_w": [1, 0.1]}} | keys, "two").resolved(1.0)
    ends = [way(), way(unaccounted=4)]
    recorder = SimpleNamespace(
        lateness_s=np.repeat([1e-3, 7e-3], [98, 2]), exhausted=0, busy_errors=np.empty(0)
    )
    session: Any = SimpleNamespace(
        scenario=scenario,
        report=SimpleNamespace(uplink=[way(), way()], downlink=ends, clock_error_s=0.0),
        recorder=recorder,
        reacts=False,
        calibration=None,
        machine=machine(),
    )
    checks = {each.check: each.value for each in session_validity(session)}
    mine, other = ("radio", "injector") if air == "ns3" else ("injector", "radio")
    assert checks[f"{mine}_lateness_s"] == pytest.approx(7e-3)
    assert f"{other}_lateness_s" not in checks
    assert checks.get("unaccounted_packets") == (4 if air == "ns3" else None)
    recorder.lateness_s = np.empty(0)
    assert not [each for each in session_validity(session) if "lateness" in each.check]


def test_a_line_too_fast_for_its_acknowledgements_is_not_judged_before_the_run() -> None:
    """Half an initial window, 5 frames of 1514 B, takes as long as two acknowledgements of 66 B on
    a line that is 57 times as fast."""
    rows = [(1, way, level) for way in ("uplink", "downlink") for level in ("lowest", "middle")]
    table = pd.DataFrame(rows, columns=["client", "direction", "level"])
    table = table.assign(rate_bps=[1e6, 1e6, 56e6, 58e6], due_s=1.0, error=[0.0, 0.0, 0.3, 0.5])
    serial = Shape(serial=True)
    assert calibration_error(table, serial, 1.0)[0] == pytest.approx(0.3)
    assert calibration_error(table, SHAPE, 1.0)[0] > 0.4, "links with credit are all judged"
    fast = table[table["direction"] == "downlink"].assign(rate_bps=1e9)
    both = pd.concat([fast, table[table["direction"] == "uplink"]])
    assert calibration_error(both, serial, 1.0)[0] == 0.0
