# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""FedBuff: arrival times, staleness and server steps of buffered asynchronous aggregation.

J. Nguyen, K. Malik, H. Zhan, A. Yousefpour, M. Rabbat, M. Malek, and D. Huba, "Federated Learning
with Buffered Asynchronous Aggregation", AISTATS 2022, algorithm 1: a client is sent the current
model w, trains, and sends the difference Δ by which it has changed w. When K updates are in the
buffer, the server applies their mean,

    w ← w + η_g / K · Σ_i s(τ_i) Δ_i,    s(τ) = 1 / sqrt(1 + τ),

with τ_i the number of server steps since client i was sent the model.

On a channel that does not change, with parallel computing and shares of the bands, an update of
client k takes the same time T_k whatever the others do, so its m-th one arrives at m T_k.
"""

import numpy as np


def update_s(plan, radio, gain):
    """T_k: duration of an update of each client in s, on the channel of the first slot."""
    rates = radio.link_rates(plan.allocation, gain[:, :1], in_turns=False)
    up, down = rates.uplink[:, 0], rates.gradient[:, 0]
    iteration_s = (
        plan.cf_s[:, 0]
        + 8 * plan.ca_bytes[:, 0] / up
        + plan.s_s[:, 0]
        + 8 * plan.sg_bytes[:, 0] / down
        + plan.cb_s[:, 0]
    )
    adapters_s = 8 * plan.sm_bytes[:, 0] / down + 8 * plan.cm_bytes[:, 0] / up
    return adapters_s + plan.iterations_of_update * iteration_s


def arrivals(update_s, updates):
    """Times of the first `updates` arrivals in s, and the client of each, from 0."""
    times = np.arange(1, updates + 1) * np.asarray(update_s)[:, None]
    clients = np.broadcast_to(np.arange(len(times))[:, None], times.shape)
    order = np.lexsort((clients.ravel(), times.ravel()))[:updates]
    return times.ravel()[order], clients.ravel()[order]


def staleness(clients, buffer):
    """τ of each update, from the clients of all updates in the order of arrival."""
    sent, stale = {}, []
    for arrived, client in enumerate(clients):
        steps = arrived // buffer
        stale.append(steps - sent.get(client, 0))
        # It is sent the model at once, with the step that this update may have completed.
        sent[client] = (arrived + 1) // buffer
    return np.array(stale)


def server_steps(model, differences, stale, buffer, learning_rate):
    """The model after each server step, from the differences in the order of arrival."""
    models = []
    for last in range(buffer, len(differences) + 1, buffer):
        these = slice(last - buffer, last)
        weights = 1 / np.sqrt(1 + np.asarray(stale[these], float))
        mean = (weights[:, None] * np.asarray(differences[these])).mean(axis=0)
        model = model + learning_rate * mean
        models.append(model)
    return models


def latency_s(plan, radio, gain, slot_s):
    """Time until all updates of the run have arrived in s; None for other paradigms."""
    shared = plan.paradigm.server_compute, plan.paradigm.gradient_transmission
    if not plan.updates or plan.starts_after > 1 or "sequential" in shared:
        return None
    times, _ = arrivals(update_s(plan, radio, gain), plan.updates)
    return float(times[-1])
