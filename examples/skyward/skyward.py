# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""One plug-in of most kinds, without PyTorch. See docs/plugins.md."""

import numpy as np

from orchestrator import Interval, Paradigm, StreamTransport, TcpStream, both_ways

# Both resources of the server serve one client at a time, the client with the largest lag first.
lone = Paradigm("lone", "LONE", "sequential", "sequential", "larger-lag")


def nearly_done(asked, patience_s=5.0):
    """The client with the least remaining work is first, unless others have waited long."""
    return asked.remaining_s + asked.enqueued_s / patience_s


def fast(scenario, most=2):
    """All clients in the first round, then the clients that finished it first."""

    def choose(start):
        if not start.rounds:
            return range(1, scenario.uavs.count + 1)
        steps = start.rounds[0].spans
        ends = {k: steps["end_s"][steps["client"] == k].max() for k in set(steps["client"])}
        return sorted(ends, key=ends.get)[:most]

    return choose


def few_classes(labels, clients, random, classes=2):
    """Each client has shards of the sorted labels, so few classes (McMahan et al. 2017)."""
    sorted_by_label = np.argsort(labels, kind="stable")
    shards = np.array_split(sorted_by_label, clients * classes)
    order = random.permutation(len(shards))
    return [np.concatenate([shards[n] for n in order[k::clients]]) for k in range(clients)]


def circles(space, radius_m=50.0, speed_m_s=10.0):
    """Each UAV circles above a point in the middle of its ring."""
    if radius_m <= 0:
        raise ValueError("radius_m must be positive")
    middle = np.array([(inner + outer) / 2 for inner, outer in space.ring_m])
    bearing = np.random.default_rng(space.seed).uniform(0, 2 * np.pi, space.uavs)
    angle = bearing
    while True:
        x = space.bs_position_m[0] + middle * np.cos(bearing) + radius_m * np.cos(angle)
        y = space.bs_position_m[1] + middle * np.sin(bearing) + radius_m * np.sin(angle)
        yield np.stack([x, y, np.full(space.uavs, space.height_m)], axis=1)
        angle = angle + speed_m_s * space.update_s / radius_m


def waiting(timeline):
    """Time that computed gradients wait for the downlink, in seconds per round, and the maximum."""
    steps = timeline.frame().pivot_table(
        index=["round", "client", "iteration"], columns="step", values=["start_s", "end_s"]
    )
    waits = steps[("start_s", "SG")] - steps[("end_s", "S")]
    return {"mean": waits.groupby("round").sum().mean(), "worst": waits.max()}


def gap(snr, bandwidth_hz, gap_db=3.0, most_bits_per_hz=6.0):
    """Shannon's rate with an SNR gap and a maximum spectral efficiency; numba compiles it."""
    return bandwidth_hz * min(most_bits_per_hz, np.log2(1 + snr / 10 ** (gap_db / 10)))


def rain(space, db_per_km=5.0, interference_db=3.0):
    """Free space with rain attenuation; the downlink also has interference."""
    base_station = np.array(space.bs_position_m)

    def gains(position_m, time_s):
        distance_m = np.linalg.norm(position_m - base_station, axis=2)
        loss_db = 20 * np.log10(4 * np.pi * distance_m * space.carrier_hz / 299_792_458)
        up = 10 ** (-(loss_db + db_per_km * distance_m / 1000) / 10)
        return up, up * 10 ** (-interference_db / 10)

    return gains


def busiest(plan, radio, gain, slot_s, efficiency=1.0):
    """Lower bound: the time of the slowest UAV if it were alone."""
    up, _ = both_ways(gain)
    if not up[:, 0].all():
        return None  # an outage: the model does not apply
    beta = plan.allocation.beta
    band = beta * radio.uplink_hz
    snr = radio.uplink_power_w * up[:, 0] / (band * radio.noise_w_per_hz)
    uplink = efficiency * band * np.log2(1 + snr)
    sent = 8 * (plan.ca_bytes.sum(axis=1) + plan.cm_bytes) / uplink
    computed = (plan.cf_s + plan.s_s + plan.cb_s).sum(axis=1)
    return Interval((sent + computed).max(), np.inf)


class PrefixedStream(TcpStream):
    """A TCP stream of messages, each preceded by its length in 10 bytes."""

    rest_bytes = arrived_ns = 0

    def send(self, *parts):
        size = sum(memoryview(part).nbytes for part in parts)
        super().send(size.to_bytes(10, "big"), *parts)
        self.record_bytes += 10

    def receive_into(self, place):
        while place.nbytes:
            if not self.rest_bytes:
                prefix = bytearray(10)
                super().receive_into(memoryview(prefix))
                self.rest_bytes = int.from_bytes(prefix, "big")
            piece, place = place[: self.rest_bytes], place[self.rest_bytes :]
            self.arrived_ns = super().receive_into(piece)
            self.rest_bytes -= piece.nbytes
        return self.arrived_ns


class Prefixed(StreamTransport):
    """Sends each frame as such a message."""

    name = "prefixed"

    def stream(self, sock, settings, peer):
        return PrefixedStream(sock)

    def message_bytes(self, head_bytes, payload_bytes):
        return head_bytes + payload_bytes + 10


prefixed = Prefixed()
