# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Channel traces: the gain of every UAV's channel in every slot, and its origin."""

import io
import math
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import psutil

from testbed.system.files import read_regular, write_whole

Array = npt.NDArray[np.float64]


KINDS: Sequence[tuple[str, ...]] = (
    ("gain",),
    ("gain_up", "gain_down"),
    ("uplink_bps", "downlink_bps"),
)
"""Alternative fields of a trace: gains of both directions, gains of each direction, or rates."""
OF_FRAMES: Mapping[str, Sequence[tuple[str, ...]]] = {
    "loss": (("loss",), ("loss_up", "loss_down")),
    "delay": (("delay_s",), ("delay_up_s", "delay_down_s")),
    "jitter": (("jitter_s",), ("jitter_up_s", "jitter_down_s")),
}
"""Optional impairments of frames: one field for both directions, or one per direction."""
FIELDS = (
    *(
        name
        for kind in (*KINDS, *(k for kinds in OF_FRAMES.values() for k in kinds))
        for name in kind
    ),
    *("slot_s", "position", "seed", "scenario"),
)
MOST_BYTES = 16 << 30
"""Largest size of a file: positions of 10 UAVs over two years of slots."""
EASY_BYTES, MOST_GROWTH = 256 << 20, 50
"""A trace is refused if it has more bytes than this and its compression ratio exceeds the next
value."""


# Limits for foreign traces, far beyond any real channel.
SHORTEST_S, LONGEST_S = 1e-6, 1e4
LEAST_GAIN, MOST_GAIN = 1e-40, 1e10
LEAST_BPS, MOST_BPS = 1e-3, 1e15
FARTHEST_M = 1e9
LONGEST_DELAY_S = 10.0


class TraceError(Exception):
    """A trace file is invalid; the message names the field."""


class TraceExhausted(Exception):
    """More slots are needed than a trace has."""

    def __init__(self, available: int):
        self.available = available
        super().__init__(f"the trace ends after {available} slots")


@dataclass(frozen=True)
class TwoWay:
    """A channel whose directions differ; it can be sliced like an array [K, S]."""

    values: Array
    """Linear gains or rates in bit/s of uplink and downlink, shape [2, K, S]."""
    are_rates: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """[K, S]."""
        return self.values.shape[1:]

    def __getitem__(self, key: Any) -> "TwoWay":
        keys = key if isinstance(key, tuple) else (key,)
        return TwoWay(self.values[(slice(None), *keys)], self.are_rates)


Gains = Array | TwoWay
"""Gains or rates of the links: [K, S] for both directions, or a `TwoWay`."""


def both_ways(gain: Gains) -> tuple[Array, Array]:
    """Uplink and downlink of a channel, shape [K, S] each."""
    if isinstance(gain, TwoWay):
        up, down = gain.values
        return up, down
    return gain, gain


def each_way(change: Callable[[Array], Array], gain: Gains) -> Gains:
    """Apply a function to both directions of a channel."""
    if isinstance(gain, TwoWay):
        return replace(gain, values=np.stack([change(way) for way in gain.values]))
    return change(gain)


@dataclass(frozen=True)
class ChannelTrace:
    """Channel of K UAVs over S slots; slot 0 starts at t = 0."""

    gain: Array
    """Linear power gain, shape [K, S]; 0 is an outage. It is the uplink's gain if the directions
    differ, and the uplink's rate in bit/s if the trace has rates."""
    slot_s: float
    position_m: Array | None = None
    """Positions in m, shape [K, S, 3]; None if a foreign trace has none."""
    seed: int | None = None
    scenario: str | None = None
    """JSON text of the scenario that made the trace."""
    gain_down: Array | None = None
    """Gain or rate of the downlink if it differs; shape and unit as `gain`."""
    are_rates: bool = False
    """Whether `gain` and `gain_down` are rates, which do not depend on the other links."""
    loss: Array | None = None
    """Probability that a frame is lost, shape [2, K, S] (uplink, downlink)."""
    delay_s: Array | None = None
    """One-way delay of a frame after it has been sent, shape [2, K, S]."""
    jitter_s: Array | None = None
    """Standard deviation of the delay, shape [2, K, S]."""

    @cached_property
    def gains(self) -> Gains:
        """Gains (or rates, see `are_rates`) of both directions."""
        if self.gain_down is None:
            return self.gain
        return TwoWay(np.stack([self.gain, self.gain_down]), self.are_rates)

    def first(self, slots: int) -> "ChannelTrace":
        """The trace of the first `slots` slots."""
        return self.at(slice(slots))

    def at(self, slots: "slice | npt.NDArray[np.int64]") -> "ChannelTrace":
        """The trace of the selected slots, in the given order."""
        position, down = self.position_m, self.gain_down
        of_frames = {
            name: values[..., slots]
            for name in ("loss", "delay_s", "jitter_s")
            if (values := getattr(self, name)) is not None
        }
        return replace(
            self,
            **of_frames,
            gain=self.gain[:, slots],
            position_m=None if position is None else position[:, slots],
            gain_down=None if down is None else down[:, slots],
        )

    @property
    def uavs(self) -> int:
        """Number of UAVs, K."""
        return int(self.gain.shape[0])

    @property
    def slots(self) -> int:
        """Number of slots, S."""
        return int(self.gain.shape[1])

    def save(self, path: Path) -> None:
        """Write the trace as NPZ: gains or rates, slot_s, and position, seed, scenario if known.

        The file is written atomically.
        """
        arrays: dict[str, Any] = {"slot_s": np.float64(self.slot_s)}
        if self.gain_down is None:
            arrays = {"gain": self.gain} | arrays
        else:
            names = KINDS[2 if self.are_rates else 1]
            arrays = dict(zip(names, (self.gain, self.gain_down), strict=True)) | arrays
        if self.position_m is not None:
            arrays["position"] = self.position_m
        for (_, names), values in zip(
            OF_FRAMES.values(), (self.loss, self.delay_s, self.jitter_s), strict=True
        ):
            if values is not None:
                arrays |= dict(zip(names, values, strict=True))
        if self.seed is not None:
            arrays["seed"] = np.int64(self.seed)
        if self.scenario is not None:
            arrays["scenario"] = np.str_(self.scenario)

        def fill(part: Path) -> None:
            with part.open("wb") as file:  # NumPy would append .npz to a file name
                np.savez(file, **arrays)

        write_whole(path, fill)

    @classmethod
    def load(cls, path: Path) -> "ChannelTrace":
        """Read an NPZ trace; it needs one of `KINDS` and `slot_s`.

        Raises:
            TraceError: The file is not a valid trace; the message names the field.
        """
        try:
            data = read_regular(path, MOST_BYTES)
            _check_sizes(data)
            with np.load(io.BytesIO(data), allow_pickle=False) as file:
                fields = {name: file[name] for name in FIELDS if name in file.files}
        except FileNotFoundError:
            raise TraceError(f"{path}: no such file") from None
        except Exception as error:  # numpy, zipfile and zlib raise many types for corrupt data
            reason = str(error).partition("\n")[0] or type(error).__name__
            raise TraceError(f"{path}: not an NPZ trace ({reason})") from None
        return cls.of(fields, str(path))

    @classmethod
    def of(cls, given: Mapping[str, Any], source: str) -> "ChannelTrace":
        """The trace of these fields, named as in a file; it needs one of `KINDS` and `slot_s`.

        Raises:
            TraceError: A field is invalid; the message names source and field.
        """

        def refuse(what: str) -> TraceError:
            return TraceError(f"{source}: {what}")

        fields = {name: np.asarray(given[name]) for name in FIELDS if name in given}
        kinds = [kind for kind in KINDS if any(name in fields for name in kind)]
        if len(kinds) > 1:
            raise refuse(f"has {kinds[0][0]} and {kinds[1][0]}; a trace is one or the other")
        for name in (*(kinds or KINDS)[0], "slot_s"):
            if name not in fields:
                raise refuse(f"{name} is missing")
        (kind,) = kinds
        are_rates = kind == KINDS[2]
        gain, *down = (_values(fields[name], name, are_rates, refuse) for name in kind)
        if down and down[0].shape != gain.shape:
            raise refuse(f"{kind[1]} must have the shape of {kind[0]}, {gain.shape}")
        slot = fields["slot_s"]
        if (
            slot.dtype.kind not in "fiu"
            or slot.size != 1
            or not (SHORTEST_S <= float(slot) <= LONGEST_S)
        ):
            raise refuse(f"slot_s must be one number from {SHORTEST_S:g} to {LONGEST_S:g}")
        position = fields.get("position")
        if position is not None and (
            position.dtype.kind not in "fiu"
            or position.shape != (*gain.shape, 3)
            or not (np.abs(position) <= FARTHEST_M).all()
        ):
            raise refuse(
                f"position must be numbers of shape {(*gain.shape, 3)}, {FARTHEST_M:g} m at most"
            )
        seed, scenario = fields.get("seed"), fields.get("scenario")
        if seed is not None and (seed.dtype.kind not in "iu" or seed.size != 1):
            raise refuse("seed must be one integer")
        if scenario is not None and (scenario.dtype.kind != "U" or scenario.size != 1):
            raise refuse("scenario must be one text")
        of_frames = [_of_frames(fields, what, gain.shape, refuse) for what in OF_FRAMES]
        return cls(
            gain=gain,
            slot_s=float(slot),
            position_m=None if position is None else position.astype(np.float64),
            seed=None if seed is None else int(seed),
            scenario=None if scenario is None else str(scenario),
            gain_down=down[0] if down else None,
            are_rates=are_rates,
            loss=of_frames[0],
            delay_s=of_frames[1],
            jitter_s=of_frames[2],
        )


def _of_frames(
    fields: Mapping[str, npt.NDArray[Any]],
    what: str,
    shape: tuple[int, ...],
    refuse: Callable[[str], TraceError],
) -> Array | None:
    """Losses, delays or jitters, shape [2, K, S]; None if the trace has none."""
    both, each = OF_FRAMES[what]
    given = [names for names in (both, each) if any(name in fields for name in names)]
    if len(given) > 1:
        raise refuse(f"has {both[0]} and {each[0]}; give one or the other")
    if not given:
        return None
    most = 1.0 if what == "loss" else LONGEST_DELAY_S
    ways = []
    for name in given[0]:
        if name not in fields:
            raise refuse(f"{name} is missing")
        values = fields[name]
        if values.dtype.kind not in "fiu" or values.shape != shape:
            raise refuse(f"{name} must be numbers of shape {shape}")
        if not ((values >= 0) & (values <= most)).all():
            raise refuse(f"{name} must be from 0 to {most:g}")
        ways.append(values.astype(np.float64))
    return np.stack([ways[0], ways[-1]])


def _values(
    given: npt.NDArray[Any], name: str, are_rates: bool, refuse: Callable[[str], TraceError]
) -> Array:
    """Checked gains or rates."""
    if given.dtype.kind not in "fiu" or given.ndim != 2 or given.size == 0:
        raise refuse(f"{name} must be numbers of shape [K, S], not {given.dtype} {given.shape}")
    values = given.astype(np.float64)
    least, most = (LEAST_BPS, MOST_BPS) if are_rates else (LEAST_GAIN, MOST_GAIN)
    if not (((values == 0) | (values >= least)) & (values <= most)).all():
        raise refuse(f"{name} must be 0 or from {least:g} to {most:g}")
    return np.ascontiguousarray(values)


def _check_sizes(data: bytes) -> None:
    """Refuse a file that claims more data than it has or would need too much memory.

    Raises:
        ValueError: The file is refused; the message names the field.
    """
    total = 0
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if name not in FIELDS:
                continue
            total += member.file_size
            if total > max(EASY_BYTES, MOST_GROWTH * len(data)):
                raise ValueError(f"{name} claims {member.file_size:,} bytes of {len(data):,}")
            # Memory for the file, the array of one field, and its conversion to float64.
            if 3 * total > (free := psutil.virtual_memory().available):
                raise ValueError(f"{name} needs {3 * total:,} bytes of memory, {free:,} are free")
            with archive.open(member) as file:
                version = np.lib.format.read_magic(file)
                read = {
                    (1, 0): np.lib.format.read_array_header_1_0,
                    (2, 0): np.lib.format.read_array_header_2_0,
                }[version]
                shape, _, dtype = read(file)
            if math.prod(shape) * dtype.itemsize > member.file_size:
                raise ValueError(f"{name} claims to be larger than it is")


class ChannelSource(Protocol):
    """A source of channels: a file, or a running ns-3 simulation."""

    @property
    def slot_s(self) -> float:
        """Length of a slot, in seconds."""

    @property
    def uavs(self) -> int:
        """Number of UAVs, K."""

    def trace(self, slots: int) -> ChannelTrace:
        """The trace from slot 0 with at least `slots` slots; earlier slots never change.

        Raises:
            TraceExhausted: The source has fewer.
        """


@dataclass(frozen=True)
class Replay:
    """A `ChannelSource` that replays a given trace."""

    whole: ChannelTrace

    @property
    def slot_s(self) -> float:
        """Length of a slot, in seconds."""
        return self.whole.slot_s

    @property
    def uavs(self) -> int:
        """Number of UAVs, K."""
        return self.whole.uavs

    def trace(self, slots: int) -> ChannelTrace:
        """The whole given trace."""
        if slots > self.whole.slots:
            raise TraceExhausted(self.whole.slots)
        return self.whole
