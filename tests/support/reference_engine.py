# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The engine again, written plainly: no numba, no heaps, nothing shared with the real one.

Everything is looked up where it is needed and searched for in plain lists. It follows the text of
the paper and of the documentation, in particular: what lies in the same whole nanosecond is
simultaneous; all that happens at a moment happens before a sequential server chooses; computing is
served before the downlink; who ranks first goes first, then earlier arrival, then lower client
number.
"""

import math
from bisect import bisect_right

import numpy as np

INFINITE = 10**30


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

    def __init__(self, client, arrived_s, rank):
        self.client = client
        self.arrived_s = arrived_s
        self.ready_s = arrived_s
        self.rank = math.copysign(INFINITE, rank) if abs(rank) > 9e9 else nanosecond(rank)


class Station:
    def __init__(self, parallel, gated, clients):
        self.parallel, self.gated, self.clients = parallel, gated, clients
        self.gate, self.queue = [], []
        self.busy = False
        self.serves = None
        self.free_s = -math.inf

    def arrive(self, visit):
        self.gate.append(visit)
        if self.gated and len(self.gate) < self.clients:
            return
        for held in self.gate:
            held.ready_s = max(v.arrived_s for v in self.gate)
        self.queue += self.gate
        self.gate = []

    def give_up(self, client, now_s):
        """Forget a client that is lost; those at the gate may have waited for it alone."""
        self.clients -= 1
        self.gate = [v for v in self.gate if v.client != client]
        self.queue = [v for v in self.queue if v.client != client]
        if self.serves == client and self.busy:
            self.busy, self.free_s = False, now_s
        if self.gated and self.gate and len(self.gate) >= self.clients:
            for held in self.gate:
                held.ready_s = now_s
            self.queue += self.gate
            self.gate = []

    def next(self):
        """Whom to serve now, and from when; None if nobody."""
        if not self.queue or (self.busy and not self.parallel):
            return None
        chosen = min(
            self.queue,
            key=lambda v: (v.rank, nanosecond(v.arrived_s), v.client),
        )
        self.queue.remove(chosen)
        start_s = chosen.ready_s if self.parallel else max(chosen.ready_s, self.free_s)
        return chosen, start_s

    def serve_until(self, end_s, client):
        self.busy, self.free_s, self.serves = True, end_s, client


def slowly(start_s, work_s, rows):
    """When computing ends, found by walking from one change of speed to the next."""
    now_s, left_s = start_s, work_s
    while left_s > 0:
        factor = math.prod(f for begin, end, f in rows if begin <= now_s < end)
        changes = [t for begin, end, _ in rows for t in (begin, end) if t > now_s]
        until_s = min(changes, default=math.inf)
        if now_s + left_s * factor <= until_s:
            return now_s + left_s * factor
        left_s -= (until_s - now_s) / factor
        now_s = until_s
    return now_s


def reference_round(plan, radio, gain, slot_s, start_s=0.0, slot_edges_s=None, faults=None):
    """Latency, energies, objective, spans (client, iteration, step, start, end, bytes), lost.

    `faults` has lists by client: absent, stop_s, lost_s, wrong_s, duplicate; and slow, by node.
    """
    clients, iterations = plan.cf_s.shape
    if faults is None:
        never = [math.inf] * clients
        faults = {
            "absent": [False] * clients,
            "stop_s": never,
            "lost_s": never,
            "wrong_s": never,
            "duplicate": [False] * clients,
            "slow": {},
        }
    slow = faults["slow"]
    deadline = list(faults["lost_s"])
    lost = {k: deadline[k] for k in range(clients) if faults["absent"][k]}
    there = [k for k in range(clients) if k not in lost]
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

    def carried(link, k, start, size):
        """When a transfer ends; never, where its client is lost before the trace ends."""
        try:
            return link.end(start, size)
        except TooShort:
            if deadline[k] < edges[-1]:
                return math.inf
            raise

    begun_s = [start_s]
    for k in list(there):
        end = carried(broadcast[k], k, start_s, plan.sm_bytes[k])
        steps[k, 0, "SM"] = (start_s, end, plan.sm_bytes[k])
        if end > deadline[k]:
            lost[k] = deadline[k]
            there.remove(k)
        begun_s.append(min(end, deadline[k]))
    together_s = max(begun_s)
    computing = Station(
        paradigm.server_compute == "parallel", paradigm.compute_waits_for_all, len(there)
    )
    downlink = Station(parallel_down, paradigm.transmission_waits_for_all, len(there))
    finished = {}

    iteration = [0] * clients
    agenda = [(together_s, "begin", k) for k in there]

    def begin(k, now):
        i = iteration[k]
        steps[k, i, "CF"] = (now, slowly(now, plan.cf_s[k, i], slow.get(k + 1, [])), 0)
        now = steps[k, i, "CF"][1]
        if now >= faults["stop_s"][k]:
            return
        end = carried(up[k], k, now, plan.ca_bytes[k, i])
        if now >= faults["wrong_s"][k]:
            deadline[k] = min(deadline[k], end if faults["duplicate"][k] else now)
        steps[k, i, "CA"] = (now, end, plan.ca_bytes[k, i])
        if end <= deadline[k]:
            agenda.append((end, "smashed data in", k))

    def lag(k, at_computing):
        i = iteration[k]
        backward = took(k, i - 1, "CB") if i > 0 else plan.backward_ratio * took(k, 0, "CF")
        value = backward + took(k, i, "CF") + took(k, i, "CA")
        if not at_computing:
            return value + took(k, i, "S")
        if i > 0:
            return value + took(k, i - 1, "SG")
        rate = down[k].rate(steps[k, 0, "CA"][1])
        return value + (8 * plan.sg_bytes[k, 0] / rate if rate > 0 else math.inf)

    def at_once(link, now, size_bytes):
        """What a transfer would take if the slot's rate stayed."""
        if size_bytes == 0:
            return 0.0
        rate = link.rate(now)
        return min(8 * size_bytes / rate, 1e9) if rate > 0 else 1e9

    def rank(k, now, at_computing):
        """Who has the lowest goes first."""
        i = iteration[k]
        if (computing if at_computing else downlink).parallel:
            return 0.0
        service = plan.s_s[k, i] if at_computing else at_once(down[k], now, plan.sg_bytes[k, i])
        match paradigm.order:
            case "larger-lag":
                return -lag(k, at_computing)
            case "first-come":
                return 0.0
            case "shortest-job-first":
                return service
            case "round-robin":
                return i * clients + k
            case "longest-remaining-work-first":
                left = plan.cb_s[k, i] + (plan.s_s[k, i] if at_computing else 0.0)
                for j in range(i + 1, iterations):
                    left += plan.cf_s[k, j] + plan.s_s[k, j] + plan.cb_s[k, j]
                up_bytes = plan.cm_bytes[k] + plan.ca_bytes[k, i + 1 :].sum()
                left += at_once(up[k], now, up_bytes)
                return -left - at_once(down[k], now, plan.sg_bytes[k, i:].sum())

    while there:
        deadlines = [deadline[k] for k in there if deadline[k] < math.inf]
        moment = min(nanosecond(t) for t in [t for t, _, _ in agenda] + deadlines)
        for event in sorted(e for e in agenda if nanosecond(e[0]) == moment):
            agenda.remove(event)
            now, what, k = event
            i = iteration[k]
            if what == "begin":
                begin(k, now)
            elif what == "smashed data in":
                computing.arrive(Visit(k, now, rank(k, now, True)))
            elif what == "computed":
                computing.busy = False
                downlink.arrive(Visit(k, now, rank(k, now, False)))
            elif what == "gradient there":
                downlink.busy = False
                steps[k, i, "CB"] = (now, slowly(now, plan.cb_s[k, i], slow.get(k + 1, [])), 0)
                now = steps[k, i, "CB"][1]
                if i + 1 < iterations:
                    iteration[k] += 1
                    begin(k, now)
                elif now < faults["stop_s"][k]:
                    end = carried(up[k], k, now, plan.cm_bytes[k])
                    steps[k, i, "CM"] = (now, end, plan.cm_bytes[k])
                    if end <= deadline[k]:
                        finished[k] = end
                        there.remove(k)
        for k in list(there):
            if deadline[k] < math.inf and nanosecond(deadline[k]) <= moment:
                lost[k] = deadline[k]
                there.remove(k)
                agenda = [event for event in agenda if event[2] != k]
                computing.give_up(k, deadline[k])
                downlink.give_up(k, deadline[k])
        while (chosen := computing.next()) is not None:
            visit, start = chosen
            k = visit.client
            end = slowly(start, plan.s_s[k, iteration[k]], slow.get(0, []))
            computing.serve_until(end, k)
            steps[k, iteration[k], "S"] = (start, end, 0)
            agenda.append((end, "computed", k))
        if any(nanosecond(time_s) == moment for time_s, _, _ in agenda):
            continue
        while (chosen := downlink.next()) is not None:
            visit, start = chosen
            k = visit.client
            size = plan.sg_bytes[k, iteration[k]]
            end = carried(down[k], k, start, size)
            downlink.serve_until(end, k)
            steps[k, iteration[k], "SG"] = (start, end, size)
            if end <= deadline[k]:
                agenda.append((end, "gradient there", k))

    for (k, i, step), (start, end, size) in list(steps.items()):
        if k in lost:
            own = step in ("CF", "CA", "CB", "CM")
            until = min(lost[k], faults["stop_s"][k]) if own else lost[k]
            del steps[k, i, step]
            if start <= until:
                steps[k, i, step] = (start, min(end, until), size)

    def total(k, *kinds):
        return sum(
            end - start for (c, _, s), (start, end, _) in steps.items() if c == k and s in kinds
        )

    computing_w = np.full(clients, plan.compute_power_w)
    energy = [
        computing_w[k] * total(k, "CF", "CB") + radio.uplink_power_w[k] * total(k, "CA", "CM")
        for k in range(clients)
    ]
    given_up = [at_s for k, at_s in lost.items() if not faults["absent"][k]]
    latency = max([*finished.values(), *given_up, start_s]) - start_s
    spans = sorted(
        (
            (k + 1, i + 1, step, start, end, size)
            for (k, i, step), (start, end, size) in steps.items()
        ),
        key=lambda span: (span[0], span[3], span[4]),
    )
    return latency, energy, latency + plan.energy_weight * max(energy), spans, lost
