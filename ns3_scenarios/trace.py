# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Channel traces: the gain of every UAV's channel in every slot, and its origin."""

import dataclasses
import math
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, Protocol, Self, get_args

import numpy as np
import numpy.typing as npt

from ns3_scenarios import npz
from testbed.core.words import did_you_mean
from testbed.system.files import write_whole

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
OF_CELLS = ("gain_cells", "gain_cells_down")
"""Optional gains to further base stations, shape [C, K, S]."""
FIELDS = (
    *(
        name
        for kind in (*KINDS, *(k for kinds in OF_FRAMES.values() for k in kinds))
        for name in kind
    ),
    *("slot_s", "position", "seed", "scenario", "downlink_is"),
    *OF_CELLS,
)
DownlinkIs = Literal["link", "cell"]
"""Kind of a downlink's rate: `link`: the rate of each link, which does not depend on the others in
use; `cell`: the rate of the whole cell, shared by the downlinks in use at the same time."""
MOST_BYTES = 16 << 30
"""Largest size of a file: positions of 10 UAVs over two years of slots."""
_GROWTH = 1.5
"""Factor by which a trace grows at least."""


# Limits for foreign traces, beyond any real channel and flight.
SHORTEST_S, LONGEST_S = 1e-6, 10.0
LEAST_GAIN, MOST_GAIN = 1e-40, 1.0
LEAST_BPS, MOST_BPS = 1e-3, 1e12
FARTHEST_M, HIGHEST_M = 1e6, 2e4
"""Largest coordinates: horizontally, and of the height."""
FASTEST_M_S = 1000.0
LONGEST_DELAY_S = 10.0


class TraceError(Exception):
    """A trace file is invalid; the message names the field."""


class BeyondHorizon(RuntimeError):
    """A caller asked a source for slots that are not known yet: an error of the caller's code."""


class TraceExhausted(Exception):
    """A caller needs more slots than a trace has."""

    def __init__(self, available: int):
        self.available = available
        super().__init__(f"the trace ends after {available} slots")


@dataclass(frozen=True)
class Sites:
    """Several cells as their links see them, slot by slot."""

    strength: Array
    """Signal-to-noise ratio of uplink and downlink between each UAV and each of C cells, without
    interference and over the whole band, linear, shape [2, C, K, S]."""
    load: Array
    """Share of its downlink in which each cell sends for others than the UAVs, shape [C]."""
    kept: Array
    """Share of each slot in which no handover interrupts a UAV, shape [K, S]."""

    @property
    def nbytes(self) -> int:
        """Memory of the values."""
        return self.strength.nbytes + self.kept.nbytes

    def of_slots(self, slots: Any) -> "Sites":
        """These slots."""
        return Sites(self.strength[..., slots], self.load, self.kept[:, slots])

    def of_uavs(self, uavs: Any) -> "Sites":
        """These UAVs."""
        return Sites(self.strength[:, :, uavs], self.load, self.kept[uavs])


@dataclass(frozen=True)
class TwoWay:
    """Slot values of two directions that differ; it can be sliced as an array [K, S]."""

    values: Array
    """Shape [2, K, S], up and down."""
    fading: npt.NDArray[np.float32] | None = None
    """Power of small-scale fading relative to its mean in each of B blocks of a slot, shape
    [2, K, S, B]; None: there is none."""
    cells: npt.NDArray[np.int64] | None = None
    """Number of the cell that serves each UAV, shape [K, S]; None: there is one cell."""
    sites: Sites | None = None
    """With several cells, what interferes when only some links send; None: not known. The values
    are then those while all send."""

    def sharing(self) -> npt.NDArray[np.int64] | None:
        """Number of UAVs in the cell of each UAV, with itself, shape [K, S]; None: one cell."""
        cells = self.cells
        return None if cells is None else np.asarray((cells[:, None] == cells).sum(axis=1))

    @property
    def shape(self) -> tuple[int, ...]:
        """[K, S]."""
        return self.values.shape[1:]

    def __getitem__(self, key: Any) -> "TwoWay":
        own = key if isinstance(key, tuple) else (key,)
        keys = (slice(None), *own)
        sites = self.sites
        if sites is not None:
            sites = sites.of_uavs(own[0])
            sites = sites.of_slots(own[1]) if len(own) > 1 else sites
        return TwoWay(
            self.values[keys],
            None if self.fading is None else self.fading[keys],
            None if self.cells is None else self.cells[key],
            sites,
        )


@dataclass(frozen=True)
class Served:
    """The cells that serve UAVs where there are several, and the gains that are left."""

    gain: Array
    """Gain of uplink and downlink, shape [2, K, S], with which the first cell alone, without
    interference, would have the signal-to-noise ratio that the serving cell has with it."""
    cells: npt.NDArray[np.int64]
    """Number of the cell, shape [K, S]; 0 is the base station, further ones follow."""
    sites: Sites
    """Signals of all cells."""

    @property
    def nbytes(self) -> int:
        """Memory of the values."""
        return self.gain.nbytes + self.cells.nbytes + self.sites.nbytes

    def __getitem__(self, key: Any) -> "Served":
        _, uavs, *slots = key
        sites = self.sites.of_uavs(uavs)
        sites = sites.of_slots(slots[0]) if slots else sites
        return Served(self.gain[key], self.cells[uavs, *slots], sites)


SlotValues = Array | TwoWay
"""Values of a trace for each slot: [K, S] for both directions, or for each. They are linear gains,
or rates in bit/s, depending on the radio access that is made for the trace."""


def both_ways(values: SlotValues) -> tuple[Array, Array]:
    """The values of the uplink and those of the downlink, each with shape [K, S]."""
    if isinstance(values, TwoWay):
        up, down = values.values
        return up, down
    return values, values


def each_way(change: Callable[[Array], Array], values: SlotValues) -> SlotValues:
    """The values with the same change made to both directions, without small-scale fading."""
    if isinstance(values, TwoWay):
        return TwoWay(np.stack([change(way) for way in values.values]), cells=values.cells)
    return change(values)


class SlotTrace:
    """Known properties of the links of K UAVs over S slots; slot 0 starts at t = 0.

    Attributes:
        slot_s: Length of a slot, in seconds.
        begin: Number of the first of these slots; above 0 if a channel has forgotten earlier ones.
        position_m: Shape [K, S, 3]; None if an outside trace has no positions.
        seed: The seed of the trace, if known.
        scenario: JSON text of the scenario from which the trace was made, if known.
        loss: Probability that a frame is lost, up and down, shape [2, K, S]; None: not known.
        delay_s: One-way delay of a frame after its last bit was sent, shape [2, K, S].
        jitter_s: Standard deviation of the delay, shape [2, K, S].
    """

    slot_s: float
    begin: int = 0
    position_m: Array | None
    seed: int | None
    scenario: str | None
    loss: Array | None
    delay_s: Array | None
    jitter_s: Array | None

    @property
    def values(self) -> SlotValues:
        """The slot values of both directions."""
        raise NotImplementedError

    def named(self) -> dict[str, Array]:
        """The slot values by the names that they have in a file (`KINDS`), shape [K, S] each."""
        raise NotImplementedError

    def changed(self, change: Callable[[Array, int], Array]) -> Self:
        """The trace with other slot values.

        Args:
            change: Makes new values out of those of a direction, [K, S]: 0 up (or both), 1 down.
        """
        raise NotImplementedError

    def first(self, slots: int) -> Self:
        """The trace's first slots alone."""
        return self.at(slice(slots))

    def at(self, slots: "slice | npt.NDArray[np.int64]") -> Self:
        """A trace of the given slots only, in the given order."""
        chosen: dict[str, Any] = {
            name: values[(*[slice(None)] * axis, slots)]
            for name, axis in PER_SLOT.items()
            if (values := getattr(self, name, None)) is not None
        }
        return self.replaced(**chosen)

    def replaced(self, **fields: Any) -> Self:
        """The trace with other values of these fields."""
        return dataclasses.replace(self, **fields)  # type: ignore[type-var]

    @property
    def uavs(self) -> int:
        """K."""
        return int(self.values.shape[0])

    @property
    def slots(self) -> int:
        """S."""
        return int(self.values.shape[1])

    @property
    def end(self) -> int:
        """Number of the slot after the last one."""
        return self.begin + self.slots

    @property
    def bytes(self) -> int:
        """Memory of the values of all slots."""
        given = (getattr(self, name, None) for name in PER_SLOT)
        return sum(values.nbytes for values in given if values is not None)

    def save(self, path: Path) -> None:
        """Write the trace as NPZ: its slot values, slot_s, and position, seed, scenario if known.

        The file is written atomically.
        """
        write_whole(path, lambda part: npz.write(part, self.arrays()))

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays of the trace by the names that they have in a file (`FIELDS`)."""
        arrays: dict[str, Any] = {**self.named(), "slot_s": np.float64(self.slot_s)}
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
        if isinstance(self, ChannelTrace) and self.gain_cells is not None:
            arrays["gain_cells"] = self.gain_cells
            if self.gain_cells_down is not None:
                arrays["gain_cells_down"] = self.gain_cells_down
        if isinstance(self, RateTrace) and self.downlink_is is not None:
            arrays["downlink_is"] = np.str_(self.downlink_is)
        return {name: np.asarray(values) for name, values in arrays.items()}


@dataclass(frozen=True)
class ChannelTrace(SlotTrace):
    """Channel gains of K UAVs over S slots."""

    gain: Array
    """Shape [K, S], linear power gain; 0 is an outage. The uplink's where the directions differ."""
    slot_s: float
    position_m: Array | None = None
    seed: int | None = None
    scenario: str | None = None
    gain_down: Array | None = None
    """Gains of the downlink, if they differ from the uplink's."""
    loss: Array | None = None
    delay_s: Array | None = None
    jitter_s: Array | None = None
    fading: npt.NDArray[np.float32] | None = None
    """Small-scale fading as `TwoWay.fading`, which is not in `gain` and is not saved."""
    gain_cells: Array | None = None
    """Gains to C further base stations, shape [C, K, S], the uplink's where the directions differ;
    None: there are none."""
    gain_cells_down: Array | None = None
    """Gains of the downlink in all cells, if they differ from the uplink's."""
    served: Served | None = None
    """The cell of each UAV with the fraction of its gains that interference leaves; not saved."""
    begin: int = 0

    @cached_property
    def values(self) -> SlotValues:
        """The gains of both directions: those of `served` where there are several cells."""
        if self.served is not None:
            return TwoWay(self.served.gain, cells=self.served.cells, sites=self.served.sites)
        if self.gain_down is None and self.fading is None:
            return self.gain
        down = self.gain if self.gain_down is None else self.gain_down
        return TwoWay(np.stack([self.gain, down]), self.fading)

    @property
    def of_all_cells(self) -> tuple[Array, Array]:
        """Gains of uplink and downlink to the base station and then to the C further ones, shape
        [1 + C, K, S] each."""
        none = np.empty((0, *self.gain.shape))
        up = none if self.gain_cells is None else self.gain_cells
        down = up if self.gain_cells_down is None else self.gain_cells_down
        own = self.gain if self.gain_down is None else self.gain_down
        return np.concatenate([self.gain[None], up]), np.concatenate([own[None], down])

    def named(self) -> dict[str, Array]:
        """See `SlotTrace.named`."""
        if self.gain_down is None:
            return {"gain": self.gain}
        return {"gain_up": self.gain, "gain_down": self.gain_down}

    def changed(self, change: Callable[[Array, int], Array]) -> Self:
        """See `SlotTrace.changed`."""
        down = None if self.gain_down is None else change(self.gain_down, 1)
        served = self.served
        if served is not None:
            ways = [change(gain, way) for way, gain in enumerate(served.gain)]
            made = np.stack(ways)
            with np.errstate(invalid="ignore"):
                scale = np.nan_to_num(made / served.gain)
            sites = dataclasses.replace(
                served.sites, strength=served.sites.strength * scale[:, None]
            )
            served = Served(made, served.cells, sites)
        return dataclasses.replace(self, gain=change(self.gain, 0), gain_down=down, served=served)


@dataclass(frozen=True)
class RateTrace(SlotTrace):
    """Rates that the links of K UAVs carry over S slots."""

    uplink_bps: Array
    """Shape [K, S], in bit/s; 0 is an outage."""
    downlink_bps: Array
    """Shape [K, S], in bit/s; 0 is an outage."""
    slot_s: float
    position_m: Array | None = None
    seed: int | None = None
    scenario: str | None = None
    loss: Array | None = None
    delay_s: Array | None = None
    jitter_s: Array | None = None
    downlink_is: DownlinkIs | None = None
    """Whether `downlink_bps` are rates of links or of the whole cell; None: not known."""

    @cached_property
    def values(self) -> SlotValues:
        """The rates of both directions."""
        return TwoWay(np.stack([self.uplink_bps, self.downlink_bps]))

    def named(self) -> dict[str, Array]:
        """See `SlotTrace.named`."""
        return {"uplink_bps": self.uplink_bps, "downlink_bps": self.downlink_bps}

    def changed(self, change: Callable[[Array, int], Array]) -> Self:
        """See `SlotTrace.changed`."""
        up, down = change(self.uplink_bps, 0), change(self.downlink_bps, 1)
        return dataclasses.replace(self, uplink_bps=up, downlink_bps=down)


def describe(trace: SlotTrace) -> str:
    """A trace in one line: its UAVs, time, extent and heights, gains or rates, and outages.

    An outage is a slot in which a UAV's gain or rate of some direction is 0.
    """
    words = [
        _several(trace.uavs, "UAV"),
        f"{_several(trace.slots, 'slot')} of {_short(trace.slot_s)} s "
        f"({_short(trace.slots * trace.slot_s)} s)",
    ]
    if trace.position_m is not None:
        words.append(extent(trace.position_m))
    words += [_range_of(name, values) for name, values in trace.named().items()]
    up, down = both_ways(trace.values)
    parts = npz.blocks(up)
    if outages := sum(int(((up[index] == 0) | (down[index] == 0)).sum()) for index in parts):
        words.append(_several(outages, "outage"))
    return ", ".join(words)


def extent(position_m: Array) -> str:
    """The extent and the heights of positions [K, S, 3] in words."""
    ends_m = [_ends(position_m[index]) for index in npz.blocks(position_m)]
    ends = _ends(np.concatenate(ends_m))
    east, north, _ = np.ptp(ends, axis=(0, 1)).round(1)
    return (
        f"{_short(east)} m east-west x {_short(north)} m north-south, "
        f"heights {span(ends[..., 2].round(1))} m"
    )


def _ends(position_m: Array) -> Array:
    """The lowest and the highest coordinates of positions [K, S, 3], shape [1, 2, 3]."""
    return np.stack([position_m.min(axis=(0, 1)), position_m.max(axis=(0, 1))])[None]


def _range_of(name: str, values: Array) -> str:
    """The range of the gains or rates of a field, without those that are 0."""
    some = (values[index][values[index] > 0] for index in npz.blocks(values))
    known = np.array([end for part in some if part.size for end in (part.min(), part.max())])
    gains = {"gain_up": "uplink gains", "gain_down": "downlink gains", "gain": "gains"}
    if what := gains.get(name):
        decibels = (10 * np.log10(known)).round(1)
        return f"{what} {span(decibels)} dB" if known.size else f"{what} 0"
    units = {1e9: "Gbit/s", 1e6: "Mbit/s", 1e3: "kbit/s", 1.0: "bit/s"}
    factor = max((factor for factor in units if known.max(initial=0) >= factor), default=1.0)
    return f"{name.removesuffix('_bps')} {span(known / factor)} {units[factor]}"


def _several(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _short(number: float) -> str:
    """A number with few digits, without an exponent where it has up to nine."""
    number = float(f"{number:.9g}")  # without the error of a product
    return f"{number:.9g}" if number == round(number, 1) else f"{number:.4g}"


def span(values: Array) -> str:
    """The smallest and the largest value, or 0 where there is none."""
    if not values.size:
        return "0"
    low, high = (_short(float(value)) for value in (values.min(), values.max()))
    return low if low == high else f"{low} to {high}"


PER_SLOT = {
    **dict.fromkeys(("gain", "gain_down", "uplink_bps", "downlink_bps", "position_m"), 1),
    **dict.fromkeys(("loss", "delay_s", "jitter_s", "fading", "served"), 2),
    **dict.fromkeys(OF_CELLS, 2),
}
"""Fields of traces that have an entry for each slot, with the axis of the slots."""


def save_pieces(path: Path, pieces: Iterable[SlotTrace], slots: int) -> None:
    """Write the trace that consists of consecutive pieces; the file equals that of
    `SlotTrace.save`.

    Only one piece at a time is in memory. The folder of the file needs space for it twice.

    Args:
        path: The file, which is written atomically.
        pieces: The pieces, which have the same fields.
        slots: Number of slots of all pieces together, S.
    """

    def fill(part: Path) -> None:
        with ExitStack() as opened:
            whole: dict[str, npt.NDArray[Any] | npz.Spooled] = {}
            for piece in pieces:
                for name, values in piece.arrays().items():
                    if values.ndim < 2:  # the same in each piece
                        whole[name] = values
                        continue
                    axis = 2 if name in OF_CELLS else 1
                    if name not in whole:
                        shape = (*values.shape[:axis], slots, *values.shape[axis + 1 :])
                        spooled = npz.Spooled(part.parent, shape, values.dtype, axis)
                        whole[name] = opened.enter_context(closing(spooled))
                    found = whole[name]
                    assert isinstance(found, npz.Spooled)
                    found.add(values)
            npz.write(part, whole)

    write_whole(path, fill)


def load_trace(path: Path) -> ChannelTrace | RateTrace:
    """Read an NPZ trace; one of `KINDS` and `slot_s` suffice.

    Large arrays without compression are checked, and then mapped instead of being held in memory.

    Raises:
        TraceError: The file is not such a trace; the message names the field.
    """
    return trace_of(read_arrays(path, FIELDS), str(path))


def read_arrays(
    path: Path, names: Sequence[str], unread: Sequence[str] = ()
) -> dict[str, npt.NDArray[Any]]:
    """Read the named arrays as far as an NPZ file has them, without any pickled object.

    Args:
        path: The file.
        names: The arrays that are read.
        unread: Further arrays that the file may have.

    Raises:
        TraceError: The file is missing or broken, has an array with another name, or an array is
            larger than it may be.
    """
    try:
        _check_names(npz.names(path, MOST_BYTES), [*names, *unread], str(path))
        return npz.read(path, names, MOST_BYTES)
    except TraceError:
        raise
    except FileNotFoundError:
        raise TraceError(f"{path}: no such file") from None
    except zipfile.BadZipFile:
        raise TraceError(
            f"{path}: not an NPZ trace, or incomplete; `testbed import` reads files of other tools"
        ) from None
    except Exception as error:  # numpy, zipfile and zlib have a dozen kinds for broken bytes
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise TraceError(f"{path}: not an NPZ trace ({reason})") from None


def _check_names(given: Iterable[str], known: Sequence[str], source: str) -> None:
    """Refuse an array whose name is not known, such as a misspelt one."""
    for name in given:
        if name not in known:
            hint = did_you_mean(name, known)
            raise TraceError(f"{source}: the field {name[:40]!r} is unknown{hint}")


def trace_of(given: Mapping[str, Any], source: str) -> ChannelTrace | RateTrace:
    """The trace of these fields, named as in a file; one of `KINDS` and `slot_s` suffice.

    Raises:
        TraceError: A field is not valid; the message names source and field.
    """

    def refuse(what: str) -> TraceError:
        return TraceError(f"{source}: {what}")

    _check_names(given, FIELDS, source)
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
    slot_s = checked_slot_s(fields["slot_s"], refuse)
    position = fields.get("position")
    if position is not None:
        check_positions(position, gain.shape, slot_s, refuse)
    seed, scenario = fields.get("seed"), fields.get("scenario")
    if seed is not None and (seed.dtype.kind not in "iu" or seed.size != 1):
        raise refuse("seed must be one integer")
    if scenario is not None and (scenario.dtype.kind != "U" or scenario.size != 1):
        raise refuse("scenario must be one text")
    of_frames = [_of_frames(fields, what, gain.shape, refuse) for what in OF_FRAMES]
    common: dict[str, Any] = {
        "slot_s": slot_s,
        "position_m": None if position is None else _as_floats(position),
        "seed": None if seed is None else int(seed),
        "scenario": None if scenario is None else str(scenario),
        **dict(zip(("loss", "delay_s", "jitter_s"), of_frames, strict=True)),
    }
    downlink_is = fields.get("downlink_is")
    if downlink_is is not None and not are_rates:
        raise refuse("downlink_is belongs to rates; this trace has gains")
    cells = {name: fields[name] for name in OF_CELLS if name in fields}
    if cells and are_rates:
        raise refuse(f"{next(iter(cells))} belongs to gains; this trace has rates")
    if list(cells) == ["gain_cells_down"]:
        raise refuse("gain_cells_down needs gain_cells, which are the gains of the uplink then")
    if downlink_is is not None and str(downlink_is) not in get_args(DownlinkIs):
        raise refuse(f"downlink_is must be 'link' or 'cell', not {str(downlink_is)[:40]!r}")
    if are_rates:
        whose: Any = None if downlink_is is None else str(downlink_is)
        return RateTrace(gain, down[0], **common, downlink_is=whose)
    common |= {name: _further(name, given, gain.shape, refuse) for name, given in cells.items()}
    if len({given.shape for given in cells.values()}) > 1:
        raise refuse("gain_cells_down must have the shape of gain_cells")
    return ChannelTrace(gain, gain_down=down[0] if down else None, **common)


def _further(
    name: str,
    given: npt.NDArray[Any],
    shape: tuple[int, ...],
    refuse: Callable[[str], TraceError],
) -> Array:
    """Checked gains to further base stations, shape [C, K, S]."""
    if given.ndim != 3 or not given.size or given.shape[1:] != shape:
        of = ", ".join(map(str, shape))
        raise refuse(f"{name} must be numbers of shape [C, {of}], not {given.shape}")
    return np.stack([_values(cell, f"{name}[{c}]", False, refuse) for c, cell in enumerate(given)])


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
        check_each(name, values, _within(0, most), f"from 0 to {most:g}", refuse)
        ways.append(values.astype(np.float64))
    return np.stack([ways[0], ways[-1]])


def _values(
    given: npt.NDArray[Any], name: str, are_rates: bool, refuse: Callable[[str], TraceError]
) -> Array:
    """Checked gains or rates."""
    if given.dtype.kind not in "fiu" or given.ndim != 2 or given.size == 0:
        raise refuse(
            f"{name} must be numbers of shape [K, S], not of shape {[*given.shape]}"
            + ("" if given.dtype.kind in "fiu" else ", which are no numbers")
        )
    values = _as_floats(given)
    least, most = (LEAST_BPS, MOST_BPS) if are_rates else (LEAST_GAIN, MOST_GAIN)
    rule = "a linear power gain is at most 1; dB values are converted by 10**(dB/10)"
    if are_rates:
        rule = f"a rate is at most {MOST_BPS:g} bit/s, and not negative"
    check_each(name, values, _within(0, most), rule, refuse)
    rule = f"must be 0, which is an outage, or at least {least:g}"
    check_each(name, values, lambda part: (part == 0) | (part >= least), rule, refuse)
    return np.ascontiguousarray(values)


def _as_floats(given: npt.NDArray[Any]) -> Array:
    """The numbers as float64; those that cannot be changed, as in a mapped file, are not copied."""
    return np.asarray(given.astype(np.float64, copy=given.flags.writeable))


def _within(least: float, most: float) -> Callable[[npt.NDArray[Any]], npt.NDArray[np.bool_]]:
    """Whether values are from `least` to `most`."""
    return lambda part: (part >= least) & (part <= most)


def checked_slot_s(given: npt.NDArray[Any], refuse: Callable[[str], TraceError]) -> float:
    """The length of a slot in s.

    Raises:
        TraceError: The value is not a single number, or out of range.
    """
    if (
        given.dtype.kind not in "fiu"
        or given.size != 1
        or not (SHORTEST_S <= float(given.ravel()[0]) <= LONGEST_S)
    ):
        raise refuse(
            f"slot_s must be one number from {SHORTEST_S:g} to {LONGEST_S:g}, not {_shown(given)}"
        )
    return float(given.ravel()[0])


def check_positions(
    given: npt.NDArray[Any],
    shape: tuple[int, ...],
    slot_s: float,
    refuse: Callable[[str], Exception],
) -> None:
    """Refuse positions, or flights, that are impossible for UAVs.

    Args:
        given: Positions in m, shape [K, S, 3].
        shape: The shape that they must have, (K, S).
        slot_s: Length of a slot, s.
        refuse: Function that makes the exception.

    Raises:
        TraceError: A position, or the speed between two of them, is not possible.
    """
    if given.dtype.kind not in "fiu" or given.shape != (*shape, 3):
        raise refuse(
            f"position must be numbers of shape {(*shape, 3)}, not {given.dtype} {given.shape}"
        )
    largest_m = np.max([_largest(given[index]) for index in npz.blocks(given)])
    for axis, most, what in (
        (slice(2), FARTHEST_M, "x and y are"),
        (slice(2, 3), HIGHEST_M, "the height is"),
    ):
        if largest_m <= most:
            continue
        fits = partial(_near, axis, most)
        rule = f"{what} at most {most:g} m from 0"
        check_each("position", given, fits, rule, refuse)
    for index in npz.blocks(given):
        uav, first, end = index[0].start, 0, shape[1]
        if len(index) > 1:  # with the slot after it
            first, end = index[1].start, index[1].stop + 1
        path = given[index[0], first:end].astype(np.float64, copy=False)
        step_m = np.diff(path, axis=1)
        if not step_m.size or _largest(step_m) <= FASTEST_M_S * slot_s / 2:  # in each direction
            continue
        speed_m_s = np.linalg.norm(step_m, axis=2) / slot_s
        if (fast := speed_m_s > FASTEST_M_S).any():
            k, s = np.argwhere(fast)[0]
            raise refuse(
                f"position[{uav + k}, {first + s + 1}] would need {speed_m_s[k, s]:.4g} m/s "
                f"from the slot before; a UAV flies at most {FASTEST_M_S:g} m/s "
                f"(UAV {uav + k + 1}, slot {first + s + 1})"
            )


def _near(axis: slice, most: float, position: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Whether these coordinates of positions [K, S, 3] are near enough to 0, shape [K, S]."""
    return np.asarray((np.abs(position[..., axis]) <= most).all(axis=2))


def _largest(values: npt.NDArray[Any]) -> float:
    """The largest absolute value, or NaN if a value is NaN; it is fast to compute."""
    return float(max(float(values.max()), -float(values.min())))


def check_each(
    name: str,
    values: npt.NDArray[Any],
    fits: Callable[[npt.NDArray[Any]], npt.NDArray[np.bool_]],
    rule: str,
    refuse: Callable[[str], Exception],
) -> None:
    """Refuse the first value that does not fit: its place, itself, and the rule.

    Args:
        name: The field.
        values: Shape [K, S], or [K, S, 3].
        fits: Whether values are valid, with shape [n, m] for n UAVs and m slots; it is called for
            a part of them at a time.
        rule: The rule for the values, for the message.
        refuse: Function that makes the exception.

    Raises:
        TraceError: A value does not fit.
    """
    for index in npz.blocks(values):
        fit = fits(values[index])
        if not fit.all():
            k, s = np.argwhere(~fit)[0] + (index[0].start, index[1].start if index[1:] else 0)
            what = f"{name}[{k}, {s}] is {_shown(values[k, s])}: {rule} (UAV {k + 1}, slot {s})"
            raise refuse(what)


def _shown(value: npt.NDArray[Any]) -> str:
    """A value, or the three of a position, in a message; at most 60 characters."""
    if value.dtype.kind not in "fiu":
        return str(value)[:60]
    words = ["NaN" if math.isnan(one) else f"{one:g}" for one in np.ravel(value)[:3].astype(float)]
    return words[0] if value.size == 1 else f"({', '.join(words)})"


class ChannelSource(Protocol):
    """A source of channels: a file, or a running ns-3 simulation."""

    @property
    def slot_s(self) -> float:
        """Length of a slot, in seconds."""

    @property
    def uavs(self) -> int:
        """Number of UAVs, K."""

    @property
    def horizon(self) -> int | None:
        """Number of slots for which the source can be asked beyond those that it has made; None:
        any number. It is 1 if the flight depends on what happens in the slots before."""

    def trace(self, slots: int) -> SlotTrace:
        """The trace from slot 0 with at least `slots` slots; earlier slots never change.

        Raises:
            TraceExhausted: The source has fewer.
            BeyondHorizon: They are more than the source can be asked for.
        """


class Located(Protocol):
    """A source of gains with positions."""

    @property
    def slot_s(self) -> float:
        """Length of a slot, in seconds."""

    @property
    def uavs(self) -> int:
        """Number of UAVs, K."""

    @property
    def horizon(self) -> int | None:
        """See `ChannelSource.horizon`."""

    def following(self, slots: int) -> ChannelTrace:
        """The next slots, at least `slots` in the first call, which the source does not keep."""

    def close(self) -> None:
        """Release the resources of the source."""


class _Growing:
    """An array that grows along the axis of its slots.

    Args:
        axis: The axis.
        spare: Whether memory is reserved, so that many small additions cost as much as a few large
            ones. The array is then not contiguous.
    """

    def __init__(self, axis: int, spare: bool):
        self._axis, self._spare, self._slots = axis, spare, 0

    def added(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The whole array with further values, read-only."""
        axis, have = self._axis, self._slots
        self._slots = end = have + values.shape[axis]
        before = (*[slice(None)] * axis, slice(have))
        if not have and not self._spare:
            self._array = np.ascontiguousarray(values)
        elif not have or end > self._array.shape[axis]:
            shape = list(values.shape)
            shape[axis] = max(end, 2 * have) if self._spare else end
            grown = np.empty(shape, values.dtype)
            if have:
                grown[before] = self._array[before]
            self._array = grown
        if have or self._spare:
            self._array[(*[slice(None)] * axis, slice(have, end))] = values
        view = self._array[(*[slice(None)] * axis, slice(end))]
        view.flags.writeable = False
        return view


class Kept:
    """A `ChannelSource` that keeps the slots that it makes, one call of `following` after another.

    Use as a context manager, or `close` it.
    """

    def __init__(self) -> None:
        self._kept: ChannelTrace | None = None
        self._grown: dict[str, _Growing] = {}

    @property
    def slot_s(self) -> float:
        """Length of a slot, in seconds."""
        raise NotImplementedError

    @property
    def uavs(self) -> int:
        """Number of UAVs, K."""
        raise NotImplementedError

    @property
    def horizon(self) -> int | None:
        """See `ChannelSource.horizon`."""
        raise NotImplementedError

    def following(self, slots: int) -> ChannelTrace:
        """The next slots, which the caller keeps; see `Located.following`.

        A source is used by this method or by `trace`, not by both.

        Raises:
            ChannelError: ns-3 ended, a model failed, or the channel does not hold.
        """
        raise NotImplementedError

    def trace(self, slots: int) -> ChannelTrace:
        """The trace from slot 0 with at least `slots` slots; earlier slots never change.

        The arrays are read-only. The first call computes the requested number of slots. Later ones
        extend the trace by at least half of its length where the horizon allows it, so that many
        small calls cost as much as a few large ones. The same object is returned until more slots
        are needed.

        Raises:
            ChannelError: See `following`.
            BeyondHorizon: They are more than the source can be asked for.
        """
        kept = self._kept
        begin, have = (0, 0) if kept is None else (kept.begin, kept.end)
        if kept is None or slots > have:
            check_horizon(self.horizon, have, slots)
            more = begin + int((have - begin) * _GROWTH)
            ahead = max(slots, 1 if self.horizon else more, 1)
            self._kept = kept = self._extended(self.following(ahead - have), begin)
        return kept

    def forget(self, slots: int) -> ChannelTrace:
        """Forget the first slots; returns the trace of the others. Returned traces stay valid."""
        kept = self._kept
        assert kept is not None
        self._grown = {}
        self._kept = self._extended(kept.at(slice(slots - kept.begin, None)), slots)
        return self._kept

    @property
    def flight(self) -> object:
        """The flight of the UAVs, if it is not that of ns-3."""
        return None

    def rewind(self, slots: int) -> None:
        """Forget all slots but the first ones, so that the next ones are made again. Only for a
        source without memory. Returned traces stay as they are."""
        if self._kept is not None and self._kept.slots > slots:
            kept, self._grown = self._kept.first(slots), {}
            self._kept = self._extended(kept.at(np.arange(slots)), 0)
            self._rewound(slots)

    def _rewound(self, slots: int) -> None:
        """Let the next slot that is made be this one."""
        raise NotImplementedError

    def _extended(self, piece: ChannelTrace, begin: int) -> ChannelTrace:
        """The kept trace, whose first slot has this number, and its next slots."""

        def added(name: str, axis: int, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
            if name not in self._grown:
                self._grown[name] = _Growing(axis, self.horizon is not None)
            return self._grown[name].added(values)

        whole: dict[str, Any] = {}
        for name, axis in PER_SLOT.items():
            values = getattr(piece, name, None)
            if isinstance(values, Served):
                sites = values.sites
                whole[name] = Served(
                    added("served", 2, values.gain),
                    added("cells", 1, values.cells),
                    Sites(
                        added("strength", 3, sites.strength),
                        sites.load,
                        added("left", 1, sites.kept),
                    ),
                )
            elif values is not None:
                whole[name] = added(name, axis, values)
        return piece.replaced(**whole, begin=begin)

    def close(self) -> None:
        """Release the resources of the source. Returned traces stay valid."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_horizon(horizon: int | None, have: int, slots: int) -> None:
    """Refuse to make slots that are not known yet.

    Args:
        horizon: See `ChannelSource.horizon`.
        have: Number of slots that were made.
        slots: Number of slots that are asked for.

    Raises:
        BeyondHorizon: They are too many.
    """
    if horizon is not None and slots > have + horizon:
        raise BeyondHorizon(
            f"{slots:,} slots were asked for, but {have:,} are made: this channel can be asked for "
            f"{horizon:,} more, because its flight depends on what happens until then"
        )


class Derived(Kept):
    """A `ChannelSource` that is made from another one, and closes it."""

    def __init__(self, source: Located):
        super().__init__()
        self._source = source

    @property
    def slot_s(self) -> float:
        """Length of a slot, in seconds."""
        return self._source.slot_s

    @property
    def uavs(self) -> int:
        """Number of UAVs, K."""
        return self._source.uavs

    @property
    def horizon(self) -> int | None:
        """See `ChannelSource.horizon`."""
        return self._source.horizon

    @property
    def flight(self) -> object:
        """See `Kept.flight`."""
        return getattr(self._source, "flight", None)

    def close(self) -> None:
        """Close the source, e.g. the process of ns-3. Returned traces stay valid."""
        self._source.close()


@dataclass(frozen=True)
class Replay:
    """A `ChannelSource` that replays a given trace."""

    whole: SlotTrace
    horizon = None
    """All slots are there."""

    @property
    def slot_s(self) -> float:
        """Length of a slot, in seconds."""
        return self.whole.slot_s

    @property
    def uavs(self) -> int:
        """Number of UAVs, K."""
        return self.whole.uavs

    def trace(self, slots: int) -> SlotTrace:
        """The given trace, whole."""
        if slots > self.whole.slots:
            raise TraceExhausted(self.whole.slots)
        return self.whole


class Held(Replay):
    """A trace that stays as in its last slot."""

    def trace(self, slots: int) -> SlotTrace:
        """The trace from slot 0 with at least `slots` slots."""
        whole = self.whole
        more = max(slots, whole.slots)
        return (
            whole if more == whole.slots else whole.at(np.minimum(np.arange(more), whole.slots - 1))
        )


class GivenTrace(Replay):
    """A trace of the user, which replaces the scenario's own channel."""
