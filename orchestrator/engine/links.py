# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The links of a scenario as settings for the kernel, for nodes, and for simulations."""

import hashlib
import secrets
from dataclasses import replace

from orchestrator.scenario.duplex import idle_delays_s
from orchestrator.scenario.schema import (
    ByDistance,
    Directions,
    GilbertElliott,
    IndependentLoss,
    OfTrace,
    Scenario,
    SnrLoss,
    varies_by_slot,
)
from testbed.core.impairment import Impairment, Losses
from testbed.network.shaping import WITHOUT_CREDIT_S, Shape, serial_queue_frames
from testbed.system import inside
from testbed.transport.framing import datagram_bytes
from testbed.transport.interface import TransportSettings
from testbed.transport.wire import TOKEN_BYTES


def shape_of(scenario: Scenario, dilation: float = 1.0, *, network: bool = False) -> Shape:
    """The shape of the scenario's links.

    Args:
        scenario: Scenario with the links.
        dilation: Real seconds per emulated second.
        network: See `Shape.network`.
    """
    is_ns3 = scenario.emulation.air == "ns3"
    by_frame = is_ns3 or not scenario.emulation.transport_kind.is_tcp
    serial, mtu = scenario.emulation.clock == "virtual" and not is_ns3, scenario.emulation.mtu
    return Shape(
        mtu=mtu,
        # Programs of sessions send what they like, and find the same queues with both clocks.
        queue_frames=serial_queue_frames(mtu) if serial and not network else Shape.queue_frames,
        charges_headers=scenario.emulation.rate_counts == "frame",
        congestion_control=scenario.emulation.congestion_control,
        initial_window=scenario.emulation.initial_window,
        queue=scenario.links.queue,
        ecn=scenario.links.ecn,
        # Each UDP datagram is one packet and one frame; so is each packet on a tap device.
        packet_s=0.0 if by_frame else Shape.packet_s,
        burst_s=WITHOUT_CREDIT_S if is_ns3 else Shape.burst_s,
        impaired=scenario.is_impaired,
        single_frames=any(
            each.losses or each.reorders for way in impairments_of(scenario) for each in way
        ),
        network=network,
        relay=network and scenario.links.relay,
        serial=serial,
    )


def transport_settings_of(
    scenario: Scenario, timeout_s: float, meeting_s: float, *, qlog: bool = False
) -> list[TransportSettings]:
    """Transport settings of each node, the base station first, with new secrets."""
    choices = scenario.emulation
    inside.draw_as("secrets")
    settings = TransportSettings(
        token=secrets.token_hex(TOKEN_BYTES),
        timeout_s=timeout_s,
        meeting_s=meeting_s,
        transport=choices.transport,
        connection=choices.connection,
        nagle=choices.nagle,
        congestion_control=choices.congestion_control,
        datagram_bytes=datagram_bytes(choices.mtu),
        qlog=qlog,
    )
    if not choices.transport_kind.has_certificates:
        return [settings] * (scenario.uavs.count + 1)
    from testbed.transport.certificates import identities

    return [replace(settings, identity=identity) for identity in identities(scenario.uavs.count)]


def impairments_of(
    scenario: Scenario, dilation: float = 1.0
) -> tuple[tuple[Impairment, ...], tuple[Impairment, ...]]:
    """Constant impairments of each uplink and each downlink; delays in real seconds. A delay of the
    links adds to that of the radio.

    Impairments that change by slot are those of `orchestrator.engine.slot_impairments`.

    Args:
        scenario: Scenario with the links.
        dilation: Real seconds per emulated second.
    """
    links, count = scenario.links, scenario.uavs.count
    delay_s = links.one_way_delay_s
    of_radio_s = idle_delays_s(scenario.radio.nr) if scenario.waits_for_slots else (0.0, 0.0)

    def way(down: bool) -> tuple[Impairment, ...]:
        side = "down" if down else "up"
        delays = [each + of_radio_s[down] for each in _each(delay_s, side, count)]
        jitters = _each(links.jitter_s, side, count)
        losses = _losses(links.loss_of(side), count)
        slots = any(map(varies_by_slot, (delay_s, links.jitter_s, links.loss_of(side))))
        return tuple(
            Impairment(
                delay * dilation,
                jitter * dilation,
                loss,
                _seed(scenario.seed, k, down),
                slots,
                links.reordering,
            )
            for k, (delay, jitter, loss) in enumerate(zip(delays, jitters, losses, strict=True), 1)
        )

    return way(False), way(True)


def _each(value: object, side: str, count: int) -> list[float]:
    if isinstance(value, ByDistance):
        return [value.base_s] * count
    if isinstance(value, OfTrace):
        return [0.0] * count
    if isinstance(value, Directions):
        value = value.up if side == "up" else value.down
    if isinstance(value, list):
        return value
    assert isinstance(value, float | int)
    return [value] * count


def _losses(value: object, count: int) -> list[Losses | None]:
    match value:
        case GilbertElliott():
            losses = Losses(value.good_to_bad, value.bad_to_good, value.loss_good, value.loss_bad)
            return [losses] * count
        case SnrLoss() | OfTrace():
            return [Losses(0.0, 1.0, 0.0, 0.0)] * count
        case IndependentLoss():
            return _losses(value.probability, count)
        case list():
            return [_independent(each) for each in value]
        case float() | int():
            return [_independent(value)] * count
    raise AssertionError(value)


def _independent(probability: float) -> Losses | None:
    return Losses(0.0, 1.0, probability, 0.0) if probability else None


def _seed(seed: int, client: int, down: bool) -> int:
    """A seed of 63 bits for each direction of each link; similar inputs have unrelated seeds."""
    digest = hashlib.blake2b(f"{seed} {client} {down}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
