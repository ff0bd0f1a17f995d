# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""EPSL: latency of a round with aggregated gradients.

Z. Lin, G. Zhu, Y. Deng, X. Chen, Y. Gao, K. Huang, and Y. Fang, "Efficient Parallel Split Learning
over Resource-Constrained Wireless Edge Networks", IEEE Transactions on Mobile Computing, 2024: the
latency of a training round, in which each client trains on one batch,

    max_i (T_i^F + T_i^U) + T_s^F + T_s^B + T^B + max_i (T_i^D + T_i^B)

with T_i^F and T_i^B client computing, T_i^U the upload of smashed data, T_s^F and T_s^B server
computing for all clients, T^B the broadcast of ⌈φb⌉ aggregated gradients, which the slowest client
ends, and T_i^D the transfer of the other b - ⌈φb⌉ gradients. The server's backward pass is over
⌈φb⌉ + C (b - ⌈φb⌉) samples for C clients.
"""


def latency_s(plan, radio, gain, slot_s):
    """The round's latency in s, on the channel of its first slot; None for other rounds.

    EPSL exchanges no client-side models; if the scenario does, they are sent before and after.
    """
    if plan.shared_bytes is None or plan.iterations > 1 or plan.paradigm.asks:
        return None
    up, broadcast, down = (
        rate[:, 0]
        for rate in radio.link_rates(plan.allocation, gain[:, :1], in_turns=plan.in_turns)
    )
    own_bytes = plan.sg_bytes[:, 0] - plan.shared_bytes
    upload = (plan.cf_s[:, 0] + 8 * plan.ca_bytes[:, 0] / up).max()
    shared = (8 * plan.shared_bytes / broadcast).max()
    download = (8 * own_bytes / down + plan.cb_s[:, 0] + 8 * plan.cm_bytes / up).max()
    adapters = (8 * plan.sm_bytes / broadcast).max()
    return float(adapters + upload + plan.s_s.sum() + shared + download)
