# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Handovers in ns-3's LTE and in the model, by the speed of the UAV.

    python benchmarks/handovers.py [--speeds M_S ...] [--flights N] [--docs PAGE]

A UAV flies from one of two base stations towards the other, 1200 m away, while a UAV near each of
them sends and receives; all links have a backlog in both directions. Flights begin at different
phases of the measurements.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from common import write_between

from ns3_scenarios.cells import Cells
from ns3_scenarios.radio import Air, Handover, LteSettings, simulate_lte
from ns3_scenarios.rma_av import los_path_loss_db
from ns3_scenarios.trace import Array

APART_M, HEIGHT_M, SLOT_S = 1200.0, 20.0, 0.02
POWER_W, STATION_W = (1.0, 0.4, 0.1), 40.0
FROM_M, TO_M = 560.0, 760.0
"""The flight, around the place at which the difference is 3 dB."""


def gains(x_m: Array, at_m: float) -> Array:
    """Gains of UAVs, 100 m beside the line between the base stations, to the one at `at_m`."""
    far_m = np.hypot(np.hypot(x_m - at_m, 100.0), 10.0)
    return 10 ** (-los_path_loss_db(np.full(far_m.shape, HEIGHT_M), far_m, 2e9) / 10)


def flight(speed_m_s: float, phase_s: float) -> tuple[float, Handover | None, float]:
    """The time at which the difference is 3 dB, ns-3's handover, and that of the model, in s."""
    slots = round(((TO_M - FROM_M) / speed_m_s + 1.5 + phase_s) / SLOT_S)
    time_s = np.arange(slots) * SLOT_S
    x_m = np.array([[0.0], [300.0], [900.0]]).repeat(slots, axis=1)
    x_m[0] = (FROM_M + speed_m_s * (time_s - phase_s)).clip(FROM_M, TO_M)
    first, second = gains(x_m, 0.0), gains(x_m, APART_M)
    air = Air(
        uplink_gain=first,
        downlink_gain=first,
        slots=slots,
        slot_s=SLOT_S,
        uplink_power_w=np.array(POWER_W),
        downlink_power_w=STATION_W,
        gain_cells=second[None],
        power_cells_w=np.array([STATION_W]),
    )
    made = [
        each for each in simulate_lte(air, LteSettings(handover="a3")).handovers if not each.uav
    ]
    received_db = 10 * np.log10(np.stack([first, second]))
    model = Cells((STATION_W,) * 2, POWER_W, (1e-13,) * 2, 3.0, 0.256, (0.0,) * 2)
    modelled = [at_s for at_s, k, _ in model.handovers(received_db, SLOT_S) if k == 0]
    difference_db = received_db[1, 0] - received_db[0, 0]
    at_s = float(np.interp(3.0, difference_db, time_s))
    return at_s, made[0] if made else None, modelled[0] if modelled else np.nan


def row(speed_m_s: float, flights: int) -> str:
    """The table's row for a speed."""
    found = [flight(speed_m_s, n * 0.2 / flights) for n in range(flights)]
    known = [(at_s, each, model_s) for at_s, each, model_s in found if each is not None]

    def span(values: list[Any], digits: int) -> str:
        there = np.array([each for each in values if each is not None])
        return f"{there.min():.{digits}f} to {there.max():.{digits}f}"

    cells = [
        f"{speed_m_s:g}",
        str(len(known)),
        span([each.start_s - at_s for at_s, each, _ in known], 2),
        span([model_s - at_s for at_s, _, model_s in known], 2),
        span([1e3 * (each.interruption_up_s or np.nan) for _, each, _ in known], 0),
        span([1e3 * (each.interruption_down_s or np.nan) for _, each, _ in known], 0),
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table, and write it into a page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--speeds", type=float, nargs="*", default=[20.0, 40.0, 80.0, 120.0])
    parser.add_argument("--flights", type=int, default=3)
    parser.add_argument("--docs", type=Path)
    given = parser.parse_args()
    heads = (
        *("speed, m/s", "handovers", "delay: ns-3, s", "model, s"),
        *("interruption: uplink, ms", "downlink, ms"),
    )
    lines = [f"| {' | '.join(heads)} |", "|" + " --- |" * len(heads)]
    for speed_m_s in given.speeds:
        lines.append(row(speed_m_s, given.flights))
        print(lines[-1], flush=True)
    if given.docs is not None:
        write_between(given.docs, "handovers", "\n".join(lines))


if __name__ == "__main__":
    main()
