"""The engine again, written plainly: no numba, no heaps, nothing shared with the real one.

Everything is looked up where it is needed and searched for in plain lists. It follows the text of
the paper and of the documentation, in particular: what lies in the same whole nanosecond is
simultaneous; all that happens at a moment happens before a sequential server chooses; computing is
served before the downlink; larger lag goes first, then earlier arrival, then lower client number.
"""

import math
from bisect import bisect_right

import numpy as np

INFINITE_LAG = 10**30


class TooShort(Exception):
    """The trace ends before the round."""


def nanosecond(time_s):
    return math.floor(time_s * 1e9 + 0.5)


class Link:
    """A link's rate in every slot; transfers end when the integral reaches their bits."""

    def __init__(self, gains, bandwidth_hz, power_w, noise_w_per_hz, edges_s):
        snr = power_w * gains / (bandwidth_hz * noise_w_per_hz)
        rates = bandwidth_hz * np.log1p(snr) / math.log(2)
        self.edges_s = edges_s
        self.rates = rates.tolist()
        self.bits_at_edge = [0.0, *np.cumsum(rates * np.diff(edges_s)).tolist()]

    def slot(self, time_s):
        slot = bisect_right(self.edges_s, time_s + 0.5e-9) - 1
        if slot >= len(self.rates):
            raise TooShort
        return slot

    def rate(self, time_s):
        return self.rates[self.slot(time_s)]

    def end(self, start_s, size_bytes):
        if size_bytes == 0:
            return start_s
        slot = self.slot(start_s)
        before = self.bits_at_edge[slot] + self.rates[slot] * (start_s - self.edges_s[slot])
        wanted = before + 8 * size_bytes
        for s in range(slot, len(self.rates)):
            slack = self.rates[s] * 0.5e-9
            if wanted <= self.bits_at_edge[s + 1] + slack and self.rates[s] > 0:
                since_s = max(start_s, self.edges_s[s])
                have = before if s == slot else self.bits_at_edge[s]
                return since_s + (wanted - have) / self.rates[s]
        raise TooShort


class Visit:
    """One client at one station of the server in one iteration."""

    def __init__(self, client, arrived_s, lag_s):
        self.client = client
        self.arrived_s = arrived_s
        self.ready_s = arrived_s
        self.lag = INFINITE_LAG if math.isinf(lag_s) else nanosecond(lag_s)


class Station:
    def __init__(self, parallel, gated, by_lag, clients):
        self.parallel, self.gated, self.by_lag, self.clients = parallel, gated, by_lag, clients
        self.gate, self.queue = [], []
        self.busy = False
        self.free_s = -math.inf

    def arrive(self, visit):
        self.gate.append(visit)
        if self.gated and len(self.gate) < self.clients:
            return
        for held in self.gate:
            held.ready_s = max(v.arrived_s for v in self.gate)
        self.queue += self.gate
        self.gate = []

    def next(self):
        """Whom to serve now, and from when; None if nobody."""
        if not self.queue or (self.busy and not self.parallel):
            return None
        chosen = min(
            self.queue,
            key=lambda v: (-v.lag if self.by_lag else 0, nanosecond(v.arrived_s), v.client),
        )
        self.queue.remove(chosen)
        start_s = chosen.ready_s if self.parallel else max(chosen.ready_s, self.free_s)
        return chosen, start_s

    def serve_until(self, end_s):
        self.busy, self.free_s = True, end_s


def reference_round(plan, radio, gain, slot_s, start_s=0.0, slot_edges_s=None):
    """Latency, energies, objective, and spans (client, iteration, step, start, end, bytes)."""
    clients, iterations = plan.cf_s.shape
    paradigm, share = plan.paradigm, plan.allocation
    if slot_edges_s is None:
        slot_edges_s = [s * slot_s for s in range(gain.shape[1] + 1)]
    edges = list(slot_edges_s)
    noise = radio.noise_w_per_hz
    parallel_down = paradigm.gradient_transmission == "parallel"
    up = [
        Link(gain[k], share.beta[k] * radio.uplink_hz, radio.uplink_power_w[k], noise, edges)
        for k in range(clients)
    ]
    broadcast = [
        Link(gain[k], radio.downlink_hz, radio.downlink_power_w, noise, edges)
        for k in range(clients)
    ]
    down = [
        Link(
            gain[k],
            share.beta[k] * radio.downlink_hz,
            share.rho[k] * radio.downlink_power_w,
            noise,
            edges,
        )
        if parallel_down
        else broadcast[k]
        for k in range(clients)
    ]

    steps = {}  # (client, iteration, step) -> (start, end, bytes)

    def took(k, i, step):
        start, end, _ = steps[k, i, step]
        return end - start

    by_lag = paradigm.order == "larger-lag"
    computing = Station(
        paradigm.server_compute == "parallel", paradigm.compute_waits_for_all, by_lag, clients
    )
    downlink = Station(parallel_down, paradigm.transmission_waits_for_all, by_lag, clients)

    for k in range(clients):
        steps[k, 0, "SM"] = (start_s, broadcast[k].end(start_s, plan.sm_bytes[k]), plan.sm_bytes[k])
    together_s = max(end for _, end, _ in steps.values())

    iteration = [0] * clients
    agenda = [(together_s, "begin", k) for k in range(clients)]

    def begin(k, now):
        i = iteration[k]
        steps[k, i, "CF"] = (now, now + plan.cf_s[k, i], 0)
        now += plan.cf_s[k, i]
        end = up[k].end(now, plan.ca_bytes[k, i])
        steps[k, i, "CA"] = (now, end, plan.ca_bytes[k, i])
        agenda.append((end, "smashed data in", k))

    def lag(k, at_computing):
        i = iteration[k]
        backward = plan.cb_s[k, i - 1] if i > 0 else plan.backward_ratio * plan.cf_s[k, 0]
        value = backward + plan.cf_s[k, i] + took(k, i, "CA")
        if not at_computing:
            return value + plan.s_s[k, i]
        if i > 0:
            return value + took(k, i - 1, "SG")
        rate = down[k].rate(steps[k, 0, "CA"][1])
        return value + (8 * plan.sg_bytes[k, 0] / rate if rate > 0 else math.inf)

    while agenda:
        moment = min(nanosecond(time_s) for time_s, _, _ in agenda)
        for event in sorted(e for e in agenda if nanosecond(e[0]) == moment):
            agenda.remove(event)
            now, what, k = event
            i = iteration[k]
            if what == "begin":
                begin(k, now)
            elif what == "smashed data in":
                known = lag(k, True) if by_lag and not computing.parallel else 0.0
                computing.arrive(Visit(k, now, known))
            elif what == "computed":
                computing.busy = False
                known = lag(k, False) if by_lag and not downlink.parallel else 0.0
                downlink.arrive(Visit(k, now, known))
            elif what == "gradient there":
                downlink.busy = False
                steps[k, i, "CB"] = (now, now + plan.cb_s[k, i], 0)
                now += plan.cb_s[k, i]
                if i + 1 < iterations:
                    iteration[k] += 1
                    begin(k, now)
                else:
                    end = up[k].end(now, plan.cm_bytes[k])
                    steps[k, i, "CM"] = (now, end, plan.cm_bytes[k])
        while (chosen := computing.next()) is not None:
            visit, start = chosen
            k = visit.client
            end = start + plan.s_s[k, iteration[k]]
            computing.serve_until(end)
            steps[k, iteration[k], "S"] = (start, end, 0)
            agenda.append((end, "computed", k))
        if any(nanosecond(time_s) == moment for time_s, _, _ in agenda):
            continue
        while (chosen := downlink.next()) is not None:
            visit, start = chosen
            k = visit.client
            size = plan.sg_bytes[k, iteration[k]]
            end = down[k].end(start, size)
            downlink.serve_until(end)
            steps[k, iteration[k], "SG"] = (start, end, size)
            agenda.append((end, "gradient there", k))

    energy = [
        plan.compute_power_w * sum(took(k, i, "CF") + took(k, i, "CB") for i in range(iterations))
        + radio.uplink_power_w[k]
        * (sum(took(k, i, "CA") for i in range(iterations)) + took(k, iterations - 1, "CM"))
        for k in range(clients)
    ]
    latency = max(steps[k, iterations - 1, "CM"][1] for k in range(clients)) - start_s
    spans = sorted(
        (
            (k + 1, i + 1, step, start, end, size)
            for (k, i, step), (start, end, size) in steps.items()
        ),
        key=lambda span: (span[0], span[3], span[4]),
    )
    return latency, energy, latency + plan.energy_weight * max(energy), spans
