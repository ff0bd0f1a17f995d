# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What Flower's transfers took, against what the rates allow, and what its rounds came to.

python examples/flower/compare.py DIR [SIMULATION]      after `testbed up … --capture --out DIR`
"""

import json
import re
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from testbed.network.pcap import Frame, frames

LEAST_BYTES = 100_000
"""Of a transfer; what is smaller are calls and answers."""
APART_S = 0.5
"""So long without data, and another transfer begins."""
PAUSE_S = 0.002
"""The shaper lets several frames go at once; what is longer is somebody's pause."""
WRAP = 1 << 32
Array = npt.NDArray[np.float64]


def transfers(folder: Path) -> pd.DataFrame:
    """A row a transfer, times in seconds.

    `took_s` is from its first frame to its last; `allowed_s`, what the link's rates need for its
    frames from there on. The difference is the sum of the rest: `program_s`, in which all that was
    sent had been acknowledged, so that the program had given nothing; `window_s`, in which TCP
    waited for acknowledgements; `resent_s`, for frames that had been sent before; and `shared_s`,
    for frames of other connections and what the shaper lets go early or late.
    """
    begun_ns = json.loads((folder / "manifest.json").read_text())["slot_0_unix_ns"]
    table = pd.read_parquet(folder / "session.parquet")
    slot_s = json.loads((folder / "scenario.json").read_text())["slot_s"]
    rows = []
    for (client, direction), link in table.groupby(["client", "direction"]):
        bits = np.concatenate([[0], link.sort_values("slot").rate_bps.cumsum() * slot_s])
        seen = list(frames(folder / f"pcap/uav{client}.pcap"))
        for sent in _transfers(seen, begun_ns, f"10.0.{client}.2", direction == "up"):
            rows.append({"client": client, "direction": direction, **_row(sent, bits, slot_s)})
    return pd.DataFrame(rows).sort_values(["start_s", "client"], ignore_index=True)


class _Sent:
    """Frames with data of one connection and direction: their times, and what preceded each."""

    def __init__(self, frames_: list[tuple[float, Frame, bool, bool]]) -> None:
        self.time_s = np.array([time_s for time_s, *_ in frames_])
        self.size = np.array([f.header_bytes + f.data_bytes for _, f, _, _ in frames_])
        self.idle = np.array([idle for *_, idle, _ in frames_])
        """Whether, before it, all had been acknowledged."""
        self.again = np.array([again for *_, again in frames_])


def _transfers(seen: list[Frame], begun_ns: int, uav: str, up: bool) -> Iterator[_Sent]:
    def connection(frame: Frame) -> tuple[int, int]:
        ours = (frame.source == uav) == up
        return frame.ports if ours else frame.ports[::-1]

    for _, group in groupby(sorted(seen, key=connection), key=connection):
        last = acknowledged = None
        found: list[tuple[float, Frame, bool, bool]] = []
        for frame in group:
            if (frame.source == uav) != up:
                acknowledged = frame.acknowledged
                continue
            if not frame.data_bytes:
                continue
            time_s = (frame.time_ns - begun_ns) / 1e9
            if found and time_s - found[-1][0] > APART_S:
                if sum(f.data_bytes for _, f, _, _ in found) >= LEAST_BYTES:
                    yield _Sent(found)
                found = []
            again = last is not None and (frame.sequence - last) % WRAP > WRAP // 2
            found.append((time_s, frame, last is None or acknowledged == last, again))
            if not again:
                last = (frame.sequence + frame.data_bytes) % WRAP
        if sum(f.data_bytes for _, f, _, _ in found) >= LEAST_BYTES:
            yield _Sent(found)


def _row(sent: _Sent, bits: Array, slot_s: float) -> dict[str, float]:
    """See `transfers`; `bits` is what the link carries from slot 0 to each slot's beginning."""
    slots = np.arange(len(bits)) * slot_s
    first, last = sent.time_s[0], sent.time_s[-1]
    # A frame's time is when it has left: the first one's link time lies before.
    size = sent.size[1:]
    allowed = np.interp(np.interp(first, slots, bits) + 8 * size.sum(), bits, slots) - first
    rate = np.diff(bits)[np.minimum((sent.time_s[1:] / slot_s).astype(int), len(bits) - 2)] / slot_s
    link_s = 8 * size / rate
    waited = np.diff(sent.time_s) - link_s
    long = waited > PAUSE_S
    again = sent.again[1:]
    parts = {
        "program_s": waited[long & sent.idle[1:]].sum(),
        "window_s": waited[long & ~sent.idle[1:]].sum(),
        "resent_s": link_s[again].sum(),
    }
    took = last - first
    new = allowed - parts["resent_s"]
    return {
        "start_s": first,
        "bytes": int(sent.size.sum()),
        "took_s": took,
        "allowed_s": new,
        **parts,
        "shared_s": took - new - sum(parts.values()),
    }


def accuracy(folder: Path) -> list[float]:
    """Of each round, as the app's clients evaluated it."""
    text = (folder / "logs" / "bs.log").read_text()
    found = re.findall(r"Aggregated MetricRecord: .*'eval_acc': ([\d.e+-]+)", text)
    return [float(value) for value in found]


if __name__ == "__main__":
    print(transfers(Path(sys.argv[1])).round(3).to_string(index=False))
    for folder in map(Path, sys.argv[1:]):
        print(folder, "accuracy:", *accuracy(folder))
