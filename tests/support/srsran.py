# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Writes the files of a flight as srsRAN and a drone's logger do: two console logs and a table."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

START = "2024-05-14 10:20:30.250000"
"""Local time of the first position."""
STATION = (48.2653, 11.6707)
"""Latitude and longitude of x = y = 0."""
SETTING = "Setting frequency: DL=2680.0 Mhz, UL=2560.0 MHz for cc_idx=0 nof_prb=100"
FOUND = "Found Cell:  Mode=FDD, PCI=7, PRB=100, Ports=1, CP=Normal, CFO=0.3 KHz"
EARFCN = 'RRC Connection Reestablishment to PCI=7, EARFCN=3400 (Cause: "otherFailure")'
UE_HEADER = (
    "---------Signal-----------|-----------------DL-----------------|-----------UL-----------",
    " cc  pci  rsrp   pl   cfo | mcs  snr  iter  brate  bler  ta_us | mcs   buff  brate  bler",
)
ENB_HEADER = (
    "",
    "          -----------------DL----------------|-------------------------UL-----------------",
    "rat rnti  cqi  ri  mcs  brate   ok  nok  (%) | pusch  pucch  phr  mcs  brate   ok  nok  (%)"
    "    bsr",
)
HEADER_EVERY = 11
"""Number of rows after which the names of the columns are printed again."""


class Logs(NamedTuple):
    """The files of a flight."""

    ue: Path
    enb: Path
    vehicle: Path

    def options(self) -> list[str]:
        """The files as options of `testbed import srsran`."""
        return [f"--{name}={path}" for name, path in self._asdict().items()]


def degrees(position_m: npt.ArrayLike, origin: tuple[float, float] = STATION) -> Any:
    """Latitude and longitude of places in m east and north of an origin, shape [n, 2].

    These are the usual series of the lengths of a degree on WGS 84.
    """
    east, north = np.asarray(position_m, float)[:, 0], np.asarray(position_m, float)[:, 1]
    phi = np.radians(origin[0])
    of_latitude = 111132.92 - 559.82 * np.cos(2 * phi) + 1.175 * np.cos(4 * phi)
    of_longitude = 111412.84 * np.cos(phi) - 93.5 * np.cos(3 * phi) + 0.118 * np.cos(5 * phi)
    return np.stack([origin[0] + north / of_latitude, origin[1] + east / of_longitude], axis=1)


def short(value: float, *, zero: str = "0.0") -> str:
    """A rate or a number of bytes as srsRAN prints it, with two to three digits."""
    for suffix, factor in (("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0)):
        if value >= factor:
            scaled = value / factor
            return f"{scaled:.0f}" if not suffix else f"{scaled:.{int(scaled < 9.95)}f}{suffix}"
    return zero


def at(seconds: float, start: str = START) -> str:
    """The local time some seconds after the first position."""
    moment = datetime.fromisoformat(start) + timedelta(seconds=float(seconds))
    return moment.isoformat(sep=" ", timespec="microseconds")


def ue_row(rsrp: float, snr: float, mcs: float, buffer: float, bps: float) -> str:
    """A row of srsUE."""
    return (
        f"   0    7  {rsrp:4.0f}  {-rsrp:3.0f}  0.3k |   0  {snr:3.0f}   0.0    0.0    0%    1.6 | "
        f"{mcs:3.0f} {short(buffer):>6}  {short(bps):>5}    0%"
    )


def enb_row(
    rnti: str,
    down: tuple[float, float, float, float],
    up: tuple[float, float, float, float],
    cqi: float = 10,
    snr: float = np.nan,
) -> str:
    """A row of srsENB; `down` and `up` are MCS, rate in bit/s, and blocks that are ok and not."""

    def share(ok: float, nok: float) -> str:
        return f"{100 * nok / max(ok + nok, 1):.0f}%"

    def words(way: tuple[float, float, float, float]) -> str:
        mcs, bps, ok, nok = way
        return f"{mcs:3.0f} {short(bps, zero='0'):>6} {ok:4.0f} {nok:4.0f} {share(ok, nok):>4}"

    known = "n/a" if np.isnan(snr) else f"{snr:.1f}"
    return (
        f"lte {rnti:>4}  {'n/a' if np.isnan(cqi) else f'{cqi:.0f}':>3}   0  {words(down)} | "
        f"{known:>5}   12.5   40  {words(up)}    0.0"
    )


def write_flight(
    folder: Path,
    position_m: npt.ArrayLike,
    *,
    rsrp_dbm: npt.ArrayLike = -70.0,
    snr_db: npt.ArrayLike = 20.0,
    snr_up_db: npt.ArrayLike = 15.0,
    cqi: npt.ArrayLike = 10.0,
    mcs_up: npt.ArrayLike = 10.0,
    uplink_bps: npt.ArrayLike = 8e6,
    ok_up: npt.ArrayLike = 900.0,
    nok_up: npt.ArrayLike = 100.0,
    mcs_down: npt.ArrayLike = 4.0,
    downlink_bps: npt.ArrayLike = 4700.0,
    ok_down: npt.ArrayLike = 9.0,
    nok_down: npt.ArrayLike = 1.0,
    buffer_up_bytes: npt.ArrayLike = 85e3,
    events: Sequence[tuple[float, str, str]] = (),
    late_s: tuple[float, float] = (-0.05, 0.2),
    start: str = START,
    origin: tuple[float, float] = STATION,
) -> Logs:
    """Write the files of a flight of S seconds with one UE.

    Args:
        folder: Where the files are written.
        position_m: Positions at t = 0, 1, … in m east, north, and above take-off, shape [S, 3].
        rsrp_dbm: Value of each second [s, s + 1), shape [S] or one for all, as all that follow;
            NaN: srsUE prints no row.
        snr_db: Downlink.
        snr_up_db: Uplink; NaN: n/a.
        cqi: NaN: n/a.
        mcs_up: Uplink.
        uplink_bps: Printed with two to three digits; NaN: srsENB prints no row.
        ok_up: Transport blocks that were decoded.
        nok_up: Those that were not.
        mcs_down: Downlink.
        downlink_bps: Printed with two to three digits.
        ok_down: As `ok_up`.
        nok_down: As `nok_up`.
        buffer_up_bytes: Printed with two to three digits.
        events: Further lines: seconds from the first position, `ue` or `enb`, and text.
        late_s: How long after the end of a second srsUE and srsENB print its row.
        start: Local time of the first position.
        origin: Latitude and longitude of x = y = 0.
    """
    places = np.asarray(position_m, float)

    def each(values: npt.ArrayLike) -> Any:
        return np.broadcast_to(np.asarray(values, float), len(places))

    lines: dict[str, list[tuple[float, str]]] = {
        "ue": [(-24.0, "Attaching UE..."), (-23.0, FOUND), (-22.5, "RRC Connected")],
        "enb": [(-43.0, "==== eNodeB started ==="), (-42.0, SETTING)],
    }
    for seconds, name, text in events:
        lines[name].append((seconds, text))
    ue = zip(*map(each, (rsrp_dbm, snr_db, mcs_up, buffer_up_bytes, uplink_bps)), strict=True)
    ways = (mcs_down, downlink_bps, ok_down, nok_down, mcs_up, uplink_bps, ok_up, nok_up)
    enb = zip(*map(each, (cqi, snr_up_db, *ways)), strict=True)
    for second, (row, (quality, snr, *rest)) in enumerate(zip(ue, enb, strict=True)):
        if not np.isnan(row[0]):
            printed = second + 1 + late_s[0]
            header = UE_HEADER if second % HEADER_EVERY == 0 else ()
            lines["ue"] += [(printed, text) for text in (*header, ue_row(*row))]
        if not np.isnan(rest[5]):
            printed = second + 1 + late_s[1]
            header = ENB_HEADER if second % HEADER_EVERY == 0 else ()
            down, up = tuple(rest[:4]), tuple(rest[4:])
            text = enb_row("46", down, up, quality, snr)
            lines["enb"] += [(printed, text) for text in (*header, text)]
    logs = Logs(folder / "ue.txt", folder / "enb.txt", folder / "vehicle.txt")
    for path, name in ((logs.ue, "ue"), (logs.enb, "enb")):
        rows = sorted(lines[name], key=lambda line: line[0])
        path.write_text("".join(f"[{at(seconds, start)}] {text}\n" for seconds, text in rows))
    with logs.vehicle.open("w") as file:
        for n, ((latitude, longitude), height) in enumerate(
            zip(degrees(places, origin), places[:, 2], strict=True)
        ):
            place = f"{longitude:.9f},{latitude:.9f},{height:.3f}"
            file.write(f"{n + 1},{place},50.286,99,{at(n, start)},5,12\n")
    return logs
