# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The C interface of the compiled part of the engine (``core/``), for ctypes.

The library is built once per machine with g++ (two seconds), with every radio, every model of TCP
and every variant of the plain round in it. Classes here mirror the structures of the same names;
they keep the arrays to which their pointers point.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ns3_scenarios.trace import SlotValues, TwoWay
from orchestrator.engine.arrays import Array, Ints
from testbed.core.errors import RunError
from testbed.system import building

SHANNON, GIVEN, LTE, WIFI, CURVE, NR = range(6)
"""Kinds of radios, the enumeration `Kind`."""
EXHAUSTED = float("inf")
"""The end of a transfer that does not end before the trace does."""

_SOURCES = Path(__file__).parent / "core"
_SHARED = Path(__file__).parents[2] / "ns3_scenarios" / "cpp" / "lte"
"""Folder of the code that LTE's rate model shares with the scheduler in ns-3."""
Function = tuple[str, Any, Sequence[Any]]
"""A function of a library: its name, the type of its result, and those of its arguments."""
_Double, _Int, _Long, _Pointer = ctypes.c_double, ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p


@cache
def library() -> ctypes.CDLL:
    """The library, which is built if there is none.

    Raises:
        RunError: It cannot be built.
    """
    pointers = [_Pointer]
    functions: list[Function] = [
        ("link_bytes", _Long, []),
        ("engine_links", None, [_Pointer, _Int, *3 * pointers]),
        ("engine_rates", None, [_Pointer, _Pointer, _Long, _Long, _Long, _Pointer]),
        ("engine_used", None, [_Pointer, _Pointer, _Long, _Pointer]),
        ("engine_turn", _Long, [*3 * [_Long], _Pointer]),
        ("engine_shannon", None, [_Pointer, _Pointer, _Long, _Pointer]),
        ("engine_rate", _Double, [_Pointer, _Int, _Long, _Double]),
        ("engine_transfer", _Double, [_Pointer, _Int, _Long, _Long, _Double]),
        ("engine_note", _Double, [_Pointer, _Int, _Long, _Double, _Int]),
        ("engine_served", _Double, [_Pointer, _Int, _Long, _Long, _Double, _Long]),
        ("engine_arrival", _Double, [_Pointer, _Int, _Long, _Double]),
        ("engine_clear", None, [_Pointer, _Double]),
        ("engine_begin", None, [_Pointer, _Int, _Long, _Double, _Double]),
        ("engine_end", None, [_Pointer, _Int, _Long]),
        ("engine_advance", _Long, [_Pointer, _Double, _Pointer]),
        ("engine_repeated", _Long, [*5 * pointers, _Double, _Long, *8 * pointers]),
        ("engine_rounds", _Long, [*7 * pointers, _Double, _Int, _Long, *12 * pointers]),
        ("engine_served_in", _Double, 2 * pointers),
        ("engine_best_sequence", _Double, [_Pointer, _Double]),
        ("engine_whitened", _Double, [*2 * pointers, _Long, _Long, _Double, _Double, _Pointer]),
    ]
    try:
        return native("engine", _SOURCES / "core.cc", functions)
    except building.BuildError as error:
        raise RunError(f"the engine cannot be built: {error}") from None


def native(name: str, source: Path, functions: Sequence[Function]) -> ctypes.CDLL:
    """The library of a C++ file, which may include those of the engine.

    Args:
        name: First part of the library's name.
        source: The file.
        functions: Its functions, with types of results and arguments.

    Raises:
        BuildError: See `building.built`.
    """
    inputs = {source, *_SOURCES.iterdir(), *_SHARED.iterdir()}
    options = [*building.LIBRARY, "-x", "c++", "-"]
    made = ctypes.CDLL(str(building.built(name, [source], [*inputs], options)))
    for function, result, arguments in functions:
        found = getattr(made, function)
        found.restype, found.argtypes = result, arguments
    return made


def pointer(array: npt.NDArray[Any] | None) -> int | None:
    """The address of a contiguous array; None stands for a null pointer."""
    if array is None:
        return None
    assert array.flags.c_contiguous
    return int(array.__array_interface__["data"][0])


class _Structure(ctypes.Structure):
    """A structure that keeps what its pointers point to."""

    def _keep(self, **arrays: npt.NDArray[Any] | None) -> None:
        """Point fields to arrays, and keep these."""
        self._kept = [*getattr(self, "_kept", []), *arrays.values()]
        for name, array in arrays.items():
            setattr(self, name, pointer(array))

    @property
    def address(self) -> int:
        """Where the structure is."""
        return ctypes.addressof(self)


class Steps(_Structure):
    """A direction of a radio whose rates are steps.

    Args:
        least: Least SNR or gain of each step but the first, shape [L], or [K, L] for each UAV.
        bps: Bit/s, shape [N + 1, L + 1]: a row for each number of resource blocks or senders.
        blocks: Number of resource blocks.
    """

    _fields_ = (("least", _Pointer), ("bps", _Pointer), ("steps", _Long), ("blocks", _Long))

    def __init__(self, least: Array, bps: Array, blocks: int = 0):
        super().__init__(steps=least.shape[-1], blocks=blocks)
        self._keep(least=least, bps=bps)


class Bands(_Structure):
    """A radio."""

    _fields_ = (
        *(("kind", _Int), ("shared", _Int), ("clients", _Long)),
        *((name, _Double) for name in ("uplink_hz", "downlink_hz", "noise_w_per_hz")),
        *(("downlink_power_w", _Double), ("uplink", _Pointer), ("downlink_snr", _Double)),
        *(("up", Steps), ("down", Steps), ("curve", _Pointer), ("grants", _Long)),
    )

    def __init__(
        self,
        kind: int,
        uplink: Array,
        *,
        shared: bool = False,
        steps: tuple[Steps, Steps] | None = None,
        curve: int | None = None,
        grants: int = 0,
        **numbers: float,
    ):
        """Make a radio.

        Args:
            kind: One of the kinds above.
            uplink: Transmit powers in W; for LTE and NR, the SNR in one resource block at gain
                1. Shape [K].
            shared: GIVEN: whether a rate of the downlink is that of the whole cell. LTE, NR:
                whether those that are active share the resource blocks.
            steps: Rates of uplink and downlink, for LTE, NR and WIFI.
            curve: For CURVE, the address of a C function from SNR and bandwidth in Hz to bit/s.
            grants: For LTE, the largest number of uplinks in a TTI; 0: any number.
            **numbers: Bandwidths, noise, and power or SNR of the downlink.
        """
        own = {"kind": kind, "shared": shared, "curve": curve, "grants": grants}
        super().__init__(clients=len(uplink), **own, **numbers)
        self._keep(uplink=np.ascontiguousarray(uplink, float))
        if steps is not None:
            self.up, self.down = steps
            self._kept.append(steps)


class Slots(_Structure):
    """A channel trace.

    Args:
        values: Gains or rates of each slot, shape [K, S] or for each direction.
        slot_s: Length of a slot.
        edges_s: Shape [S + 1]: the moments at which slots begin, in place of the multiples of
            `slot_s`.
        begin: Number of the first of these slots; see `SlotTrace.begin`.
    """

    _fields_ = (
        ("values", _Pointer),
        *((name, _Long) for name in ("ways", "clients", "slots", "begin")),
        *(("slot_s", _Double), ("edges_s", _Pointer), ("fading", _Pointer), ("blocks", _Long)),
        *((name, _Pointer) for name in ("cells", "strength", "load", "kept")),
        ("sites", _Long),
    )

    def __init__(
        self, values: SlotValues, slot_s: float, edges_s: Array | None = None, begin: int = 0
    ):
        fading, cells, sites, given = None, None, None, values
        if isinstance(values, TwoWay):
            fading, cells, sites, given = values.fading, values.cells, values.sites, values.values
        table = np.ascontiguousarray(given, float)
        if table.ndim == 2:
            table = table[None]
        ways, clients, slots = table.shape
        end = begin + slots
        super().__init__(ways=ways, clients=clients, slots=end, begin=begin, slot_s=slot_s)
        self._keep(
            values=table,
            edges_s=None if edges_s is None else np.ascontiguousarray(edges_s, float),
            fading=None if fading is None else np.ascontiguousarray(fading, np.float32),
            cells=None if cells is None else np.ascontiguousarray(cells, np.int64),
        )
        if sites is not None:
            self.sites = sites.strength.shape[1]
            self._keep(
                **{
                    name: np.ascontiguousarray(getattr(sites, name), float)
                    for name in ("strength", "load", "kept")
                }
            )
        self.blocks = 0 if fading is None else fading.shape[-1]

    @property
    def end_s(self) -> float:
        """End of the trace."""
        edges_s = self._kept[1]
        return self.slots * self.slot_s if edges_s is None else float(edges_s[self.slots])


class Links:
    """The links of a round, [3, K].

    Args:
        bands: The radio.
        in_turns: Whether each gradient has the whole downlink.
        beta: Shares of the bandwidth, shape [K].
        rho: Shares of the downlink's power, shape [K].
        uplink_beta: Shares of the uplink's bandwidth, if they are others.
    """

    def __init__(
        self,
        bands: Bands,
        in_turns: bool,
        beta: Array,
        rho: Array,
        uplink_beta: Array | None = None,
    ):
        self._bands = bands
        size = bands.clients * library().link_bytes()
        self._room = np.empty(3 * size, np.uint8)
        self._fill(self._room, in_turns, beta, rho)
        if uplink_beta is not None:
            other = np.empty_like(self._room)
            self._fill(other, in_turns, uplink_beta, rho)
            self._room[:size] = other[:size]
        self.address = pointer(self._room)

    def _fill(self, room: npt.NDArray[np.uint8], in_turns: bool, *shares: Array) -> None:
        given = [np.ascontiguousarray(each, float) for each in shares]
        addresses = [pointer(each) for each in (*given, room)]
        library().engine_links(self._bands.address, in_turns, *addresses)


def rates(slots: Slots, links: Links, active: int = 0) -> Array:
    """The rates of all links in all slots in bit/s, shape [3, K, S]: up, down, broadcast.

    Args:
        slots: The channel.
        links: The links.
        active: Number of links that are active at a time on a shared band; 0: all of the cell.
    """
    bps = np.empty((3, slots.clients, slots.slots))
    library().engine_rates(slots.address, links.address, 0, slots.slots, active, pointer(bps))
    return bps


def lte_used(has: Ints, reached: Array) -> Ints:
    """The resource blocks in which UAVs send, of those that they have; 0: out of range.

    Args:
        has: Numbers of resource blocks, in any shape.
        reached: Number of blocks for which the power suffices with the lowest scheme, of the same
            shape.
    """
    has, reached = np.ascontiguousarray(has, np.int64), np.ascontiguousarray(reached, float)
    used = np.empty(has.shape, np.int64)
    library().engine_used(pointer(has), pointer(reached), used.size, pointer(used))
    return used


def shannon_bps(bandwidth_hz: Array | float, snr: Array | float) -> Array:
    """Shannon's rate in bit/s, eqs. (1), (2), (19); arrays of shapes that go together."""
    hz, ratio = np.broadcast_arrays(np.asarray(bandwidth_hz, float), np.asarray(snr, float))
    hz, ratio = np.ascontiguousarray(hz), np.ascontiguousarray(ratio)
    bps = np.empty(hz.shape)
    library().engine_shannon(pointer(hz), pointer(ratio), bps.size, pointer(bps))
    return bps


class Medium(_Structure):
    """A band that active links share; see ``medium.h``.

    Args:
        clients: Number of UAVs, K.
        answers: Share of the time in which a cell answers an active uplink in its downlink.
    """

    _fields_ = (
        *((name, _Pointer) for name in ("active", "left_bits", "bps", "from_", "below")),
        *(
            ("all", _Long),
            ("answers", _Double),
            ("now_s", _Double),
            ("count", _Long * 2),
            ("until", _Long * 2),
        ),
    )

    def __init__(self, clients: int, answers: float = 0.0):
        super().__init__(all=clients, answers=answers)
        numbers = {name: np.zeros((2, clients)) for name in ("left_bits", "bps", "from_", "below")}
        self._keep(active=np.zeros((2, clients), np.int64), **numbers)


class Paths(_Structure):
    """Links with delay and loss; see ``tcp.h`` and `tcp_model.TcpModel.fresh`."""

    _fields_ = (
        *((name, _Pointer) for name in ("delay_s", "jitter_s", "loss", "airtime")),
        *(("slots", _Long), ("slot_s", _Double), ("losses", _Pointer), ("clients", _Long)),
        *((name, _Int) for name in ("control", "by_grant", "impaired", "round_trips")),
        *(
            (name, _Double)
            for name in (
                *("frame_bits", "initial", "offered", "credit_s", "receipt_bits", "opening_bits"),
                *("packet_s", "held_s", "acknowledgement_bits"),
            )
        ),
        *(("queued_frames", _Long), ("grant_s", _Double * 2), ("delivery_s", _Pointer)),
        *(("senders", _Pointer), ("draws", _Pointer), ("free_s", _Pointer)),
        *(("packets", _Pointer), ("limited_from", _Long)),
        *(("unacknowledged", _Pointer), ("acknowledgements", _Long), ("windows", _Pointer)),
        ("transfers", _Long),
    )

    def __init__(self, arrays: dict[str, npt.NDArray[Any]], **numbers: Any):
        super().__init__(**numbers)
        self._keep(**arrays)
        self.arrays = arrays


class LinkState(_Structure):
    """The links of a round on a channel.

    Args:
        slots: The channel.
        links: The links.
        paths: Model of TCP; None: links neither delay nor lose.
        medium: The shared band; None: each link has a rate of its own.
        start_s: Start of the round.
    """

    _fields_ = (
        *((name, _Pointer) for name in ("slots", "links", "paths", "medium", "slot")),
        ("medium_slot", _Long),
    )

    def __init__(
        self,
        slots: Slots,
        links: Links,
        paths: Paths | None,
        medium: Medium | None,
        start_s: float,
    ):
        super().__init__(
            slots=slots.address,
            links=links.address,
            paths=None if paths is None else paths.address,
            medium=None if medium is None else medium.address,
        )
        self._keep(slot=np.zeros(slots.clients, np.int64))
        self._kept += [slots, links, paths, medium]
        library().engine_clear(self.address, start_s)


class Rules(_Structure):
    """A paradigm's fields for the plain round; pairs are for computing and downlink."""

    _fields_ = (
        *(("parallel", _Int * 2), ("gated", _Int * 2), ("by_lag", _Int), ("unicast", _Int)),
        ("order", _Pointer),
    )


class Work(_Structure):
    """Work of a plain round: durations and bytes, shape [K, I], adapters [K]."""

    _fields_ = (
        *((name, _Pointer) for name in ("cf_s", "cb_s", "s_s")),
        *((name, _Pointer) for name in ("sm_bytes", "ca_bytes", "sg_bytes", "cm_bytes")),
        *(("iterations_of", _Pointer), ("clients", _Long), ("iterations", _Long)),
        ("backward_ratio", _Double),
    )

    def __init__(
        self,
        durations: Sequence[Array],
        sizes: Sequence[Ints],
        iterations_of: Ints,
        backward_ratio: float,
    ):
        """Make the work of a round.

        Args:
            durations: CF, CB and S, shape [K, I] each.
            sizes: Bytes of SM [K], CA [K, I], SG [K, I] and CM [K].
            iterations_of: I_k, shape [K].
            backward_ratio: ς.
        """
        clients, iterations = durations[0].shape
        super().__init__(clients=clients, iterations=iterations, backward_ratio=backward_ratio)
        times = [np.ascontiguousarray(each, float) for each in durations]
        bytes_ = [np.ascontiguousarray(each, np.int64) for each in (*sizes, iterations_of)]
        names = [name for name, *_ in self._fields_[:8]]
        self._keep(**dict(zip(names, [*times, *bytes_], strict=True)))


class Chain(_Structure):
    """CPSFL's downlink, see `orchestrator.analytical.closed_forms.Pipeline`; arrays are [K]."""

    _fields_ = (
        *((name, _Pointer) for name in ("ready_s", "lag_s", "sg_s", "tail_s")),
        *(("clients", _Long), ("iterations", _Long)),
    )

    def __init__(self, iterations: int, **arrays: Array):
        super().__init__(clients=len(arrays["ready_s"]), iterations=iterations)
        self._keep(**{name: np.ascontiguousarray(each, float) for name, each in arrays.items()})


class Menu(_Structure):
    """Costs of the splits, shape [u, K] each."""

    _fields_ = (
        *((name, _Pointer) for name in ("cf_s", "cb_s", "server_s")),
        *((name, _Pointer) for name in ("smashed_bytes", "gradient_bytes", "adapter_bytes")),
        ("broadcast_bytes", _Pointer),
    )

    def __init__(self, **arrays: npt.NDArray[Any]):
        super().__init__()
        kinds = {name: float if name.endswith("_s") else np.int64 for name in arrays}
        self._keep(**{n: np.ascontiguousarray(a, kinds[n]) for n, a in arrays.items()})
