# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What links do to frames from slot to slot: losses by signal-to-noise ratio, delays by distance.

A frame errs by a curve over the signal-to-noise ratio of its slot. Each time that it errs, the
radio sends it again (HARQ), each time with the same chance, since nothing is gained from what came
before; after the last time, it is lost. So of a frame that errs with probability e, sent n times at
most,

- e^n is lost;
- the link is taken for (1 - e^n) / (1 - e) times as long in the mean;
- those that arrive were sent t times with probability e^(t-1) (1 - e) / (1 - e^n), and are later by
  t - 1 retransmissions. Links are told mean and standard deviation of that.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ns3_scenarios.trace import SlotTrace
from orchestrator.engine.links import impairments_of
from orchestrator.scenario.schema import ByDistance, OfTrace, Scenario, SnrLoss

Array = npt.NDArray[np.float64]

UP, DOWN, BROADCAST = 0, 1, 2
"""Ways of a frame; the broadcast is a downlink that may have bandwidth and power of its own."""
LIGHT_M_S = 299_792_458.0
CERTAIN = 1 - 1e-12


@dataclass(frozen=True)
class SlotImpairments:
    """What becomes of frames in each slot; arrays of shape [3, K, S], by way."""

    delay_s: Array
    jitter_s: Array
    """Standard deviation of the delay."""
    loss: Array
    """Probability of a frame to be lost; in the good state, where there are two."""
    airtime: Array
    """How often a frame is sent in the mean, 1 or more: the link's rate is divided by it."""

    def given(self, first: int, end: int, dilation: float) -> list[Array]:
        """What uplinks, broadcasts and other downlinks are told of those slots: delay and jitter in
        real seconds, and loss, shape [K, n, 3] each."""
        parts = ((self.delay_s, dilation), (self.jitter_s, dilation), (self.loss, 1.0))
        table = np.stack([part[..., first:end] * by for part, by in parts], axis=-1)
        return [table[way] for way in (UP, BROADCAST, DOWN)]


def impairments_by_slot(scenario: Scenario, trace: SlotTrace, snr: Array | None) -> SlotImpairments:
    """What the scenario's links do to frames in each slot of a trace.

    Args:
        scenario: What its links are like.
        trace: S slots; it has what `orchestrator.scenario.channel.check_trace` asks for.
        snr: Signal-to-noise ratios, linear, shape [3, K, S]; None where no loss asks for them.
    """
    shape = (3, trace.uavs, trace.slots)
    delay_s, jitter_s, loss = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    airtime = np.ones(shape)
    given, links = impairments_of(scenario), scenario.links
    for way in (UP, DOWN, BROADCAST):
        side = min(way, DOWN)
        for k, link in enumerate(given[side]):
            delay_s[way, k], jitter_s[way, k] = link.delay_s, link.jitter_s
            loss[way, k] = 0.0 if link.losses is None else link.losses.loss_good
        if isinstance(links.one_way_delay_s, ByDistance):
            assert trace.position_m is not None
            there = trace.position_m - np.array(scenario.base_station.position_m)
            delay_s[way] += np.linalg.norm(there, axis=-1) / LIGHT_M_S
        elif isinstance(links.one_way_delay_s, OfTrace):
            assert trace.delay_s is not None
            delay_s[way] = trace.delay_s[side]
        if isinstance(links.jitter_s, OfTrace):
            assert trace.jitter_s is not None
            jitter_s[way] = trace.jitter_s[side]
        model = links.loss_of("down" if side else "up")
        if isinstance(model, OfTrace):
            assert trace.loss is not None
            loss[way] = trace.loss[side]
        elif isinstance(model, SnrLoss):
            assert snr is not None
            lost, sent, later_s, spread_s = _sent_again(model, error_rate(model, snr[way]))
            loss[way], airtime[way] = lost, sent
            delay_s[way] += later_s
            jitter_s[way] = np.hypot(jitter_s[way], spread_s)
    return SlotImpairments(delay_s, jitter_s, loss, airtime)


def lossless(air: SlotImpairments) -> SlotImpairments:
    """The same where no frame is lost."""
    return replace(air, loss=np.zeros_like(air.loss))


def error_rate(model: SnrLoss, snr: Array) -> Array:
    """Share of frames that err at these signal-to-noise ratios, linear, of any shape."""
    with np.errstate(divide="ignore"):
        ratio_db = 10 * np.log10(snr)
    if model.table is not None:
        ratios, shares = zip(*model.table, strict=True)
        return np.asarray(np.interp(ratio_db, ratios, shares))
    assert model.threshold_db is not None
    margin = np.clip((ratio_db - model.threshold_db) / model.width_db, -500, 500)
    return np.asarray(1 / (1 + np.exp(margin)))


def _sent_again(model: SnrLoss, errs: Array) -> tuple[Array, Array, Array, Array]:
    """Share lost, how often frames are sent, and how much later they are: mean and deviation."""
    e, most = np.minimum(errs, CERTAIN), model.retransmissions + 1
    lost = e**most
    again = np.arange(most, dtype=float)
    chance = e[..., None] ** again * ((1 - e) / (1 - lost))[..., None]
    mean = chance @ again
    spread = np.sqrt(np.maximum(chance @ again**2 - mean**2, 0))
    each_s = model.retransmission_s
    return lost, (1 - lost) / (1 - e), each_s * mean, each_s * spread
