# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The server as a queue: an approximation of any round without gates.

Each client goes round: forward, upload, computing, gradient, backward. Where the server serves one
at a time, it waits; how long on average is what the Pollaczek–Khinchine formula says of an M/G/1
queue whose arrivals are the other clients' (as in the arrival theorem of closed networks, where a
customer sees the network without itself). The more they wait the less often they come, so waiting
is a fixed point. Clients that start together and lags that differ are what it leaves out.
"""

import numpy as np
from scipy.optimize import brentq

from orchestrator.engine.plan import Array
from orchestrator.theory.closed_forms import Durations


def waiting_s(apart_s: Array, stations: list[Array]) -> float:
    """Mean time that a client waits in an iteration, at all stations together.

    Args:
        apart_s: What an iteration takes a client that never waits, shape [K].
        stations: Of each sequential station the service times of clients, shape [K].
    """
    clients = len(apart_s)
    if clients == 1 or not stations:
        return 0.0
    others = (clients - 1) / clients

    def found(waited_s: float) -> float:
        """What they would wait if they waited so long: falls as it grows."""
        rate = others / (apart_s + waited_s)
        waits_s = 0.0
        for service_s in stations:
            load = float(rate @ service_s)
            if load >= 1:
                return np.inf
            waits_s += float(rate @ service_s**2) / (2 * (1 - load))
        return waits_s

    # At the least waiting that leaves every station a load below 1, it is infinite; at what all
    # others take together, with nobody apart, it is less.
    low = 0.0
    high = float(sum(service_s.sum() for service_s in stations)) + 1.0
    while found(high) > high:
        high *= 2
    if not np.isfinite(found(low)):
        stable = high
        while stable - low > 1e-12 * stable:
            middle = (low + stable) / 2
            low, stable = (low, middle) if np.isfinite(found(middle)) else (middle, stable)
        low = stable
    if found(low) <= low:
        return low
    return float(brentq(lambda waited_s: found(waited_s) - waited_s, low, high))


def queueing_s(d: Durations, *, sequential_server: bool, sequential_downlink: bool) -> float:
    """A round's latency: the slowest client, which waits as long as all do on average.

    Args:
        d: Durations under assumption 1.
        sequential_server: Whether the server computes for one client at a time.
        sequential_downlink: Whether gradients go to one client at a time.
    """
    steps = (d.cf_s, d.ca_s, d.s_s, d.sg_s, d.cb_s)
    apart_s = sum((step.mean(axis=1) for step in steps), np.zeros(len(d.sm_s)))
    stations = [
        service.mean(axis=1)
        for service, sequential in ((d.s_s, sequential_server), (d.sg_s, sequential_downlink))
        if sequential
    ]
    own_s = d.iterations * (apart_s + waiting_s(apart_s, stations)) + d.cm_s
    return float(d.sm_s.max() + own_s.max())
