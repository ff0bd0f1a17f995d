"""The compiled core of the engine: rounds as plain loops over plain arrays.

`orchestrator.engine` says what it computes; this file says how. Numba compiles what is marked, so
arguments are named tuples of arrays and numbers, and events and queues are heaps of tuples:
``(moment, client)`` and ``(-lag, moment of arrival, client)``, moments and lags in whole
nanoseconds. Clients and iterations count from 0 in here.
"""

import math
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np
import numpy.typing as npt

from testbed.timeline import CA, CB, CF, SG, SM, S

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Function = TypeVar("Function", bound=Callable[..., Any])


def _compiled(function: Function) -> Function:
    """Compile to machine code, cached on disk where any cache folder can be written."""
    try:
        compiled = numba.njit(cache=True)(function)
    except RuntimeError:
        compiled = numba.njit(function)
    return compiled  # type: ignore[no-any-return]


COMPUTING, DOWNLINK, CLIENT = 0, 1, 2
"""Where a client's next event puts it: into one of the stations, or back on its own."""
HALF_NS = 0.5e-9
EXHAUSTED = math.inf


class Rules(NamedTuple):
    """A paradigm's fields; pairs are indexed by station."""

    parallel: tuple[bool, bool]
    gated: tuple[bool, bool]
    by_lag: bool


class Work(NamedTuple):
    """What a round has to do: durations [K, I], bytes [K] or [K, I]; see `RoundPlan`."""

    cf_s: Array
    cb_s: Array
    s_s: Array
    sm_bytes: Ints
    ca_bytes: Ints
    sg_bytes: Ints
    cm_bytes: Ints
    backward_ratio: float


class Menu(NamedTuple):
    """What the splits cost, shape [u]; see `SplitCosts`."""

    cf_s: Array
    cb_s: Array
    server_s: Array
    smashed_bytes: Ints
    adapter_bytes: Ints
    backward_ratio: float


class Bands(NamedTuple):
    """A `Radio`, for compiled code."""

    uplink_hz: float
    downlink_hz: float
    noise_w_per_hz: float
    downlink_power_w: float
    uplink_power_w: Array


class Links(NamedTuple):
    """Bandwidth and signal-to-noise ratio at gain 1 of each client's links, shape [K]."""

    uplink_hz: Array
    uplink_snr: Array
    broadcast_hz: float
    broadcast_snr: float
    gradient_hz: Array
    gradient_snr: Array


class Air(NamedTuple):
    """A channel trace; `edges_s` is empty where slots are multiples of `slot_s`."""

    gain: Array
    slot_s: float
    edges_s: Array


@_compiled
def links_of(rules: Rules, bands: Bands, beta: Array, rho: Array) -> Links:
    """The links of a round under its shares."""
    uplink_hz = beta * bands.uplink_hz
    uplink_snr = bands.uplink_power_w / (uplink_hz * bands.noise_w_per_hz)
    broadcast_snr = bands.downlink_power_w / (bands.downlink_hz * bands.noise_w_per_hz)
    if rules.parallel[DOWNLINK]:
        gradient_hz = beta * bands.downlink_hz
        gradient_snr = rho * bands.downlink_power_w / (gradient_hz * bands.noise_w_per_hz)
    else:
        gradient_hz = np.full(beta.size, bands.downlink_hz)
        gradient_snr = np.full(beta.size, broadcast_snr)
    return Links(uplink_hz, uplink_snr, bands.downlink_hz, broadcast_snr, gradient_hz, gradient_snr)


@_compiled
def _ns(time_s: float) -> int:
    """The nanosecond in which a moment lies: for comparing, never for reckoning."""
    return math.floor(min(time_s, 9e9) * 1e9 + 0.5)


@_compiled
def _rate(bandwidth_hz: float, snr: float) -> float:
    """Shannon's rate in bit/s, eqs. (rate_uplink), (rate_downlink_broadcast), (rate_downlink)."""
    if snr > 1e-3:
        return bandwidth_hz * math.log2(1.0 + snr)
    return bandwidth_hz * (math.log1p(snr) / math.log(2.0))  # 1 + snr would lose the digits of snr


@_compiled
def _edge(air: Air, slot: int) -> float:
    return air.edges_s[slot] if air.edges_s.size else slot * air.slot_s


@_compiled
def _slot_at(air: Air, time_s: float, slot: int) -> int:
    """The slot of a moment, searched from an earlier slot on; an edge belongs to the new slot."""
    slots = air.gain.shape[1]
    while slot < slots and _edge(air, slot + 1) <= time_s + HALF_NS:
        slot += 1
    return slot


@_compiled
def _transfer(
    air: Air, k: int, size: int, time_s: float, slot: int, bandwidth_hz: float, snr_at_1: float
) -> tuple[float, int]:
    """When a transfer of `size` bytes ends, and in which slot.

    It ends when the integral of its slots' rates reaches its bits, eq. (rate_average). In an outage
    the rate is 0 and it waits.
    """
    slot = _slot_at(air, time_s, slot)
    bits = 8.0 * size
    if bits == 0.0:
        return time_s, slot
    while slot < air.gain.shape[1]:
        edge_s = _edge(air, slot + 1)
        rate = _rate(bandwidth_hz, snr_at_1 * air.gain[k, slot])
        if rate > 0.0:
            if bits <= rate * (edge_s - time_s + HALF_NS):
                return time_s + bits / rate, slot
            bits -= rate * (edge_s - time_s)
        time_s = edge_s
        slot += 1
    return EXHAUSTED, slot


@_compiled
def _lag(
    work: Work,
    links: Links,
    air: Air,
    station: int,
    k: int,
    i: int,
    slot: int,
    begin: Array,
    end: Array,
) -> float:
    """A client's lag as it arrives at a station; infinite where no gradient can be sent.

    Before the downlink eq. (lag_client_k); before computing eq. (lag_client_k_PipeSFL), for i = 1
    with the rate of the slot in which the smashed data arrived.
    """
    column = 5 * i
    backward_s: float = work.cb_s[k, i - 1] if i else work.backward_ratio * work.cf_s[k, 0]
    lag_s: float = backward_s + work.cf_s[k, i] + (end[k, column + CA] - begin[k, column + CA])
    if station == DOWNLINK:
        lag_s += work.s_s[k, i]
    elif i:
        lag_s += end[k, column - 5 + SG] - begin[k, column - 5 + SG]
    elif slot < air.gain.shape[1]:
        rate = _rate(links.gradient_hz[k], links.gradient_snr[k] * air.gain[k, slot])
        lag_s += 8.0 * work.sg_bytes[k, 0] / rate if rate > 0.0 else math.inf
    return lag_s


@_compiled
def play_round(
    rules: Rules, work: Work, links: Links, air: Air, start_s: float, begin: Array, end: Array
) -> float:
    """Fill begin and end, shape [K, 5 I + 2]; answer the round's latency, or EXHAUSTED.

    A client's steps stand in their order: step x of iteration i, from 0, in column 5 i + x.
    """
    clients, iterations = work.cf_s.shape
    if air.edges_s.size:
        first = int(np.searchsorted(air.edges_s, start_s, side="right")) - 1
    else:
        first = int(start_s / air.slot_s) - 1
    slot = np.full(clients, max(0, first))  # where each client was last; it only moves on

    together_s = start_s  # all clients begin when the slowest has the broadcast
    for k in range(clients):
        begin[k, SM] = start_s
        end[k, SM], slot[k] = _transfer(
            air, k, work.sm_bytes[k], start_s, slot[k], links.broadcast_hz, links.broadcast_snr
        )
        together_s = max(together_s, end[k, SM])
    if together_s == EXHAUSTED:
        return EXHAUSTED

    iteration = np.full(clients, -1)
    place = np.full(clients, CLIENT)  # where the client's next event puts it
    events = [(_ns(together_s), k) for k in range(clients)]  # one a client: (moment, client)
    held = ([0 for _ in range(0)], [0 for _ in range(0)])  # at each station's gate
    queue = (  # at each station: (-lag, moment of arrival, client)
        [(_ns(0.0), _ns(0.0), 0) for _ in range(0)],
        [(_ns(0.0), _ns(0.0), 0) for _ in range(0)],
    )
    busy = np.zeros(2, np.bool_)
    arrived_s, ready_s = np.empty((2, clients)), np.empty((2, clients))  # before, past the gate
    free_s = np.full(2, start_s)
    last_s = start_s

    while events:
        moment = events[0][0]
        while events and events[0][0] == moment:
            _, k = heappop(events)
            station, i = place[k], iteration[k]
            column = 5 * i
            if station == CLIENT:
                now_s = together_s
                if i >= 0:  # the gradient is there
                    busy[DOWNLINK] = False
                    begin[k, column + CB] = end[k, column + SG]
                    now_s = begin[k, column + CB] + work.cb_s[k, i]
                    end[k, column + CB] = now_s
                iteration[k] = i = i + 1
                column += 5
                if i == iterations:
                    begin[k, column + 1], upload, size = now_s, column + 1, work.cm_bytes[k]
                else:
                    begin[k, column + CF] = now_s
                    now_s += work.cf_s[k, i]
                    end[k, column + CF] = now_s
                    upload, size = column + CA, work.ca_bytes[k, i]
                begin[k, upload] = now_s
                now_s, slot[k] = _transfer(
                    air, k, size, now_s, slot[k], links.uplink_hz[k], links.uplink_snr[k]
                )
                if now_s == EXHAUSTED:
                    return EXHAUSTED
                end[k, upload] = now_s
                if i == iterations:
                    last_s = max(last_s, now_s)
                else:
                    place[k] = COMPUTING
                    heappush(events, (_ns(now_s), k))
                continue

            now_s = end[k, column + (CA if station == COMPUTING else S)]
            if station == DOWNLINK:
                busy[COMPUTING] = False
            arrived_s[station, k] = now_s
            held[station].append(k)
            if rules.gated[station] and len(held[station]) < clients:
                continue
            for j in held[station]:
                now_s = max(now_s, arrived_s[station, j])
            for j in held[station]:
                ready_s[station, j] = now_s
                lag_s = 0.0
                if rules.by_lag and not rules.parallel[station]:
                    slot[j] = _slot_at(air, arrived_s[station, j], slot[j])
                    lag_s = _lag(work, links, air, station, j, i, slot[j], begin, end)
                heappush(queue[station], (-_ns(lag_s), _ns(arrived_s[station, j]), j))
            held[station].clear()

        for station in (COMPUTING, DOWNLINK):
            if events and events[0][0] == moment:
                break  # computing took no time: there is more to this moment
            while queue[station] and not busy[station]:
                _, _, k = heappop(queue[station])
                column = 5 * iteration[k]
                now_s = ready_s[station, k]
                if not rules.parallel[station]:
                    busy[station] = True
                    now_s = max(now_s, free_s[station])
                if station == COMPUTING:
                    begin[k, column + S] = now_s
                    now_s += work.s_s[k, iteration[k]]
                    end[k, column + S] = now_s
                    place[k] = DOWNLINK
                else:
                    begin[k, column + SG] = now_s
                    now_s, slot[k] = _transfer(
                        air,
                        k,
                        work.sg_bytes[k, iteration[k]],
                        now_s,
                        slot[k],
                        links.gradient_hz[k],
                        links.gradient_snr[k],
                    )
                    if now_s == EXHAUSTED:
                        return EXHAUSTED
                    end[k, column + SG] = now_s
                    place[k] = CLIENT
                free_s[station] = now_s
                heappush(events, (_ns(now_s), k))
    return last_s - start_s


@_compiled
def fill_energy(
    work: Work, compute_w: float, uplink_w: Array, begin: Array, end: Array, energy: Array
) -> None:
    """Fill energy [K], in J: eq. (energy)."""
    clients, iterations = work.cf_s.shape
    for k in range(clients):
        compute_s, send_s = 0.0, end[k, 5 * iterations + 1] - begin[k, 5 * iterations + 1]
        for i in range(iterations):
            compute_s += work.cf_s[k, i] + work.cb_s[k, i]
            send_s += end[k, 5 * i + CA] - begin[k, 5 * i + CA]
        energy[k] = compute_w * compute_s + uplink_w[k] * send_s


@_compiled
def play_rounds(
    rules: Rules,
    menu: Menu,
    iterations: int,
    compute_w: float,
    bands: Bands,
    air: Air,
    start_s: float,
    follow: bool,
    split: Ints,
    alpha: Array,
    beta: Array,
    rho: Array,
    starts_s: Array,
    latency_s: Array,
    energy_j: Array,
) -> bool:
    """Fill starts and latencies [N], energies [N, K]; whether the trace was long enough.

    With `follow` each round starts where the one before ended, else all start together.
    """
    clients = beta.shape[1]
    shape, steps = (clients, iterations), (clients, 5 * iterations + 2)
    work = Work(
        np.empty(shape),
        np.empty(shape),
        np.empty(shape),
        np.empty(clients, np.int64),
        np.empty(shape, np.int64),
        np.empty(shape, np.int64),
        np.empty(clients, np.int64),
        menu.backward_ratio,
    )
    begin, end = np.empty(steps), np.empty(steps)
    for n in range(split.size):
        u = split[n] - 1
        work.cf_s[:], work.cb_s[:] = menu.cf_s[u], menu.cb_s[u]
        work.sm_bytes[:], work.cm_bytes[:] = menu.adapter_bytes[u], menu.adapter_bytes[u]
        work.ca_bytes[:], work.sg_bytes[:] = menu.smashed_bytes[u], menu.smashed_bytes[u]
        for k in range(clients):
            work.s_s[k] = menu.server_s[u] / (alpha[n, k] if rules.parallel[COMPUTING] else 1.0)
        links = links_of(rules, bands, beta[n], rho[n])
        starts_s[n] = start_s
        latency_s[n] = play_round(rules, work, links, air, start_s, begin, end)
        if latency_s[n] == EXHAUSTED:
            return False
        fill_energy(work, compute_w, bands.uplink_power_w, begin, end, energy_j[n])
        if follow:
            start_s += latency_s[n]
    return True
