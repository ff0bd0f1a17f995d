# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The engine's transport model, against the integral and against the kernel's TCP."""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import mean
from typing import Any

import numpy as np
import pytest
from engine_shim import (
    carried,
    delivered,
    given_air,
    grow,
    noted,
    packet_frames,
    recovery,
    senders,
    served_from,
)

from ns3_scenarios.trace import ChannelTrace, RateTrace, Replay
from orchestrator.engine.core_library import Paths, Slots
from orchestrator.engine.plan import link_bytes, payload_bytes
from orchestrator.engine.slot_impairments import BROADCAST, DOWN, UP
from orchestrator.engine.tcp_model import (
    CONTROLS,
    RECEIVER_FRAMES,
    TcpModel,
    given_links,
    tcp_model_of,
)
from orchestrator.rounds.loop import predict
from orchestrator.scenario.loading import validate
from orchestrator.scenario.profiles import profile_of
from testbed.core.clock import FILL_S
from testbed.core.timeline import SG, Round, S, Timeline
from testbed.network.shaping import Shape

SIZE = 2_400_000
ON_LINK = SIZE + math.ceil(SIZE / 1448) * 66
TREE: dict[str, Any] = {
    "uavs": {"tx_power_w": [1.0, 0.4, 0.1]},
    "workload": {"compute": "none", "local_iterations": 2},
}


def transport(delay_s: float, losses: tuple[float, ...] | float, control: str, seed: int = 1):
    process = losses if isinstance(losses, tuple) else (0.0, 1.0, losses, 0.0)
    seeds = np.array([[2 * seed], [2 * seed + 1]], dtype=np.uint64)
    return TcpModel(
        delay_s=np.full((2, 1), delay_s),
        jitter_s=np.zeros((2, 1)),
        losses=np.array([[process]] * 2),
        control=CONTROLS[control],
        frame_bits=1514 * 8.0,
        initial=10.0,
        offered=math.inf if process[2] or process[0] else RECEIVER_FRAMES,
        credit_s=0.0,
        round_trips=0,
        seeds=seeds,
    )


def noted_s(paths: Paths, way: int) -> float:
    """When a note arrives that is sent at 1 s on links of 1 Mb/s."""
    return noted(given_air(np.full((paths.clients, 100), 1e6), 0.1, paths), way, 0, 1.0)


def took_s(
    rate_bps: float,
    made: TcpModel,
    transfers: int = 5,
    on_link: int = ON_LINK,
    pause_s: float = 0.4,
) -> list[float]:
    """Transfers of so many bytes, each so long after the one before."""
    air = given_air(np.full((1, 10_000), rate_bps), 0.1, made.fresh())
    at_s, found = 0.0, []
    for _ in range(transfers):
        start_s = at_s + pause_s
        at_s = delivered(air, UP, 0, on_link, start_s)
        found.append(at_s - start_s)
    return found


def test_without_loss_and_delay_it_is_the_integral() -> None:
    for took in took_s(10e6, transport(0.0, 0.0, "cubic")):
        assert took == pytest.approx(8 * ON_LINK / 10e6, rel=1e-9)


@pytest.mark.parametrize(
    ("control", "rate_bps", "delay_s", "loss", "kernel_s", "within"),
    [
        # Linux 6.12 in virtual time, means of 50 transfers; benchmarks/air_transfers.py.
        ("cubic", 25e6, 0.02, 0.0, 0.843, 0.01),
        ("cubic", 25e6, 0.0, 0.01, 0.814, 0.05),
        # What is lost twice waits for timeouts: they are half of it.
        ("cubic", 25e6, 0.0, 0.05, 1.805, 0.1),
        ("cubic", 25e6, 0.005, 0.001, 0.825, 0.03),
        ("cubic", 25e6, 0.005, 0.01, 1.576, 0.05),
        ("cubic", 25e6, 0.02, 0.001, 1.514, 0.12),
        ("cubic", 25e6, 0.02, 0.01, 5.706, 0.06),
        ("cubic", 25e6, 0.02, 0.05, 17.255, 0.05),
        ("bbr", 25e6, 0.0, 0.05, 0.915, 0.08),
        ("bbr", 25e6, 0.005, 0.01, 0.817, 0.01),
        ("bbr", 25e6, 0.02, 0.05, 0.962, 0.04),
        ("bbr", 25e6, 0.02, 0.01, 0.866, 0.01),
        # Of ten transfers.
        ("cubic", 5e6, 0.02, 0.0, 4.039, 0.01),
        ("cubic", 5e6, 0.0, 0.05, 5.236, 0.06),
        ("cubic", 5e6, 0.005, 0.01, 4.079, 0.02),
        ("cubic", 5e6, 0.02, 0.01, 6.958, 0.12),
        ("bbr", 5e6, 0.02, 0.05, 4.346, 0.03),
    ],
)
def test_transfers_take_what_the_kernels_take(
    control: str, rate_bps: float, delay_s: float, loss: float, kernel_s: float, within: float
) -> None:
    seeds = range(20) if loss else [1]
    found = [
        took for seed in seeds for took in took_s(rate_bps, transport(delay_s, loss, control, seed))
    ]
    assert mean(found) == pytest.approx(kernel_s, rel=within)


def test_windows_of_hundreds_of_frames_meet_their_first_losses_as_the_kernels_do() -> None:
    """9.6 MB on a pipe of 1,080 frames: 4.41 s in the kernel, ± 0.15; the first three of 70 links.

    They take 5.4 s where slow start ends after half a round trip, a receiver with a small buffer
    holds the sender back, and a window shrinks by the flight.
    """
    on_link = 9_633_792 + math.ceil(9_633_792 / 1448) * 66
    made = (transport(0.02, 0.001, "cubic", seed) for seed in range(200))
    found = [mean(took_s(318e6, each, 3, on_link, pause_s=5.0)) for each in made]
    assert mean(found) == pytest.approx(4.41, abs=0.3)


def test_bbr_is_slower_to_fill_a_pipe_of_hundreds_of_frames_where_it_recovers() -> None:
    """9.6 MB on that pipe: 0.455 s in the kernel, ± 0.003; 0.382 if each flight grew its window."""
    on_link = 9_633_792 + math.ceil(9_633_792 / 1448) * 66
    made = (transport(0.02, 0.01, "bbr", seed) for seed in range(100))
    assert mean(mean(took_s(318e6, each, 3, on_link)) for each in made) == pytest.approx(
        0.455, rel=0.07
    )


def test_bbr_looks_for_the_shortest_round_trip_ten_seconds_after_it_has_seen_it() -> None:
    """A pause of 200 ms and a round trip, once: not where it was idle then, nor in later rounds."""
    made = transport(0.02, 0.0, "bbr")

    def beyond_s(made: TcpModel, megabytes: int, transfers: int = 1, pause_s: float = 0.4) -> float:
        """What the last transfer takes beyond its bits, at 8 Mb/s."""
        size = megabytes * 1_000_000
        return took_s(8e6, made, transfers, size, pause_s)[-1] - megabytes

    start_s = beyond_s(made, 4)
    assert start_s < 0.1
    # Four of some 35 frames a round trip are sent meanwhile.
    assert beyond_s(made, 9) == pytest.approx(start_s + 0.24 * (1 - 4 / 35), abs=0.02)
    assert beyond_s(made.of_round(1), 9) == pytest.approx(start_s, abs=0.01)
    assert beyond_s(made, 1, transfers=2, pause_s=9.0) < 0.1


def test_a_loss_shrinks_a_window_once_until_what_had_left_before_is_acknowledged() -> None:
    """The 41st of 100 frames: 42 more leave until three later ones have shown that it is lost."""
    paths = transport(0.02, 0.01, "cubic").fresh()
    sender = senders(paths)[UP, 0]
    sender["window"] = 101.9
    point, early = recovery(paths, UP, 0, 100, 40, 0.0)
    assert (sender["window"], sender["ceiling"], sender["threshold"]) == (70, 101, 70)  # 0.7 of 101
    assert point == 42
    assert sender["window"] + early == pytest.approx(42 + 1 + 70 / 101.9 * 56)
    # A slow start lets go of two frames for each that is acknowledged.
    sender["window"] = 140.0
    assert recovery(paths, UP, 0, 100, 40, 40.0)[0] == 82
    # Where fewer than three follow, those that the frames before let go of show it.
    sender["window"] = 100.0
    assert recovery(paths, UP, 0, 100, 99, 0.0)[0] == 99
    reno = transport(0.02, 0.01, "reno").fresh()
    senders(reno)[UP, 0]["window"] = 101.9
    recovery(reno, UP, 0, 100, 40, 0.0)
    assert senders(reno)[UP, 0]["window"] == 50
    assert recovery(transport(0.02, 0.01, "bbr").fresh(), UP, 0, 100, 40, 0.0) == (0, 0.0)


def test_windows_grow_by_what_is_acknowledged() -> None:
    """By cubic's curve in whole frames, at least as Reno's: 0.53 frames a round trip."""
    paths = transport(0.02, 0.01, "cubic").fresh()
    sender = senders(paths)[UP, 0]
    sender["window"] = 50.0
    recovery(paths, UP, 0, 50, 25, 0.0)
    for trips in range(1, 51):
        grow(paths, UP, 0, int(sender["window"]), 1082.0, 0.04, 4e-5)
        if trips == 25:
            # W(t) = 50 - 0.4 (K - t)^3 a round trip ahead, K = (15 / 0.4)^(1/3) s, Reno's 13.2.
            assert sender["window"] == pytest.approx(35 + 13, abs=0.5)
    assert sender["window"] == pytest.approx(35 + 26, abs=1)
    alone = transport(0.02, 0.01, "cubic").fresh()
    sender = senders(alone)[UP, 0]
    sender["window"], sender["threshold"] = 320.0, math.inf
    grow(alone, UP, 0, 320, 300.0, 0.01, 4e-5)
    # HyStart: acknowledgements that last more than 11 ms, 275 frames of them.
    assert sender["window"] == sender["threshold"] == 320 + 275


def test_bursts_cost_a_window_less_than_single_losses() -> None:
    """As many frames lost, of which those that are lost together shrink the window once."""
    burst = (0.002, 0.2, 0.0, 1.0)
    share = burst[0] / (burst[0] + burst[1])
    seeds = range(20)
    together = mean(took_s(25e6, transport(0.02, burst, "cubic", s))[0] for s in seeds)
    single = mean(took_s(25e6, transport(0.02, share, "cubic", s))[0] for s in seeds)
    assert together < 0.8 * single


def test_a_lost_note_waits_for_a_timeout() -> None:
    found = [noted_s(transport(0.01, 0.3, "cubic", seed).fresh(), UP) for seed in range(300)]
    late = [at_s for at_s in found if at_s > 1.011]
    assert min(found) == pytest.approx(1.01)
    assert min(late) == pytest.approx(1.01 + 0.22)
    assert len(late) / len(found) == pytest.approx(0.3, abs=0.08)


def played(links: dict[str, Any], rounds: int = 2, seed: int = 1, wire: bool = True) -> Timeline:
    scenario = validate({**TREE, "links": links, "seed": seed, "rounds": rounds}, "test")
    gain = np.repeat([[3e-9], [2e-9], [1e-9]], 4000, axis=1)
    source = Replay(ChannelTrace(gain=gain, slot_s=0.1))
    sizing = link_bytes if wire else payload_bytes
    return predict(scenario, source, profile_of(scenario), sizing=sizing)


def test_payload_alone_knows_no_air() -> None:
    lossy = {"one_way_delay_s": 0.02, "loss": 0.01}
    assert played(lossy, wire=False).to_json() == played({}, wire=False).to_json()


def test_delay_lengthens_every_transfer_and_the_same_seed_loses_the_same() -> None:
    plain, late = played({}), played({"one_way_delay_s": 0.02})
    for before, after in zip(plain.rounds, late.rounds, strict=True):
        carried = before.spans["bytes"] > 0
        longer_s = (after.spans["end_s"] - after.spans["start_s"]) - (
            before.spans["end_s"] - before.spans["start_s"]
        )
        assert (longer_s[carried] > 0.0199).all()
        assert after.latency_s > before.latency_s + 8 * 0.02
    lossy = {"one_way_delay_s": 0.01, "loss": 0.01}
    again = [played(lossy).to_json() for _ in range(2)]
    assert again[0] == again[1]
    assert played(lossy, seed=2).to_json() != again[0]
    one, two = played(lossy).rounds
    assert one.latency_s != two.latency_s


def gradients_wait_s(round_: Round) -> list[float]:
    """How long gradients whose turn has come waited for the end of the one before to be known."""
    spans = round_.spans
    computed_s = {(s["client"], s["iteration"]): s["end_s"] for s in spans[spans["step"] == S]}
    gradients = np.sort(spans[spans["step"] == SG], order="start_s")
    return [
        after["start_s"] - before["end_s"]
        for before, after in pairwise(gradients)
        if after["start_s"] > computed_s[after["client"], after["iteration"]] + 1e-9
    ]


def test_the_next_gradient_waits_for_a_receipt_but_for_the_credit() -> None:
    """An idle link saves up 4 ms, and 0.15 of them are the way through programs and kernel."""
    (round_,) = played({"one_way_delay_s": {"up": 0.03, "down": 0.02}}, rounds=1).rounds
    waits_s = gradients_wait_s(round_)
    assert waits_s == [pytest.approx(0.03 - 0.00385)] * len(waits_s) != []


def test_a_scenario_without_air_has_no_model() -> None:
    assert tcp_model_of(validate(TREE, "test")) is None
    assert tcp_model_of(validate({**TREE, "links": {"loss": {"up": 0.0}}}, "test")) is None


OVER_LTE: dict[str, Any] = {**TREE, "radio": {"access": "lte"}, "emulation": {"air": "ns3"}}


def test_over_lte_a_packet_takes_a_grant_and_a_transfer_its_windows() -> None:
    """Packets of 12 kbit at 12 Mb/s take 1 ms each, a round trip 17 ms and one packet."""
    made = tcp_model_of(validate(OVER_LTE, "lte"))
    assert made is not None
    paths = made.fresh(4)
    assert [noted_s(paths, way) for way in (UP, DOWN)] == pytest.approx([1.0125, 1.0045])
    # Windows of 10 packets wait 8 ms, those of 20 none.
    sizes = {100: 8e-3, 10: 0.0, 11: 8e-3}
    for packets, waits_s in sizes.items():
        paths = made.fresh(4)
        served_s = served_from(paths, UP, 0, 1500 * packets, 2.0, 12e6)
        assert served_s == pytest.approx(2.0 + 0.0125 + waits_s)
        assert paths.arrays["windows"][:, UP, 0, 0] == pytest.approx([waits_s, float(waits_s > 0)])
    # The window is now 20; after a pause of 2 timeouts it is 10 again.
    senders(paths)[UP, 0]["idle_from_s"] = 3.0
    assert served_from(paths, UP, 0, 150_000, 3.2, 12e6) == pytest.approx(3.2125)
    assert served_from(paths, UP, 0, 150_000, 5.0, 12e6) == pytest.approx(5.0205)
    assert paths.arrays["windows"][0, UP, 0] == pytest.approx([8e-3, 0.0, 8e-3, 0.0])


@pytest.mark.parametrize("delay_s", [0.0, 0.01])
def test_a_message_that_opens_a_connection_waits_for_its_round_trips(delay_s: float) -> None:
    """At 1 Mb/s: two answers of 528 bits, then 1248 and 880 bits; a receipt follows on the line."""
    lines = {"receipt_bits": 880.0, "opening_bits": 1248.0, "round_trips": 2}
    paths = replace(transport(delay_s, 0.0, "cubic"), impaired=delay_s > 0, **lines).fresh()
    air = given_air(np.full((1, 100), 1e6), 0.1, paths)
    sent_s = 1.0 + 2 * (2 * delay_s + 528e-6) + 2128e-6
    assert noted(air, UP, 0, 1.0, opens=True) == pytest.approx(sent_s + delay_s, abs=1e-12)
    assert noted(air, UP, 0, 1.0) == pytest.approx(sent_s + 880e-6 + delay_s, abs=1e-12)


FRAME_S, EACH_S = 1e-3, 10e-3
"""What a frame of 1514 B takes at 12.112 Mb/s, and its acknowledgement at 52.8 kb/s."""


def on_lines(
    frames: float, back_bps: Sequence[float], *, receipt_bits: float = 880.0
) -> tuple[float, Paths]:
    """When so many frames, each a packet, have arrived over a serial line of 12.112 Mb/s whose
    other direction has these rates, by slot."""
    made = replace(transport(0.0, 0.0, "cubic"), impaired=False, receipt_bits=receipt_bits)
    paths = made.fresh()
    air = given_air([[[12.112e6] * len(back_bps)], [back_bps]], 0.1, paths)
    return delivered(air, UP, 0, round(1514 * frames), 0.0), paths


def test_late_acknowledgements_clock_a_transfer() -> None:
    """Ten frames leave, each second one is acknowledged, and each acknowledgement releases four."""
    slow = [66 * 8 / EACH_S] * 10
    assert on_lines(10, slow)[0] == pytest.approx(10 * FRAME_S)
    assert on_lines(14, slow)[0] == pytest.approx(2 * FRAME_S + EACH_S + 4 * FRAME_S)
    # Of the last frame, only a part is there.
    assert on_lines(13.5, slow)[0] == pytest.approx(2 * FRAME_S + EACH_S + 3.5 * FRAME_S)
    end_s, paths = on_lines(30, slow)
    assert end_s == pytest.approx(2 * FRAME_S + 5 * EACH_S + 4 * FRAME_S)
    queued_s = 2 * FRAME_S + 15 * EACH_S
    assert paths.arrays["free_s"][1, 0] == pytest.approx(queued_s), "the queue is long"
    # What waits behind those acknowledgements: a receipt of 880 bits.
    told_s = noted(given_air(np.full((1, 10), 52.8e3), 0.1, paths), DOWN, 0, end_s)
    assert told_s == pytest.approx(queued_s + 880 / 52.8e3)


def test_acknowledgements_in_time_cost_a_transfer_nothing() -> None:
    assert on_lines(500, [6e6] * 10)[0] == pytest.approx(500 * FRAME_S)
    assert on_lines(500, [52.8e3] * 10, receipt_bits=0.0)[0] == pytest.approx(500 * FRAME_S)


def test_a_transfer_waits_for_the_other_direction_after_an_outage() -> None:
    """The window of ten frames is in flight until the first acknowledgement, 0.1 ms after it."""
    out = [0.0, 0.0, *[5.28e6] * 10]
    assert on_lines(10, out)[0] == pytest.approx(10 * FRAME_S)
    assert on_lines(30, out)[0] == pytest.approx(0.2 + 0.1e-3 + 20 * FRAME_S)
    assert on_lines(30, [0.0] * 12)[0] == math.inf, "there are no acknowledgements"


def acknowledged_s(frames: int, back_s: Sequence[float], begin_s: float) -> float:
    """Time from a transfer's start until all is acknowledged, at 12.112 Mb/s, in packets of several
    frames; a short one has begun the round. `back_s`: time per acknowledgement, by slot of 1 s."""
    made = replace(transport(0.0, 0.0, "cubic"), impaired=False, receipt_bits=880.0)
    paths = replace(made, packet_s=1e-9, queue_frames=168).fresh()
    back_bps = [528 / each for each in back_s]
    air = given_air([[back_bps], [[12.112e6] * len(back_s)]], 1.0, paths)
    delivered(air, DOWN, 0, 100, 0.0)
    assert delivered(air, DOWN, 0, 1514 * frames, begin_s) - begin_s == pytest.approx(
        frames * FRAME_S
    )
    return float(paths.arrays["free_s"][UP, 0]) - begin_s


@pytest.mark.parametrize(("frames", "last_s"), [(9, 9e-3), (10, 10.4e-3), (11, 11e-3)])
def test_a_short_last_packet_waits_for_the_acknowledgement_before_it(
    frames: int, last_s: float
) -> None:
    """Packets of three frames; an acknowledgement takes 1.4 frames."""
    assert acknowledged_s(frames, [1.4e-3] * 9, 0.5) == pytest.approx(last_s + 1.4e-3)


def test_packets_keep_the_size_that_the_rates_at_the_beginning_of_a_round_allow() -> None:
    """Packets of five frames: the eleventh follows the acknowledgement that takes until 11.4 ms."""
    back_s = [2.4e-3] * 50 + [1.4e-3] * 20
    assert acknowledged_s(11, back_s, 60.0) == pytest.approx(11.4e-3 + 1.4e-3)


@pytest.mark.parametrize(
    ("back_bps", "first_s", "second_s", "within"),
    # Linux 6.12 in virtual time, as in a round of three UAVs.
    [(1.15e6, 0.018968, 0.064921, 0.01), (0.3e6, 0.0467, 0.1335, 0.06)],
)
def test_fast_downlinks_take_what_the_kernel_takes(
    back_bps: float, first_s: float, second_s: float, within: float
) -> None:
    """The broadcast and, seconds later, a gradient at 313 Mb/s over a slow uplink."""
    made = replace(
        transport(0.0, 0.0, "cubic"), impaired=False, receipt_bits=880.0, packet_s=0.25e-3
    )
    air = given_air([[[back_bps]], [[313e6]]], 1e3, made.fresh())

    def took(size: int, begin_s: float) -> float:
        return delivered(air, DOWN, 0, size, begin_s) - begin_s

    assert took(658_868, 0.0) == pytest.approx(first_s, rel=0.1)
    assert took(2_518_316, 17.5) == pytest.approx(second_s, rel=within)


def test_a_held_broadcast_takes_what_the_kernel_takes() -> None:
    """Its first window has waited for 15 ms, so round trips seem long and packets get smaller."""
    made = replace(
        transport(0.0, 0.0, "cubic"), impaired=False, receipt_bits=880.0, packet_s=0.25e-3
    )
    held, plain = (
        delivered(
            given_air([[[1.15e6]], [[313e6]]], 1e3, replace(made, held_s=held_s).fresh()),
            *(BROADCAST, 0, 658_868, 0.0),
        )
        for held_s in (FILL_S, 0.0)
    )
    assert held == pytest.approx(0.018968, rel=0.04)
    assert plain < 0.95 * held


@pytest.mark.parametrize("back_bps", [0.0, 0.1e6, 0.3e6, 1.15e6, 9e6, 313e6])
@pytest.mark.parametrize("bps", [0.1e6, 9e6, 49e6, 313e6, 5e9])
def test_the_engine_expects_the_packets_that_links_are_given(bps: float, back_bps: float) -> None:
    shape = Shape(serial=True, queue_frames=168)
    settings = {"packet_s": shape.packet_s, "queue_frames": shape.queue_frames}
    made = replace(transport(0.0, 0.0, "cubic"), **settings)
    assert packet_frames(made.fresh(), bps, back_bps) == shape.packet_frames(bps, back_bps)


def test_virtual_time_has_a_model_of_acknowledgements() -> None:
    virtual = {**TREE, "emulation": {"clock": "virtual"}}
    made = tcp_model_of(validate(virtual, "test"))
    assert made is not None
    assert not made.impaired
    assert made.receipt_bits == 8 * (66 + 44)
    assert made.credit_s == 0.0
    lte = {**virtual, "radio": {"access": "lte"}}
    assert tcp_model_of(validate(lte, "test")) is None, "links divide the cell"


def test_a_gradient_waits_for_the_receipt_of_the_one_before() -> None:
    """On an uplink of 1 Mb/s: an acknowledgement of 66 B and a receipt of 110 B take 1.408 ms."""
    tree = {**TREE, "paradigm": "sfl-ps", "emulation": {"clock": "virtual"}}
    scenario = validate(tree, "test")
    trace = RateTrace(np.full((3, 9000), 1e6), np.full((3, 9000), 20e6), 0.1)
    (round_,) = predict(scenario, Replay(trace), profile_of(scenario), sizing=link_bytes).rounds
    waits_s = [wait for wait in gradients_wait_s(round_) if wait < 1.0]  # not for the gate
    assert waits_s == [pytest.approx(1.408e-3)] * 4


@pytest.mark.parametrize(
    ("airtime", "end_s", "slot"),
    [(None, 1.5, 1), ([1.0, 4.0, 1.0], 2.3125, 2), ([2.0], 2.625, 2)],
)
def test_frames_that_take_more_airtime_leave_a_link_less(
    airtime: list[float] | None, end_s: float, slot: int
) -> None:
    """200 bits over a link of 100, 200 and 160 bit/s, each for a second."""
    slots, each = Slots(np.array([[100.0, 200.0, 160.0]]), 1.0), None
    if airtime is not None:
        nothing = [[0.0] * len(airtime)]
        each = np.array([nothing, [airtime], nothing])
    assert carried(slots, given_links(1), each, DOWN, 0, 200.0, 0.0) == (end_s, slot)
