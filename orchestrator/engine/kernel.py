# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The compiled core of the engine: rounds as plain loops over plain arrays.

`orchestrator.engine.engine` describes the results; this file contains the algorithm. Numba compiles
the marked functions, so arguments are named tuples of arrays and numbers, and events and queues are
heaps of tuples: `(moment, client)` and `(-lag or turn, moment of arrival, client)`, moments and
lags in whole nanoseconds. Clients and iterations count from 0 in this file.

`play_round` is one long function by measurement: cut into functions that share a state, however
they were inlined, a round of ten clients took 1.4 to 2.1 times as long, for each access to an array
of a tuple counts references unless it is `borrowed`. Its parts are headed by comments instead.
"""

import math
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from orchestrator.engine.compiling import Array, Ints, borrowed, compiled, inlined
from orchestrator.engine.medium import (
    Medium,
    advance,
    begin_transfer,
    clear,
    end_transfer,
    is_busy,
)
from orchestrator.engine.orders import place_of
from orchestrator.engine.radio_kernel import link_of, links_of
from orchestrator.engine.slot_impairments import BROADCAST, DOWN, UP, opposite
from orchestrator.engine.slots import (
    EXHAUSTED,
    Slots,
    carried,
    edge_of,
    shared_slot_bps,
    slot_at,
    slot_bps,
)
from orchestrator.engine.tcp_model import Paths, arrival_of, delivered, note, served_from
from testbed.core.faults import slowed_end
from testbed.core.orders import NO_RANK
from testbed.core.timeline import CA, CB, CF, SG, SM, S

COMPUTING, DOWNLINK, CLIENT, UPLINK, SENDS, RECEIVES = range(6)
"""Kinds of a client's next event: it arrives at one of the stations, continues by itself, or has
something to send on a shared uplink; on shared links, service of its uplink or downlink begins."""
EVENTS = 2
"""Index of the heap of events; the queues of the two stations come before it."""
NEVER_NS = 1 << 62
BY_RULES = np.empty((0, 0, 0), np.int64)
"""No service_order given: the paradigm's rules decide who is served next."""
BY_RULES.flags.writeable = False
EVEN = np.empty(0, np.int64)
"""No numbers of iterations given: all clients do the same number."""
EVEN.flags.writeable = False
NO_PLACE = math.nan
"""In place of a latency: the order gave no number. Neither this nor `EXHAUSTED` is below it."""


class Rules(NamedTuple):
    """A paradigm's fields; pairs are indexed by station."""

    parallel: tuple[bool, bool]
    gated: tuple[bool, bool]
    by_lag: bool
    unicast: bool
    """Whether each client is sent a separate copy of the broadcast."""


class Work(NamedTuple):
    """Work of a round: durations [K, I], bytes [K] or [K, I]; see `RoundPlan`."""

    cf_s: Array
    cb_s: Array
    s_s: Array
    sm_bytes: Ints
    ca_bytes: Ints
    sg_bytes: Ints
    cm_bytes: Ints
    backward_ratio: float
    own_iterations: Ints = EVEN
    """I_k, shape [K], of which I is the largest; `EVEN`: all do I."""


class Menu(NamedTuple):
    """Costs of the splits, shape [u], of the clients' computing [u, K]; see `SplitCosts`."""

    cf_s: Array
    cb_s: Array
    server_s: Array
    smashed_bytes: Ints
    gradient_bytes: Ints
    adapter_bytes: Ints
    broadcast_bytes: Ints
    backward_ratio: float


class Faults(NamedTuple):
    """Faults of a round, by client [K]. A round without faults has `None` here, and the code that
    deals with faults is not even compiled.

    A client's link has gain 0 from `stop_s` on.
    """

    absent: npt.NDArray[np.bool_]
    """Whether the client is absent from the start."""
    stop_s: Array
    """Time at which the client's process ends; infinity: never."""
    lost_s: Array
    """When it counts as lost; written to: infinity for a client that finished before."""
    wrong_s: Array
    """Its first smashed data sent from then on are wrong; infinity: never."""
    wrong_at_end: npt.NDArray[np.bool_]
    """Whether that shows when they are in, or as soon as they begin."""
    slow: Array
    """Rows of node (0 the base station), start, end, factor, sorted by node; see `slowed_end`."""


@inlined
def _ns(time_s: float) -> int:
    """The nanosecond that contains a moment: for comparisons only, not for arithmetic."""
    return math.floor(min(time_s, 9e9) * 1e9 + 0.5)


def transfer(
    paths: Paths | None,
    way: int,
    slots: Slots,
    k: int,
    size: int,
    time_s: float,
    slot: int,
    links: Any,
) -> tuple[float, int]:
    """When a transfer of `size` bytes ends, and in which slot."""
    link = link_of(links, way, k)
    if paths is not None:
        back = link_of(links, opposite(way), k)
        return delivered(paths, slots, way, k, size, time_s, slot, link, back)
    return carried(slots, None, way, k, 8.0 * size, time_s, slot, link)


_transfer = inlined(transfer)


@inlined
def _served(
    paths: Paths,
    slots: Slots,
    links: Any,
    way: int,
    k: int,
    size: int,
    time_s: float,
    slot: int,
    active: int,
) -> float:
    """When a transfer that begins on shared links is served; `active` links are active then."""
    bps = 0.0
    if slot < slots.values.shape[2]:
        bps = shared_slot_bps(slots, link_of(links, way, k), way, k, slot, active, 0)[0]
    return served_from(paths, way, k, size, time_s, bps)


@inlined
def _tell(
    paths: Paths,
    slots: Slots,
    links: Any,
    slot: Ints,
    gone: npt.NDArray[np.bool_],
    end: Array,
    together_s: float,
    told_s: Array,
) -> None:
    """Fill in when each client knows that all clients have the broadcast; the last client has it at
    `together_s`."""
    all_told_s = together_s
    for k in range(told_s.size):
        if not gone[k]:
            all_told_s = max(all_told_s, note(paths, slots, links, UP, k, end[k, SM], slot[k]))
    for k in range(told_s.size):
        if not gone[k]:
            told_s[k] = note(paths, slots, links, DOWN, k, all_told_s, slot[k])


_slowed_end = numba.njit(slowed_end)


@inlined
def _end(faults: Faults | None, node: int, start_s: float, work_s: float) -> float:
    """When computing ends that a node (0 the base station) starts."""
    if faults is not None:
        nodes = faults.slow[:, 0]
        first, last = np.searchsorted(nodes, node), np.searchsorted(nodes, node, side="right")
        slowed_s: float = _slowed_end(start_s, work_s, faults.slow[first:last, 1:])
        return slowed_s
    return start_s + work_s


@inlined
def _iterations_of(work: Work, k: int) -> int:
    """Number of iterations of a client, I_k."""
    return int(work.own_iterations[k]) if work.own_iterations.size else work.cf_s.shape[1]


@inlined
def _client_s(work: Work, faults: Faults | None, k: int, i: int, begin: Array, end: Array) -> float:
    """τ_CB(i-1) + τ_CF(i) of a client whose smashed data are in."""
    column = 5 * i
    forward_s = work.cf_s[k, i]
    backward_s: float = work.cb_s[k, i - 1] if i else work.backward_ratio * work.cf_s[k, 0]
    if faults is not None:  # durations are what they came to be
        forward_s = end[k, column + CF] - begin[k, column + CF]
        if i:
            backward_s = end[k, column - 5 + CB] - begin[k, column - 5 + CB]
        else:
            backward_s = work.backward_ratio * forward_s
    client_s: float = backward_s + forward_s
    return client_s


@inlined
def _server_s(work: Work, faults: Faults | None, k: int, i: int, begin: Array, end: Array) -> float:
    """τ_S(i) of a client whose gradient is computed."""
    if faults is not None:
        return float(end[k, 5 * i + S] - begin[k, 5 * i + S])
    return float(work.s_s[k, i])


@inlined
def _lag(
    work: Work,
    links: Any,
    slots: Slots,
    faults: Faults | None,
    station: int,
    k: int,
    i: int,
    slot: int,
    begin: Array,
    end: Array,
) -> float:
    """A client's lag as it arrives at a station; infinite where no gradient can be sent.

    Before the downlink eq. (12); before computing eq. (22), for i = 1
    with the rate of the slot in which the smashed data arrived.
    """
    column = 5 * i
    lag_s: float = _client_s(work, faults, k, i, begin, end)
    lag_s += end[k, column + CA] - begin[k, column + CA]
    if station == DOWNLINK:
        lag_s += _server_s(work, faults, k, i, begin, end)
    elif i:
        lag_s += end[k, column - 5 + SG] - begin[k, column - 5 + SG]
    elif slot < slots.values.shape[2]:
        rate = slot_bps(slots, link_of(links, DOWN, k), DOWN, k, slot)
        lag_s += 8.0 * work.sg_bytes[k, 0] / rate if rate > 0.0 else math.inf
    return lag_s


@compiled
def _place(
    order: int,
    work: Work,
    links: Any,
    slots: Slots,
    faults: Faults | None,
    station: int,
    k: int,
    i: int,
    slot: int,
    since_s: float,
    begin: Array,
    end: Array,
) -> int:
    """A client's place by a plug-in's order, as it arrives at a station.

    `order` is the address of its `machine_code`. Its estimates of the future use the rates of the
    slot; the client arrived `since_s` after the round began.
    """
    column, clients = 5 * i, work.cf_s.shape[0]
    iterations = _iterations_of(work, k)
    gradient_s = -1.0  # there was none yet
    if i:
        gradient_s = end[k, column - 5 + SG] - begin[k, column - 5 + SG]
    server_s = work.s_s[k, i]
    if station == DOWNLINK:
        server_s = _server_s(work, faults, k, i, begin, end)
    compute_s, uplink_bytes, downlink_bytes = work.cb_s[k, i], work.cm_bytes[k], work.sg_bytes[k, i]
    for later in range(i + 1, iterations):
        compute_s += work.cf_s[k, later] + work.s_s[k, later] + work.cb_s[k, later]
        uplink_bytes += work.ca_bytes[k, later]
        downlink_bytes += work.sg_bytes[k, later]
    uplink_bps, downlink_bps = 0.0, 0.0
    if slot < slots.values.shape[2]:
        uplink_bps = slot_bps(slots, link_of(links, UP, k), UP, k, slot)
        downlink_bps = slot_bps(slots, link_of(links, DOWN, k), DOWN, k, slot)
    known = (
        1 if station == DOWNLINK else 0,
        k + 1,
        clients,
        i + 1,
        iterations,
        since_s,
        _client_s(work, faults, k, i, begin, end),
        end[k, column + CA] - begin[k, column + CA],
        server_s,
        gradient_s,
        compute_s,
        float(work.sg_bytes[k, i]),
        float(uplink_bytes),
        float(downlink_bytes),
        uplink_bps,
        downlink_bps,
    )
    return int(place_of(order, known))


# Heaps of (first, second, client), the smallest on top: three of them in one array of shape
# [3, K + 1, 3], the two stations' queues and the events. Entry 0 holds the size, 1 is the top, and
# the children of n are 2 n and 2 n + 1. Numba's heapq on lists of tuples takes three times as long.


@inlined
def _entry(heaps: Ints, row: int, at: int) -> tuple[int, int, int]:
    return heaps[row, at, 0], heaps[row, at, 1], heaps[row, at, 2]


@inlined
def _push(heaps: Ints, row: int, first: int, second: int, client: int) -> None:
    heaps[row, 0, 0] += 1
    at = heaps[row, 0, 0]
    while at > 1 and (first, second, client) < _entry(heaps, row, at // 2):
        for i in range(3):
            heaps[row, at, i] = heaps[row, at // 2, i]
        at //= 2
    heaps[row, at, 0], heaps[row, at, 1], heaps[row, at, 2] = first, second, client


@inlined
def _pop(heaps: Ints, row: int) -> int:
    top, size = heaps[row, 1, 2], heaps[row, 0, 0]
    last = _entry(heaps, row, size)
    size -= 1
    at, child = 1, 2
    while child <= size:
        if child < size and _entry(heaps, row, child + 1) < _entry(heaps, row, child):
            child += 1
        if last < _entry(heaps, row, child):
            break
        for i in range(3):
            heaps[row, at, i] = heaps[row, child, i]
        at, child = child, 2 * child
    heaps[row, 0, 0] = size
    heaps[row, at, 0], heaps[row, at, 1], heaps[row, at, 2] = last
    return int(top)


@inlined
def _given_up(faults: Faults, slots: Slots, k: int) -> bool:
    """Whether a client is lost before the trace ends: then a transfer of its may never end."""
    return bool(faults.lost_s[k] < edge_of(slots, slots.values.shape[2]))


@inlined
def _next_lost(faults: Faults, gone: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """The client that is lost next, the first of several, and when, in ns; -1 if none is."""
    next_lost, lost_ns = -1, NEVER_NS
    for k in range(gone.size):
        if not gone[k] and _ns(faults.lost_s[k]) < lost_ns:
            next_lost, lost_ns = k, _ns(faults.lost_s[k])
    return next_lost, lost_ns


@inlined
def _leave(waits: Ints, own_iterations: Ints, k: int) -> None:
    """No longer wait for a client in any iteration."""
    if own_iterations.size:
        for i in range(own_iterations[k]):  # a slice would compile for seconds
            waits[i] -= 1


@compiled
def play_round(
    rules: Rules,
    work: Work,
    links: Any,
    slots: Slots,
    faults: Faults | None,
    paths: Paths | None,
    medium: Medium | None,
    start_s: float,
    order: int | None,
    service_order: Ints,
    begin: Array,
    end: Array,
) -> float:
    """Fill begin and end, shape [K, 5 I + 2]; answer the round's latency, EXHAUSTED or NO_PLACE.

    A client's steps are in their order: step x of iteration i, from 0, in column 5 i + x, and CM in
    column 5 I_k + 1; later columns are not written. A service order, shape [2, K, I], contains
    places in the order in which the stations serve, from 0; a sequential station then waits for the
    client with the next place. `BY_RULES` leaves the order to the rules. `order` is the address of
    its `machine_code`; None: it is one of the paper's. Without paths, links neither delay nor lose.
    Without a medium, each link has a separate share; with one, paths are those of a radio that
    grants resources, or there are none. With faults, a step of a lost client may end after the
    loss: the caller cuts it.
    """
    work, links, slots = borrowed(work), borrowed(links), borrowed(slots)
    cf_s, cb_s, s_s, sm_bytes, ca_bytes, sg_bytes, cm_bytes, _, own_iterations = work
    clients = cf_s.shape[0]
    if slots.edges_s.size:
        first = int(np.searchsorted(slots.edges_s, start_s, side="right")) - 1
    else:
        first = int(start_s / slots.slot_s) - 1
    slot = np.full(clients, max(0, first))  # where each client was last; it only moves on
    here = clients  # clients that are neither absent nor lost
    gone = np.zeros(clients, np.bool_)  # absent, lost, or past being lost
    if medium is not None:
        air = borrowed(medium)
        clear(air, start_s)

    # --- the broadcast
    together_s = start_s  # all clients begin when the slowest has the broadcast
    if faults is not None:
        for k in range(clients):
            if faults.absent[k]:
                gone[k] = True
                here -= 1
    copies = here if rules.unicast else 1
    spreads = medium is not None and rules.unicast  # shared links carry the broadcast
    for k in range(clients):
        if gone[k]:
            continue
        begin[k, SM] = start_s
        if spreads:
            end[k, SM] = EXHAUSTED  # until it ends
            continue
        end[k, SM], slot[k] = _transfer(
            paths, BROADCAST, slots, k, copies * sm_bytes[k], start_s, slot[k], links
        )
        if faults is not None:
            if end[k, SM] == EXHAUSTED and not _given_up(faults, slots, k):
                return EXHAUSTED
            if end[k, SM] > faults.lost_s[k]:
                gone[k] = True
                here -= 1
                together_s = max(together_s, faults.lost_s[k])
                continue
        together_s = max(together_s, end[k, SM])
    if together_s == EXHAUSTED:
        return EXHAUSTED
    told_s = np.full(clients, together_s)  # when each client knows that all have it
    if paths is not None and not spreads:
        _tell(paths, slots, links, slot, gone, end, together_s, told_s)

    # --- the state of clients and stations
    iteration = np.full(clients, -1)
    place = np.full(clients, CLIENT)  # where the client's next event puts it
    heaps = np.zeros((3, clients + 1, 3), np.int64)
    held, holds = np.empty((2, clients), np.int64), np.zeros(2, np.int64)  # at each station's gate
    busy, served = np.zeros(2, np.bool_), np.zeros(2, np.int64)
    serves = np.full(2, -1)  # the client at a sequential station
    arrived_s, ready_s = np.empty((2, clients)), np.empty((2, clients))  # before, past the gate
    free_s = np.full(2, start_s)
    opens_s = np.full(2, start_s)  # before that, a gate does not open
    last_s = start_s if faults is None else together_s
    event_s = np.full(clients, together_s)  # the exact time of each client's event
    air_slot = max(0, first)  # the slot up to which shared links have sent
    have = 0  # clients that are there and have the broadcast from shared links
    staying = here  # clients that are not gone
    # All that concerns every client is looked at once per loss, not once per moment.
    next_lost, lost_ns, is_stale = -1, NEVER_NS, True
    waits = np.zeros(cf_s.shape[1], np.int64)  # clients with that iteration, if they differ
    if own_iterations.size:
        for k in range(clients):
            if not gone[k]:
                for i in range(own_iterations[k]):
                    waits[i] += 1
    for k in range(clients):
        if gone[k]:
            continue
        if medium is not None and spreads:
            place[k] = RECEIVES
            if paths is not None:
                slot[k] = slot_at(slots, start_s, slot[k])
                event_s[k] = _served(
                    paths, slots, links, DOWN, k, sm_bytes[k], start_s, slot[k], here
                )
        _push(heaps, EVENTS, _ns(event_s[k]), 0, k)

    while True:
        # --- all clients have the broadcast
        if medium is not None and spreads and have == here:
            spreads = False
            for k in range(clients):
                if not gone[k]:
                    together_s = max(together_s, end[k, SM])
            event_s[:], told_s[:], place[:] = together_s, together_s, CLIENT
            last_s = max(last_s, together_s)
            if paths is not None:
                _tell(paths, slots, links, slot, gone, end, together_s, told_s)
            for k in range(clients):
                if not gone[k]:
                    _push(heaps, EVENTS, _ns(together_s), 0, k)
        # --- the next moment
        moment = heaps[EVENTS, 1, 0] if heaps[EVENTS, 0, 0] > 0 else NEVER_NS
        moment_s = event_s[heaps[EVENTS, 1, 2]] if moment < NEVER_NS else EXHAUSTED
        if faults is not None:
            if is_stale:
                next_lost, lost_ns = _next_lost(faults, gone)
                is_stale = False
            if lost_ns < moment:
                moment, moment_s = lost_ns, faults.lost_s[next_lost]
        # --- transfers on shared links end before it
        if medium is not None and is_busy(air):
            way, k, now_s, air_slot = advance(air, links, slots, air_slot, moment_s)
            if now_s == EXHAUSTED:
                return EXHAUSTED
            if k >= 0:
                if paths is not None:
                    now_s = arrival_of(paths, way, k, now_s)
                column, place[k] = 5 * iteration[k], COMPUTING
                if way == DOWN:
                    place[k] = CLIENT
                    end[k, SM if iteration[k] < 0 else column + SG] = now_s
                elif iteration[k] == _iterations_of(work, k):
                    end[k, column + 1] = now_s
                    if faults is not None and now_s > faults.lost_s[k]:
                        continue  # until it is given up
                    last_s = max(last_s, now_s)
                    if faults is not None:
                        gone[k] = True
                        staying -= 1
                        is_stale |= k == next_lost
                        _leave(waits, own_iterations, k)
                        faults.lost_s[k] = math.inf
                    continue
                else:
                    end[k, column + CA] = now_s
                    if faults is not None and begin[k, column + CA] >= faults.wrong_s[k]:
                        faults.lost_s[k] = min(faults.lost_s[k], now_s)
                        is_stale = True
                event_s[k] = now_s
                _push(heaps, EVENTS, _ns(now_s), 0, k)
                continue
        if moment == NEVER_NS or (faults is not None and staying == 0):
            break
        while heaps[EVENTS, 0, 0] > 0 and heaps[EVENTS, 1, 0] == moment:
            k = _pop(heaps, EVENTS)
            if faults is not None and gone[k]:
                continue
            station, i = place[k], iteration[k]
            column = 5 * i
            if medium is not None and station >= UPLINK:
                if station == RECEIVES:
                    size = sm_bytes[k] if i < 0 else sg_bytes[k, i]
                    begin_transfer(air, DOWN, k, 8.0 * size, event_s[k])
                    continue
                size = ca_bytes[k, i] if i < _iterations_of(work, k) else cm_bytes[k]
                if paths is not None and station == UPLINK:
                    slot[k] = slot_at(slots, event_s[k], slot[k])
                    active = 1
                    for other in range(clients):
                        begins = place[other] == UPLINK and _ns(event_s[other]) == moment
                        if other != k and not gone[other]:
                            active += place[other] == SENDS or begins
                    event_s[k] = _served(
                        paths, slots, links, UP, k, size, event_s[k], slot[k], active
                    )
                    place[k] = SENDS
                    _push(heaps, EVENTS, _ns(event_s[k]), 0, k)
                    continue
                begin_transfer(air, UP, k, 8.0 * size, event_s[k])
                continue
            if medium is not None and spreads:
                have += 1
                continue
            # --- a client goes on by itself, up to the end of its next upload
            if station == CLIENT:
                now_s = together_s
                if i >= 0:  # the gradient is there
                    busy[DOWNLINK] = False
                    begin[k, column + CB] = end[k, column + SG]
                    now_s = _end(faults, k + 1, begin[k, column + CB], cb_s[k, i])
                    end[k, column + CB] = now_s
                iteration[k] = i = i + 1
                iterations = _iterations_of(work, k)
                column += 5
                if i == iterations:
                    begin[k, column + 1], upload, size = now_s, column + 1, cm_bytes[k]
                else:
                    begin[k, column + CF] = now_s
                    now_s = _end(faults, k + 1, now_s, cf_s[k, i])
                    if paths is not None:
                        now_s = max(now_s, told_s[k])
                    end[k, column + CF] = now_s
                    upload, size = column + CA, ca_bytes[k, i]
                begin[k, upload] = now_s
                if medium is not None:
                    end[k, upload] = EXHAUSTED  # until it ends
                    if faults is not None:
                        if now_s >= faults.stop_s[k]:
                            continue  # it got no further
                        shows = i < iterations and not faults.wrong_at_end[k]
                        if shows and now_s >= faults.wrong_s[k]:
                            faults.lost_s[k] = min(faults.lost_s[k], now_s)
                            is_stale = True
                    place[k], event_s[k] = UPLINK, now_s
                    _push(heaps, EVENTS, _ns(now_s), 1, k)  # once all who begin now are known
                    continue
                end[k, upload], slot[k] = _transfer(
                    paths, UP, slots, k, size, now_s, slot[k], links
                )
                if faults is not None:
                    if now_s >= faults.stop_s[k]:
                        continue  # it got no further
                    if i < iterations and now_s >= faults.wrong_s[k]:
                        shown_s = end[k, upload] if faults.wrong_at_end[k] else now_s
                        faults.lost_s[k] = min(faults.lost_s[k], shown_s)
                        is_stale = True
                    if end[k, upload] == EXHAUSTED and not _given_up(faults, slots, k):
                        return EXHAUSTED
                    if end[k, upload] > faults.lost_s[k]:
                        continue
                now_s = end[k, upload]
                if now_s == EXHAUSTED:
                    return EXHAUSTED
                if i == iterations:
                    last_s = max(last_s, now_s)
                    if faults is not None:
                        gone[k] = True
                        staying -= 1
                        is_stale |= k == next_lost
                        _leave(waits, own_iterations, k)
                        faults.lost_s[k] = math.inf
                else:
                    place[k], event_s[k] = COMPUTING, now_s
                    _push(heaps, EVENTS, _ns(now_s), 0, k)
                continue

            # --- a client comes to a station's gate
            now_s = end[k, column + (CA if station == COMPUTING else S)]
            if station == DOWNLINK:
                busy[COMPUTING] = False
            arrived_s[station, k] = now_s
            held[station, holds[station]] = k
            holds[station] += 1

        # --- those whose time is over are given up
        if faults is not None and is_stale:
            next_lost, lost_ns = _next_lost(faults, gone)
            is_stale = False
        if faults is not None and lost_ns <= moment:
            is_stale = True
            for k in range(clients):
                if gone[k] or _ns(faults.lost_s[k]) > moment:
                    continue
                lost_s = faults.lost_s[k]
                gone[k] = True
                here -= 1
                staying -= 1
                _leave(waits, own_iterations, k)
                if medium is not None and spreads:
                    have -= _ns(end[k, SM]) <= moment
                    together_s = max(together_s, lost_s)
                last_s = max(last_s, lost_s)
                if medium is not None:
                    end_transfer(air, UP, k)
                    end_transfer(air, DOWN, k)
                for station in (COMPUTING, DOWNLINK):
                    if serves[station] == k and busy[station]:
                        busy[station] = False
                        free_s[station] = lost_s
                    left = 0
                    for place_held in range(holds[station]):
                        if held[station, place_held] != k:
                            held[station, left] = held[station, place_held]
                            left += 1
                    holds[station] = left
                    opens_s[station] = lost_s

        # --- gates open
        for station in (COMPUTING, DOWNLINK):
            count = holds[station]
            if count == 0:
                continue
            if rules.gated[station]:
                due = here
                if own_iterations.size:  # gates do not wait for clients without further iterations
                    due = waits[iteration[held[station, 0]]]
                if count < due:
                    continue
            opened_s = opens_s[station]
            for place_held in range(count):
                opened_s = max(opened_s, arrived_s[station, held[station, place_held]])
            for place_held in range(count):
                k = held[station, place_held]
                i, rank = iteration[k], 0
                came_s = arrived_s[station, k]
                ready_s[station, k] = opened_s if rules.gated[station] else came_s
                if service_order.size:
                    rank = service_order[station, k, i]
                elif not rules.parallel[station]:
                    if order is not None:
                        slot[k] = slot_at(slots, came_s, slot[k])
                        rank = _place(
                            order,
                            work,
                            links,
                            slots,
                            faults,
                            station,
                            k,
                            i,
                            slot[k],
                            came_s - start_s,
                            begin,
                            end,
                        )
                        if rank == NO_RANK:
                            return NO_PLACE
                    elif rules.by_lag:
                        slot[k] = slot_at(slots, came_s, slot[k])
                        lag_s = _lag(work, links, slots, faults, station, k, i, slot[k], begin, end)
                        rank = -_ns(lag_s)
                _push(heaps, station, rank, _ns(came_s), k)
            holds[station] = 0

        # --- stations serve
        for station in (COMPUTING, DOWNLINK):
            if heaps[EVENTS, 0, 0] > 0 and heaps[EVENTS, 1, 0] == moment:
                break  # computing took no time: there is more to this moment
            while heaps[station, 0, 0] > 0 and not busy[station]:
                if service_order.size and not rules.parallel[station]:
                    if heaps[station, 1, 0] != served[station]:
                        break
                    served[station] += 1
                k = _pop(heaps, station)
                if faults is not None and gone[k]:
                    continue
                column = 5 * iteration[k]
                now_s = ready_s[station, k]
                if not rules.parallel[station]:
                    busy[station] = True
                    serves[station] = k
                    now_s = max(now_s, free_s[station])
                if station == COMPUTING:
                    begin[k, column + S] = now_s
                    now_s = _end(faults, 0, now_s, s_s[k, iteration[k]])
                    end[k, column + S] = now_s
                    place[k] = DOWNLINK
                elif medium is not None and rules.parallel[DOWNLINK]:
                    begin[k, column + SG], end[k, column + SG] = now_s, EXHAUSTED
                    size = sg_bytes[k, iteration[k]]
                    if paths is not None:
                        slot[k] = slot_at(slots, now_s, slot[k])
                        active = 1 + heaps[DOWNLINK, 0, 0]  # with those that begin now
                        for other in range(clients):
                            if not gone[other]:
                                active += place[other] == RECEIVES
                        event_s[k] = _served(
                            paths, slots, links, DOWN, k, size, now_s, slot[k], active
                        )
                        place[k] = RECEIVES
                        _push(heaps, EVENTS, _ns(event_s[k]), 0, k)
                        continue
                    begin_transfer(air, DOWN, k, 8.0 * size, now_s)
                    continue
                else:
                    begin[k, column + SG] = now_s
                    now_s, slot[k] = _transfer(
                        paths,
                        DOWN,
                        slots,
                        k,
                        sg_bytes[k, iteration[k]],
                        now_s,
                        slot[k],
                        links,
                    )
                    end[k, column + SG] = now_s
                    place[k] = CLIENT
                    if faults is not None and now_s > faults.lost_s[k]:
                        if now_s == EXHAUSTED and not _given_up(faults, slots, k):
                            return EXHAUSTED
                        continue  # until it is given up
                    if now_s == EXHAUSTED:
                        return EXHAUSTED
                free_s[station] = now_s
                if paths is not None and station == DOWNLINK:
                    # The next one waits for the receipt, and makes up for a bit of that.
                    received_s = note(paths, slots, links, UP, k, now_s, slot[k])
                    free_s[station] = max(now_s, received_s - paths.credit_s)
                event_s[k] = now_s
                _push(heaps, EVENTS, _ns(now_s), 0, k)
    return last_s - start_s


@compiled
def fill_energy(
    work: Work, compute_w: Array, uplink_w: Array, begin: Array, end: Array, energy: Array
) -> None:
    """Fill energy [K], in J: eq. (11)."""
    clients = work.cf_s.shape[0]
    for k in range(clients):
        iterations = _iterations_of(work, k)
        compute_s, send_s = 0.0, end[k, 5 * iterations + 1] - begin[k, 5 * iterations + 1]
        for i in range(iterations):
            compute_s += work.cf_s[k, i] + work.cb_s[k, i]
            send_s += end[k, 5 * i + CA] - begin[k, 5 * i + CA]
        energy[k] = compute_w[k] * compute_s + uplink_w[k] * send_s


@compiled
def play_rounds(
    rules: Rules,
    menu: Menu,
    iterations: int,
    compute_w: Array,
    bands: Any,
    uplink_w: Array,
    slots: Slots,
    start_s: float,
    follow: bool,
    order: int | None,
    split: Ints,
    alpha: Array,
    beta: Array,
    rho: Array,
    medium: Medium | None,
    starts_s: Array,
    latency_s: Array,
    energy_j: Array,
    finish_s: Array,
) -> bool:
    """Fill starts and latencies [N], energies and finishes [N, K]; returns whether the trace was
    long enough.

    If not, or if the order gave no number, the latency of the last round played has a special
    value. With `follow` each round starts where the one before ended, otherwise all start together.
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
        EVEN,
    )
    begin, end = np.empty(steps), np.empty(steps)
    for n in range(len(split)):
        for k in range(clients):
            u = split[n, k] - 1
            work.sm_bytes[k], work.cm_bytes[k] = menu.broadcast_bytes[u], menu.adapter_bytes[u]
            work.ca_bytes[k], work.sg_bytes[k] = menu.smashed_bytes[u], menu.gradient_bytes[u]
            work.cf_s[k], work.cb_s[k] = menu.cf_s[u, k], menu.cb_s[u, k]
            work.s_s[k] = menu.server_s[u] / (alpha[n, k] if rules.parallel[COMPUTING] else 1.0)
        links = links_of(bands, not rules.parallel[DOWNLINK], beta[n], rho[n])
        starts_s[n] = start_s
        latency_s[n] = play_round(
            rules, work, links, slots, None, None, medium, start_s, order, BY_RULES, begin, end
        )
        if not latency_s[n] < EXHAUSTED:
            return False
        fill_energy(work, compute_w, uplink_w, begin, end, energy_j[n])
        finish_s[n] = end[:, steps[1] - 1] - start_s
        if follow:
            start_s += latency_s[n]
    return True
