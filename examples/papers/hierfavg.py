# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""HierFAVG: latency of a cloud round of clients, edge servers and a cloud.

L. Liu, J. Zhang, S. H. Song, and K. B. Letaief, "Client-Edge-Cloud Hierarchical Federated
Learning", IEEE ICC 2020: after κ1 local updates clients send their models to their edge server, and
after κ2 aggregations edge servers send theirs to the cloud. A cloud round takes

    κ2 (κ1 T^comp + T^comm) + T^cloud,    T^comp = c D / f,    T^comm = M / (B log2(1 + h p / σ))

for equal clients. Here they may differ, so that an edge round takes as long as its slowest client
and a cloud round as long as its slowest edge server. The paper neglects downlinks; here the
broadcast of an edge server and the answer of the cloud are terms of their own.
"""

import numpy as np


def latency_s(
    plan,
    radio,
    gain,
    slot_s,
    edges=(),
    edge_rounds=1,
    model_bytes=0,
    uplink_bps=1.0,
    downlink_bps=1.0,
    one_way_delay_s=0.0,
):
    """The latency of a cloud round in s, on the channel of its first slot.

    None without edge servers, or where clients send smashed data.

    Args:
        plan: The plan of an edge round of all clients.
        radio: The radio of the edge servers.
        gain: The channel gains.
        slot_s: Length of a slot in s.
        edges: The clients of each edge server, from 1.
        edge_rounds: κ2.
        model_bytes: Size of the model between edge servers and cloud.
        uplink_bps: Rate from an edge server to the cloud.
        downlink_bps: Rate from the cloud to an edge server.
        one_way_delay_s: Delay of the links between edge servers and cloud.
    """
    if not edges or plan.ca_bytes.any():
        return None
    computing = (plan.cf_s + plan.s_s + plan.cb_s).sum(axis=1)
    slowest = 0.0
    for clients in edges:
        rates = radio.link_rates(plan.allocation.among(clients), gain[:, :1], in_turns=False)
        own = np.array(clients) - 1
        broadcast = 8 * plan.sm_bytes[own] / rates.broadcast[own, 0]
        upload = 8 * plan.cm_bytes[own] / rates.uplink[own, 0]
        slowest = max(slowest, edge_rounds * (broadcast.max() + (computing[own] + upload).max()))
    hops = 8 * model_bytes / uplink_bps + 8 * model_bytes / downlink_bps + 2 * one_way_delay_s
    return float(slowest + hops)
