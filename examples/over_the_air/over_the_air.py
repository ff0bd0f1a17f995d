# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Over-the-air aggregation: all UAVs send their models at once, and the channel adds them."""

import math

import torch

from orchestrator import Algorithm


def analog(snr, bandwidth_hz, clients=3, share_hz=1e6):
    """Rate of a link: analog symbols in an uplink, Shannon's rate in the downlink.

    An uplink has at most the share `share_hz` of the band. Its UAV instead sends in the whole band,
    at the same time as the others: W complex symbols per second carry 2 W values of 32 bits.
    """
    if bandwidth_hz <= 1.001 * share_hz:
        return 64 * clients * bandwidth_hz
    return bandwidth_hz * math.log2(1 + snr)


def over_the_air(seed=0):
    """The weighted mean with the noise of one superposed transmission.

    Each UAV inverts its channel and sends its weighted change, scaled so that no UAV exceeds its
    power: with the SNR γ_k in the whole band, and m_k the mean square of the weighted change, each
    value of the sum gets noise with the variance max_k m_k / γ_k (Yang et al. 2020, section II).
    """

    def rule(update):
        clients = len(update.senders)
        total, variance = torch.zeros_like(update.before), 0.0
        for sender, (weight, model) in zip(update.senders, update.clients(), strict=True):
            change = weight * (model - update.before)
            total += change
            # The link's SNR is that in a share of the band.
            snr = 10 ** (sender.link.snr_up_db / 10) / clients
            variance = max(variance, float(change.square().mean()) / snr)
        random = torch.Generator().manual_seed(1_000_003 * seed + update.round)
        noise = torch.randn(len(total), generator=random, dtype=total.dtype)
        return update.before + total + math.sqrt(variance) * noise

    return Algorithm(rule, needs_clients=True, needs_times=True)
