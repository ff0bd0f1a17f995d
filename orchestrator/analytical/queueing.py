# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The server as a queue: an approximation for any round without gates.

Clients circulate: forward, upload, server, gradient, backward. At a sequential station a client
waits for the mean time that the Pollaczek–Khinchine formula gives for an M/G/1 queue with the other
clients' arrivals (as in the arrival theorem of closed networks, where a customer sees the network
without itself). Longer waiting makes arrivals less frequent, so the waiting time is a fixed point.
The model ignores that clients start together and that lags differ.
"""

import numpy as np

from orchestrator.analytical.closed_forms import Durations
from orchestrator.engine.plan import Array


def waiting_s(apart_s: Array, stations: list[Array]) -> float:
    """Mean waiting time of a client per iteration, at all stations together, s.

    Args:
        apart_s: Duration of an iteration without waiting, shape [K], s.
        stations: For each sequential station the clients' service times, shape [K], s.
    """
    clients = len(apart_s)
    if clients == 1 or not stations:
        return 0.0
    others = (clients - 1) / clients

    def found(waited_s: float) -> float:
        """Waiting time that results from a waiting time; it decreases as that one grows."""
        rate = others / (apart_s + waited_s)
        waits_s = 0.0
        for service_s in stations:
            load = float(rate @ service_s)
            if load >= 1:
                return np.inf
            waits_s += float(rate @ service_s**2) / (2 * (1 - load))
        return waits_s

    from scipy.optimize import brentq  # takes long to import

    # At the least waiting time with loads below 1, the result is infinite; for the time that all
    # other clients need together, it is smaller than that.
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
    """A round's latency: that of the slowest client with the mean waiting time, s.

    Args:
        d: Durations under assumption 1.
        sequential_server: Whether the server computes for one client at a time.
        sequential_downlink: Whether gradients are sent to one client at a time.
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
