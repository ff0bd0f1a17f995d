# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The process that runs ns-3: ``python -m ns3_scenarios.process``, started by `Ns3Channel`.

Stdin: one line of JSON (``{"library", "parent", "settings"}``), then for each requested chunk one
line with its number of slots; if the settings name a mobility model in Python, the chunk's position
[K, slots, 3] follows. A further line of JSON starts another channel. Stdout: for each chunk gain
[K, slots], then position [K, slots, 3]. All arrays are float64 in native byte order. The process
ends when its stdin closes or its parent ends. It imports little, so that it starts in some tens of
milliseconds.
"""

import ctypes
import json
import os
import resource
import select
import sys
import threading
from pathlib import Path
from typing import Any

from ns3_scenarios import native


def main() -> None:
    """Compute chunks of the channel until stdin ends."""
    start = begin()
    library = native.load(Path(start["library"]))
    settings = _open(library, start)
    chunk = native.doubles([])
    for line in sys.stdin.buffer:
        if line.startswith(b"{"):
            settings = _open(library, json.loads(line))
            continue
        slots, uavs = int(line), settings.uavs
        if len(chunk) != slots * uavs * 4:
            chunk = (ctypes.c_double * (slots * uavs * 4))()
        position = (ctypes.c_double * (slots * uavs * 3)).from_buffer(chunk, slots * uavs * 8)
        if settings.placed:
            ctypes.memmove(position, sys.stdin.buffer.read(len(position) * 8), len(position) * 8)
        library.channel_advance(slots, chunk, position)
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()


def _open(library: ctypes.CDLL, start: dict[str, Any]) -> native.Settings:
    """Start a channel."""
    settings = _settings(start["settings"])
    library.channel_open(settings)
    return settings


def begin() -> dict[str, Any]:
    """Read the parent's first line; from then on this process ends with its parent."""
    start: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    _end_with(start["parent"])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # ns-3 aborts on errors.
    return start


def _end_with(parent: int) -> None:
    """End this process when its parent ends.

    The end of stdin is not sufficient: a process forked from the parent may hold the pipe open. The
    kernel's parent-death signal is not sufficient either: it is sent when the parent's *thread*
    ends.
    """
    handle = os.pidfd_open(parent)
    if os.getppid() != parent:
        os._exit(1)

    def watch() -> None:
        select.select([handle], [], [])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _settings(plain: dict[str, Any]) -> native.Settings:
    inner, outer = zip(*plain["ring_m"], strict=True)
    uavs = len(inner)

    def each(value: Any) -> Any:
        """One value per UAV, from one value for all UAVs or from K values."""
        return native.doubles(value if isinstance(value, list) else [value] * uavs)

    speeds = plain["speed_m_s"]
    pairs = speeds if isinstance(speeds[0], list) else [speeds] * uavs
    low, high = zip(*pairs, strict=True)
    return native.Settings(
        bs_position=tuple(plain["bs_position_m"]),
        heading_deviation=plain["heading_deviation_rad"],
        memory=plain["memory"],
        update_interval=plain["update_s"],
        frequency=plain["carrier_hz"],
        slot=plain["slot_s"],
        run=plain["seed"],
        uavs=uavs,
        inner_radius=native.doubles(inner),
        outer_radius=native.doubles(outer),
        height=each(plain["height_m"]),
        min_speed=native.doubles(low),
        max_speed=native.doubles(high),
        mean_speed=each(plain["mean_speed_m_s"]),
        speed_deviation=each(plain["speed_deviation_m_s"]),
        line_of_sight=native.LINE_OF_SIGHT[plain["line_of_sight"]],
        shadow_fading=plain["shadow_fading"],
        placed=plain["mobility"] is not None,
        path_loss=native.PATH_LOSS.get(plain["channel"][0], 1),
    )


if __name__ == "__main__":
    main()
