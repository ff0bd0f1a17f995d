# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Impairments that change from slot to slot: loss by signal-to-noise ratio, delay by distance.

The frame error rate e of a slot is a function of its signal-to-noise ratio. The radio retransmits a
frame with errors (HARQ); each transmission has the same error rate, since transmissions are not
combined. After n transmissions with errors, the frame is lost. It follows that

- the loss probability is e^n;
- the mean number of transmissions is (1 - e^n) / (1 - e), by which the airtime grows;
- a frame that arrives was sent t times with probability e^(t-1) (1 - e) / (1 - e^n), and is delayed
  by t - 1 retransmissions. Links are given the mean and standard deviation of this delay.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ns3_scenarios.trace import SlotTrace
from orchestrator.engine.links import impairments_of
from orchestrator.scenario.schema import ByDistance, OfTrace, Scenario, SnrLoss

Array = npt.NDArray[np.float64]

UP, DOWN, BROADCAST = 0, 1, 2
"""Directions of a frame; the broadcast is a downlink that may have its own bandwidth and power."""
LIGHT_M_S = 299_792_458.0
CERTAIN = 1 - 1e-12


@dataclass(frozen=True)
class SlotImpairments:
    """Impairments of frames in each slot; arrays of shape [3, K, S], by direction as in `UP`,
    `DOWN`, `BROADCAST`."""

    delay_s: Array
    jitter_s: Array
    """Standard deviation of the delay."""
    loss: Array
    """Probability of frame loss; in a model with two states, that of the good one."""
    airtime: Array
    """Mean number of transmissions of a frame, 1 or more, by which the link's rate is divided."""

    def given(self, first: int, end: int, dilation: float) -> list[Array]:
        """Delay and jitter in real seconds, and loss, shape [K, n, 3] each, of uplinks, broadcast
        and other downlinks in these slots."""
        parts = ((self.delay_s, dilation), (self.jitter_s, dilation), (self.loss, 1.0))
        table = np.stack([part[..., first:end] * by for part, by in parts], axis=-1)
        return [table[way] for way in (UP, BROADCAST, DOWN)]


def impairments_by_slot(scenario: Scenario, trace: SlotTrace, snr: Array | None) -> SlotImpairments:
    """The impairments of the scenario's links in each slot of a trace.

    Args:
        scenario: Scenario with the links.
        trace: Trace of S slots with the data that `orchestrator.scenario.channel.check_trace`
            requires.
        snr: Signal-to-noise ratios, linear, shape [3, K, S]; None where no loss depends on them.
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
            delay_s[way] += trace.delay_s[side]
        if isinstance(links.jitter_s, OfTrace):
            assert trace.jitter_s is not None
            jitter_s[way] = trace.jitter_s[side]
        model = links.loss_of("down" if side else "up")
        if isinstance(model, OfTrace):
            assert trace.loss is not None
            loss[way] = trace.loss[side]
        elif isinstance(model, SnrLoss):
            assert snr is not None
            lost, sent, later_s, spread_s = _retransmissions(model, error_rate(model, snr[way]))
            loss[way], airtime[way] = lost, sent
            delay_s[way] += later_s
            jitter_s[way] = np.hypot(jitter_s[way], spread_s)
    return SlotImpairments(delay_s, jitter_s, loss, airtime)


def lossless(impairments: SlotImpairments) -> SlotImpairments:
    """The same impairments without frame loss."""
    return replace(impairments, loss=np.zeros_like(impairments.loss))


def error_rate(model: SnrLoss, snr: Array) -> Array:
    """Frame error rates at these signal-to-noise ratios, which are linear and of any shape."""
    with np.errstate(divide="ignore"):
        ratio_db = 10 * np.log10(snr)
    if model.table is not None:
        ratios, shares = zip(*model.table, strict=True)
        return np.asarray(np.interp(ratio_db, ratios, shares))
    assert model.threshold_db is not None
    margin = np.clip((ratio_db - model.threshold_db) / model.width_db, -500, 500)
    return np.asarray(1 / (1 + np.exp(margin)))


def _retransmissions(model: SnrLoss, errors: Array) -> tuple[Array, Array, Array, Array]:
    """Loss probability, mean number of transmissions, and mean and deviation of the delay."""
    e, most = np.minimum(errors, CERTAIN), model.retransmissions + 1
    lost = e**most
    again = np.arange(most, dtype=float)
    chance = e[..., None] ** again * ((1 - e) / (1 - lost))[..., None]
    mean = chance @ again
    spread = np.sqrt(np.maximum(chance @ again**2 - mean**2, 0))
    each_s = model.retransmission_s
    return lost, (1 - lost) / (1 - e), each_s * mean, each_s * spread
