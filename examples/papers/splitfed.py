# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""SplitFed (SFLV1): latency of a round whose client-side models are uploaded together.

C. Thapa, P. C. M. Arachchige, S. Camtepe, and L. Sun, "SplitFed: When Federated Learning Meets
Split Learning", AAAI 2022, table of communication costs and training times: for equal clients, a
global epoch of SFLV1 takes

    T + 2 p q / (K R) + 2 β |W| / R + T_fedavg

with T computing, p samples in all, q the smashed data of a sample, K clients, R the rate of each
link and β|W| the client-side model. Here clients differ, so that each stage between two barriers
takes as long as its slowest client; aggregation takes no time.
"""


def latency_s(plan, radio, gain, slot_s):
    """The round's latency in s, on the channel of its first slot; None for other protocols."""
    scheme = plan.paradigm
    parallel = scheme.server_compute == scheme.gradient_transmission == "parallel"
    gated = scheme.compute_waits_for_all or scheme.transmission_waits_for_all
    if not (parallel and scheme.adapters_wait_for_all) or gated or scheme.uplink != "parallel":
        return None
    up, broadcast, down = (
        rate[:, :1] for rate in radio.link_rates(plan.allocation, gain[:, :1], in_turns=False)
    )
    computing = plan.cf_s + plan.s_s + plan.cb_s
    training = (computing + 8 * plan.ca_bytes / up + 8 * plan.sg_bytes / down).sum(1)
    models = (8 * plan.sm_bytes / broadcast[:, 0]).max() + (8 * plan.cm_bytes / up[:, 0]).max()
    return float(training.max() + models)
