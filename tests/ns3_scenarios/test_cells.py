# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Several cells: handovers and interference, in ns-3 and in the model."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from ns3_scenarios.cells import HANDOVER_S, Cells
from ns3_scenarios.radio import Air, Delivery, LteSettings, simulate_lte
from ns3_scenarios.rma_av import los_path_loss_db
from ns3_scenarios.trace import ChannelTrace, TraceError, load_trace

APART_M = 2000.0
A3 = LteSettings(handover="a3")
Array = Any


def gains(x_m: Array, at_m: float) -> Array:
    """Gains of UAVs at these places on the line between two base stations, to one of them."""
    far_m = np.hypot(x_m - at_m, 10.0)
    return 10 ** (-los_path_loss_db(np.full(far_m.shape, 20.0), far_m, 2e9) / 10)


def between(x_m: Array, **fields: Any) -> Air:
    """UAVs on the line between two base stations, shape [K, S]."""
    to_first = gains(x_m, 0.0)
    air = Air(
        uplink_gain=to_first,
        downlink_gain=to_first,
        slots=x_m.shape[1],
        slot_s=0.1,
        uplink_power_w=np.full(len(x_m), 1.0),
        downlink_power_w=40.0,
        gain_cells=gains(x_m, APART_M)[None],
        power_cells_w=np.array([40.0]),
    )
    return replace(air, **fields)


@cache
def flight(handover: str) -> Delivery:
    """A UAV that flies from one base station to the other, 20 m per slot."""
    return simulate_lte(between(np.linspace(700, 1500, 41)[None]), LteSettings(handover=handover))


def test_a_uav_that_flies_to_another_cell_changes_to_it_and_keeps_its_rate() -> None:
    made = flight("a3")
    assert made.serving_cell is not None
    assert made.sinr_db is not None
    (change,) = made.handovers
    assert (change.uav, change.from_cell, change.to_cell) == (0, 0, 1)
    # 3 dB at 1100 m, slot 20; the UAV measures over 200 ms, and waits for 256 ms.
    assert 2.0 + 0.256 < change.start_s < 3.3
    assert change.end_s is not None
    assert 0.003 < change.end_s - change.start_s < 0.02
    at = int(change.start_s / 0.1)
    expected = [0] * at + [1] * (41 - at)
    assert made.serving_cell[0].tolist() == expected
    # The signal falls until the change and rises after it.
    sinr_db = made.sinr_db[0]
    assert (np.diff(sinr_db[:at]) < 0).all()
    assert sinr_db[-1] > sinr_db[at + 1] > sinr_db[at - 1]
    # Both directions have the whole cell before and after it, and lose little in between.
    mbps = made.bps[:, 0] / 1e6
    assert mbps[:, :10] == pytest.approx(np.full((2, 10), 75.2), rel=0.01)
    assert mbps[:, at + 2 :] == pytest.approx(np.full((2, 39 - at), 75.2), rel=0.01)
    assert mbps.mean(axis=1) == pytest.approx([74, 74], abs=1.5)


def test_the_interruption_of_a_handover_is_some_milliseconds() -> None:
    (change,) = flight("a3").handovers
    assert change.interruption_up_s is not None
    assert change.interruption_down_s is not None
    assert change.end_s is not None
    shortest = change.end_s - change.start_s
    assert shortest < change.interruption_up_s < 0.05
    assert shortest < change.interruption_down_s < 0.06


def test_without_handover_a_uav_stays_in_its_first_cell() -> None:
    made = flight("none")
    assert made.serving_cell is not None
    assert made.sinr_db is not None
    assert not made.handovers
    assert not made.serving_cell.any()
    assert (np.diff(made.sinr_db[0]) < 0).all()


def test_uavs_attach_to_the_cell_that_they_receive_with_most_power() -> None:
    x_m = np.array([[500.0], [1500.0], [990.0], [1010.0]]).repeat(2, axis=1)
    made = simulate_lte(between(x_m), LteSettings())
    assert made.serving_cell is not None
    assert made.serving_cell[:, 0].tolist() == [0, 1, 0, 1]
    air = between(x_m, power_cells_w=np.array([160.0]))
    made = simulate_lte(air, LteSettings())
    assert made.serving_cell is not None
    assert made.serving_cell[:, 0].tolist() == [0, 1, 1, 1]


def test_a_cell_that_sends_lowers_the_rates_in_the_other() -> None:
    """Two UAVs at 800 m from their base stations, and one of them alone."""
    both = simulate_lte(between(np.array([[800.0], [1200.0]]).repeat(3, axis=1)))
    alone = simulate_lte(between(np.array([[800.0]]).repeat(3, axis=1)))
    assert both.sinr_db is not None
    assert alone.sinr_db is not None
    ratio_db = 10 * np.log10(gains(np.array(800.0), 0.0) / gains(np.array(1200.0), 0.0))
    # Now and then the other cell has nothing to send in a TTI.
    assert ratio_db < both.sinr_db.mean() < ratio_db + 2
    assert alone.sinr_db.mean() > ratio_db + 35
    assert alone.bps.mean(axis=(1, 2)) == pytest.approx([75.2e6, 75.2e6], rel=0.01)
    assert both.bps.mean(axis=(1, 2)).max() < 0.4 * 75.2e6


def test_a_cell_with_a_load_interferes_for_that_part_of_the_time() -> None:
    """A UAV at 800 m: its rate is the mean of those without and with interference."""

    def down_mbps(load: float) -> float:
        settings = LteSettings(25, cell_loads=(0.0, load))
        made = simulate_lte(between(np.full((1, 40), 800.0), way="down"), settings)
        return float(made.bps[1, :, 2:].mean() / 1e6)

    clear, half, full = (down_mbps(load) for load in (0.0, 0.5, 1.0))
    assert full < 0.4 * clear
    assert half == pytest.approx((clear + full) / 2, rel=0.15)


def test_packets_that_wait_are_sent_in_the_new_cell() -> None:
    """The queues of 100 kB, but for a packet of which a part was sent before."""
    (change,) = flight("a3").handovers
    assert change.waiting_up_bytes == pytest.approx(100_000, rel=0.02)
    assert change.waiting_down_bytes == pytest.approx(100_000, rel=0.15)


@pytest.mark.parametrize(("uavs", "cells", "weaker_db"), [(6, 3, 0.0), (12, 4, 25.0)])
def test_many_handovers_at_once_do_not_end_ns3(uavs: int, cells: int, weaker_db: float) -> None:
    """Every half second another cell is the strongest, for UAVs that have outages in between."""
    rng, slots = np.random.default_rng(uavs), 40
    db = rng.uniform(-12, 0, (cells, uavs, slots // 5)).repeat(5, axis=2)
    gain = 10 ** (-(90 + weaker_db - db) / 10)
    air = Air(
        uplink_gain=gain[0],
        downlink_gain=gain[0],
        slots=slots,
        slot_s=0.1,
        uplink_power_w=np.full(uavs, 0.5),
        downlink_power_w=40.0,
        gain_cells=gain[1:],
        power_cells_w=np.full(cells - 1, 40.0),
    )
    settings = LteSettings(handover="a3", a3_hysteresis_db=0, a3_time_to_trigger_s=0)
    made = simulate_lte(air, settings)
    assert len(made.handovers) > 2 * uavs
    assert [*made.silent()] == []
    assert made.bytes[:, :, -15:].sum(axis=2).all()  # no queue is closed for ever
    again = simulate_lte(air, settings)
    assert again.bytes.tobytes() == made.bytes.tobytes()
    assert again.handovers == made.handovers


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"power_cells_w": None}, "gain_cells and power_cells_w go together"),
        ({"power_cells_w": np.array([1.0, 1.0])}, "gain_cells must have shape"),
        ({"power_cells_w": np.array([0.0])}, "power_cells_w must be positive"),
        ({"gain_cells": np.full((1, 1, 2), 2.0)}, "gain_cells must be linear"),
        ({"gain_cells_down": np.full((1, 1, 2), 2.0)}, "gain_cells_down must be linear"),
        ({"gain_cells_down": np.ones((2, 1, 2))}, "gain_cells_down must have shape"),
        (
            {"gain_cells": None, "power_cells_w": None, "gain_cells_down": np.ones((1, 1, 2))},
            "gain_cells_down needs gain_cells",
        ),
        (
            {"gain_cells": np.ones((16, 1, 2)), "power_cells_w": np.ones(16)},
            "power_cells_w must have 1 to 15",
        ),
    ],
)
def test_cells_that_cannot_be_are_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        between(np.full((1, 2), 500.0), **fields)


def cells(hysteresis_db: float | None = 3.0, time_to_trigger_s: float = 0.0) -> Cells:
    """Three cells of equal power; noise of 1e-13 W."""
    return Cells(
        (40.0,) * 3, (1.0,) * 2, (1e-13,) * 2, hysteresis_db, time_to_trigger_s, (0.0,) * 3
    )


def step_to(*levels_db: float) -> Any:
    """Power of a cell whose level changes each 0.4 s, in slots of 0.1 s."""
    return np.repeat(np.array(levels_db), 4)


def test_event_a3_is_that_of_filtered_measurements_for_the_time_to_trigger() -> None:
    """From 0.4 s on the second cell is 6 dB stronger: filtered -2, 2, 4 dB at 0.6, 0.8, 1 s."""
    received_db = np.stack([step_to(*[0] * 5), step_to(-10, 6, 6, 6, 6), step_to(*[-20] * 5)])

    def first(*settings: Any) -> Any:
        serving = cells(*settings).serving(received_db[:, None], 0.1)[0]
        assert np.diff(serving).tolist().count(1) == serving.max() <= 1
        return int(np.flatnonzero(serving)[0]) if serving.any() else None

    assert first(3.0, 0.0) == 10
    assert first(1.5, 0.0) == 8
    assert first(3.0, 0.2) == 12
    assert first(3.0, 0.256) == 13
    assert first(5.9, 0.0) is None
    assert first(None) is None
    # Measurements do not depend on the length of a slot.
    ten = np.repeat(received_db, 10, axis=1)[:, None]
    found = cells(3.0, 0.256).handovers(ten, 0.01)
    assert found == [(pytest.approx(1.256), 0, 1)]
    # What was decided does not change as the trace grows.
    for slots in range(1, 20):
        part, whole = (
            cells(3.0, 0.1).serving(of[:, None], 0.1)
            for of in (received_db[:, :slots], received_db)
        )
        assert part.tolist() == whole[:, :slots].tolist()


def test_a_cell_that_is_weaker_again_is_not_changed_to() -> None:
    """At 1 s the event begins; at 1.2 s the filtered difference is -8 dB, below the hysteresis."""
    received_db = np.stack([step_to(*[0] * 5), step_to(-10, 6, 6, -20, -20)])[:, None]
    weak = Cells((40.0,) * 2, (1.0,), (1e-13, 1e-13), 3.0, 0.5, (0.0, 0.0))
    assert weak.handovers(received_db, 0.1) == []
    prompt = replace(weak, time_to_trigger_s=0.3)
    assert prompt.handovers(received_db, 0.1)[0] == (pytest.approx(1.3), 0, 1)


def test_the_strongest_of_several_cells_is_chosen() -> None:
    received_db = np.stack([step_to(0, 0, 0), step_to(-5, 14, 14), step_to(-5, 15, 15)])[:, None]
    assert cells().serving(received_db, 0.1)[0].tolist() == [0] * 6 + [2] * 6


def test_nothing_is_sent_during_a_handover() -> None:
    """From 1.0 to 1.03 s, in the slot that begins at 1 s."""
    first, second = step_to(*[0] * 5), step_to(-10, 6, 6, 6, 6)
    gain = 1e-10 * 10 ** (np.stack([first, second])[:, None] / 10)
    made = replace(cells(3.0, 0.0), power_w=(1.0, 1.0), uav_power_w=(1.0,), load=(0.0, 0.5))
    served = made.served(ChannelTrace(gain=gain[0], slot_s=0.1, gain_cells=gain[1:])).served
    assert served is not None
    wanted = np.ones(20)
    wanted[10] = 1 - HANDOVER_S / 0.1
    assert served.sites.kept == pytest.approx(wanted[None])
    assert served.sites.strength == pytest.approx(np.stack([gain, gain]) / 1e-13)
    assert served.sites.load.tolist() == [0.0, 0.5]


def trace_of(*at: tuple[float, float, float]) -> ChannelTrace:
    """A trace of one slot: gains of each UAV to three base stations."""
    gain = np.array(at).T[:, :, None]
    return ChannelTrace(gain=gain[0], slot_s=0.1, gain_cells=gain[1:])


def test_interference_of_cells_and_of_uavs_in_other_cells() -> None:
    values = cells().served(trace_of((1e-9, 1e-11, 1e-12), (1e-11, 1e-10, 1e-12))).values
    assert values.cells.tolist() == [[0], [1]]
    up, down = values.values[:, :, 0]
    noise = 1e-13
    # The third cell serves no UAV and sends nothing.
    assert 40 * down / noise == pytest.approx(
        [40 * 1e-9 / (noise + 40 * 1e-11), 40 * 1e-10 / (noise + 40 * 1e-11)]
    )
    assert up / noise == pytest.approx([1e-9 / (noise + 1e-11), 1e-10 / (noise + 1e-11)])
    both = cells().served(trace_of((1e-9, 1e-11, 1e-12), (1e-10, 1e-11, 1e-12))).values
    assert both.cells.tolist() == [[0], [0]]
    assert both.values[:, :, 0] == pytest.approx(np.array([[1e-9, 1e-10]] * 2))


def test_an_outage_of_all_cells_is_one() -> None:
    values = cells().served(trace_of((0, 0, 0), (1e-9, 0, 0))).values
    assert values.values[:, :, 0].tolist() == [[0, 1e-9]] * 2


def test_a_trace_keeps_its_gains_to_all_cells(tmp_path: Any) -> None:
    made = trace_of((1e-9, 1e-11, 1e-12), (1e-11, 1e-10, 1e-12))
    made.save(tmp_path / "T.npz")
    again = load_trace(tmp_path / "T.npz")
    assert isinstance(again, ChannelTrace)
    assert np.array_equal(again.gain_cells, made.gain_cells)
    served = cells().served(again)
    part = served.first(1)
    assert part.gain_cells.shape == (2, 2, 1)
    assert part.values.cells.shape == (2, 1)
    assert served.values[1:, :1].cells.tolist() == [[1]]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (np.ones((2, 3)), r"gain_cells must be numbers of shape \[C, 2, 3\], not \(2, 3\)"),
        (np.ones((1, 3, 3)), r"gain_cells must be numbers of shape \[C, 2, 3\]"),
        (np.full((1, 2, 3), 2.0), r"gain_cells\[0\]\[0, 0\] is 2: a linear power gain"),
        (np.full((1, 2, 3), np.nan), r"gain_cells\[0\]\[0, 0\] is NaN"),
    ],
)
def test_gains_to_cells_that_cannot_be_are_refused(tmp_path: Any, given: Any, says: str) -> None:
    np.savez(tmp_path / "T.npz", gain=np.full((2, 3), 1e-9), slot_s=0.1, gain_cells=given)
    with pytest.raises(TraceError, match=says):
        load_trace(tmp_path / "T.npz")


def test_directions_may_have_gains_of_their_own_to_cells(tmp_path: Any) -> None:
    """The downlink decides on the cell, and each direction has its own interference."""
    made = trace_of((1e-9, 1e-10, 1e-12), (1e-9, 1e-10, 1e-12))
    assert made.gain_cells is not None
    strong = replace(made, gain_cells_down=100 * made.gain_cells)
    strong.save(tmp_path / "T.npz")
    again = load_trace(tmp_path / "T.npz")
    assert isinstance(again, ChannelTrace)
    assert np.array_equal(again.gain_cells, made.gain_cells)
    assert np.array_equal(again.gain_cells_down, strong.gain_cells_down)
    served = cells().served(again).served
    assert served is not None
    assert served.cells.tolist() == [[1] * made.slots] * 2
    # All UAVs are in one cell: nothing interferes.
    assert served.gain[:, 0, 0] == pytest.approx([1e-10, 1e-8])
    assert again.of_all_cells[1][1:] == pytest.approx(100 * again.of_all_cells[0][1:])


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"gain_cells_down": np.ones((1, 2, 3))}, "gain_cells_down needs gain_cells"),
        (
            {"gain_cells": np.ones((2, 2, 3)), "gain_cells_down": np.ones((1, 2, 3))},
            "gain_cells_down must have the shape of gain_cells",
        ),
        (
            {"gain_cells": np.ones((1, 2, 3)), "gain_cells_down": np.full((1, 2, 3), 2.0)},
            r"gain_cells_down\[0\]\[0, 0\] is 2: a linear power gain",
        ),
    ],
)
def test_gains_of_downlinks_to_cells_that_cannot_be_are_refused(
    tmp_path: Any, fields: dict[str, Any], says: str
) -> None:
    np.savez(tmp_path / "T.npz", gain=np.full((2, 3), 1e-9), slot_s=0.1, **fields)
    with pytest.raises(TraceError, match=says):
        load_trace(tmp_path / "T.npz")


def test_rates_have_no_gains_to_cells(tmp_path: Any) -> None:
    rates = {"uplink_bps": np.ones((2, 3)), "downlink_bps": np.ones((2, 3))}
    np.savez(tmp_path / "T.npz", **rates, slot_s=0.1, gain_cells=np.ones((1, 2, 3)))
    with pytest.raises(TraceError, match="gain_cells belongs to gains"):
        load_trace(tmp_path / "T.npz")
