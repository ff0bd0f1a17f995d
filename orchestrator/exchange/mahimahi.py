# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Reads and writes Mahimahi's traces of packet deliveries.

Each line is a millisecond at which a link may deliver 1500 bytes; after the last line the file
repeats. A slot's rate counts the deliveries in it, including its end but not its start, so that a
period of a file includes all of its deliveries; 0 counts as the first millisecond.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ns3_scenarios.trace import RateTrace
from orchestrator.exchange.files import Array, slots_of, text_of
from testbed.core.errors import InputError

PACKET_BITS = 8 * 1500
Milliseconds = npt.NDArray[np.int64]


def read(up: Sequence[Path], down: Sequence[Path], slot_s: float) -> RateTrace:
    """A trace of rates from one file per UAV and direction.

    Shorter files are repeated until the longest ends, as in Mahimahi.

    Args:
        up: Uplink files.
        down: Downlink files; empty: the uplink files.
        slot_s: Length of a slot, in whole milliseconds.

    Raises:
        InputError: A file is not such a trace, or the numbers of uplinks and downlinks differ.
    """
    if down and len(down) != len(up):
        raise InputError(f"`down`: must be one file per UAV: {len(up)}, not {len(down)}")
    slot_ms = _whole_ms(slot_s)
    deliveries = [_deliveries(path) for path in (*up, *down)]
    last_ms = max(int(times[-1]) for times in deliveries)
    slots = slots_of(last_ms / 1000, slot_s, len(deliveries), up[0])
    rates = [_rates(times, slots, slot_ms) for times in deliveries]
    uplink, downlink = np.array(rates[: len(up)]), np.array(rates[-len(up) :])
    return RateTrace(uplink, downlink, slot_s)


def _whole_ms(slot_s: float) -> int:
    slot_ms = round(slot_s * 1000)
    if abs(slot_s * 1000 - slot_ms) > 1e-6 or slot_ms < 1:
        raise InputError(f"`slot_s`: must be whole milliseconds for Mahimahi, not {slot_s:g} s")
    return slot_ms


def _deliveries(path: Path) -> Milliseconds:
    lines = text_of(path).splitlines()
    if not lines:
        raise InputError(f"{path}: is empty; a Mahimahi trace has one millisecond per line")
    times = np.empty(len(lines), np.int64)
    before = 0
    for number, line in enumerate(lines, 1):
        if not (line.isascii() and line.strip().isdigit() and len(line.strip()) <= 12):
            raise InputError(f"{path}, line {number}: must be a millisecond, not {line[:40]!r}")
        now = int(line)
        if now < before:
            raise InputError(f"{path}, line {number}: {now} is below {before}, the line before")
        times[number - 1] = before = now
    if before == 0:
        raise InputError(f"{path}: its last line is 0; a trace must last a millisecond or more")
    return times


def _rates(times_ms: Milliseconds, slots: int, slot_ms: int) -> Array:
    """Rate in each slot, bit/s, from the number of deliveries until each slot's end."""
    period = int(times_ms[-1])
    turns, rest = np.divmod(np.arange(slots + 1) * slot_ms, period)
    until = turns * len(times_ms) + np.searchsorted(np.maximum(times_ms, 1), rest, side="right")
    return np.diff(until) * PACKET_BITS / (slot_ms / 1000)


def write(trace: RateTrace, folder: Path) -> list[Path]:
    """Write `uavK.up` and `uavK.down` of each UAV; answer the files.

    A slot's deliveries are evenly spaced; fractions of packets are carried to the next slot, so the
    total error is at most one packet. Silence after the last delivery is lost, because the format
    cannot represent it.

    Raises:
        InputError: A link never delivers, which Mahimahi refuses.
    """
    slot_ms = _whole_ms(trace.slot_s)
    texts = {}
    for way, rates in (("up", trace.uplink_bps), ("down", trace.downlink_bps)):
        for k, rate_bps in enumerate(rates):
            times = _spread(rate_bps, slot_ms)
            if not times.size:
                raise InputError(f"uav{k + 1}, {way}: never delivers a packet of 1500 bytes")
            texts[folder / f"uav{k + 1}.{way}"] = "".join(f"{ms}\n" for ms in times)
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        path.write_text(text)
    return list(texts)


def _spread(rate_bps: Array, slot_ms: int) -> Milliseconds:
    packets = np.floor(np.cumsum(rate_bps) * (slot_ms / 1000) / PACKET_BITS + 1e-6).astype(np.int64)
    counts = np.diff(packets, prepend=0)
    slot = np.repeat(np.arange(len(counts)), counts)
    nth = np.arange(len(slot)) - np.repeat(packets - counts, counts) + 1
    times: Milliseconds = slot * slot_ms + -(-nth * slot_ms // np.repeat(counts, counts))
    return times
