# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""FedCS: latency of a round whose clients upload one after the other.

T. Nishio and R. Yonetani, "Client Selection for Federated Learning with Heterogeneous Resources in
Mobile Edge", IEEE ICC 2019: a round of the clients k_1, k_2, … takes T^d + Θ, with T^d the
distribution of the model and

    Θ_i = Θ_(i-1) + t_i^UL + max(0, t_i^UD - Θ_(i-1))

for the upload time t^UL and the update time t^UD; times for selection and aggregation are 0 here.
"""


def latency_s(plan, radio, gain, slot_s):
    """The round's latency in s, on the channel of its first slot; None for other protocols."""
    if plan.paradigm.uplink_order != "scheduled" or plan.ca_bytes.any():
        return None
    up = radio.link_rates(plan.uplink_shares, gain[:, :1], in_turns=False).uplink[:, 0]
    broadcast = radio.link_rates(plan.allocation, gain[:, :1], in_turns=False).broadcast[:, 0]
    clients = plan.allocation.clients or range(1, plan.clients + 1)
    chosen = [client - 1 for client in clients]
    theta = 0.0
    for k in chosen:
        update = (plan.cf_s[k] + plan.s_s[k] + plan.cb_s[k]).sum()
        theta += 8 * plan.cm_bytes[k] / up[k] + max(0.0, update - theta)
    return float((8 * plan.sm_bytes / broadcast)[chosen].max() + theta)
