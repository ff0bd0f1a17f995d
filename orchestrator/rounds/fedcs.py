# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""FedCS: the clients of a round are chosen by their resources, so that the round ends in time.

T. Nishio and R. Yonetani, "Client Selection for Federated Learning with Heterogeneous Resources in
Mobile Edge", IEEE ICC 2019, Algorithm 3.
"""

from collections.abc import Collection, Sequence

import numpy as np

from orchestrator.engine.plan import fixed_allocation, plan_round
from orchestrator.engine.radio import radio_access
from orchestrator.engine.rates import link_rates
from orchestrator.rounds.selection import Choose, RoundStart
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario


def fedcs(scenario: Scenario, round_s: float) -> Choose:
    """A rule that adds clients while the round is estimated to end within `round_s` seconds.

    Candidates are `participation.clients` UAVs, drawn by seed, or all UAVs. Again and again, the
    candidate is added that lengthens the round least; if the round would then be too long, the
    candidate is dropped. The order of the choice is that in which the chosen clients upload. If no
    candidate fits, the one with the shortest round is chosen, because a round needs a client.

    Estimates use the rates of the last known slot: the broadcast ends with its slowest client, and
    a client's update takes the time of its computing, of the server's computing and of the
    transfers of I iterations without waiting for other clients.

    Args:
        scenario: Scenario of the rounds.
        round_s: Largest estimated duration of a round, in emulated seconds.
    """
    profile = profile_of(scenario)
    count = scenario.participation.clients

    def choose(start: RoundStart) -> Collection[int]:
        plan = plan_round(scenario, profile, fixed_allocation(scenario).among(start.members))
        candidates = everyone = start.among(scenario)
        if count is not None:
            drawn = np.random.default_rng(start.seed(scenario, 0x9A28))
            candidates = np.sort(drawn.choice(everyone, count, replace=False))
        radio = radio_access(scenario, start.channel)
        rates = link_rates(plan, radio, start.channel.values[:, -1:])
        with np.errstate(divide="ignore"):
            up_s, broadcast_s, down_s = (8 / rate[:, 0] for rate in rates)
        # All iterations of a client are equal.
        transfers_s = plan.ca_bytes[:, 0] * up_s + plan.sg_bytes[:, 0] * down_s
        turn_s = (plan.cf_s + plan.s_s + plan.cb_s)[:, 0] + np.nan_to_num(transfers_s)
        adapters = (each.reshape(len(turn_s), -1)[:, 0] for each in (plan.sm_bytes, plan.cm_bytes))
        model_bytes, update_bytes = adapters
        return greedy(
            candidates.tolist(),
            (model_bytes * broadcast_s).tolist(),
            (plan.iterations_of * turn_s).tolist(),
            (update_bytes * up_s).tolist(),
            round_s,
        )

    return choose


def greedy(
    candidates: Sequence[int],
    broadcast_s: Sequence[float],
    update_s: Sequence[float],
    upload_s: Sequence[float],
    round_s: float,
) -> list[int]:
    """The chosen clients in the order of their uploads.

    Args:
        candidates: Clients to choose from, from 1.
        broadcast_s: Duration of the broadcast to each client of the scenario.
        update_s: Duration of each client's update.
        upload_s: Duration of each client's upload of adapters.
        round_s: Largest duration of the round.
    """

    left, chosen = list(candidates), list[int]()
    all_s = uploads_s = 0.0  # until the chosen clients have the broadcast; from then to the last CM

    def over(client: int) -> float:
        return max(uploads_s, update_s[client - 1]) + upload_s[client - 1]

    def length(client: int) -> tuple[float, int]:
        """Duration of the round with one more client; ties go to lower numbers."""
        return max(all_s, broadcast_s[client - 1]) + over(client), client

    while left:
        best = min(left, key=length)
        left.remove(best)
        if length(best)[0] < round_s:
            all_s, uploads_s = max(all_s, broadcast_s[best - 1]), over(best)
            chosen.append(best)
    return chosen or [min(candidates, key=length)]
