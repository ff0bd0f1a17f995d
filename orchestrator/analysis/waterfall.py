# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Decomposes a round's latency, from the payload at the channel's rates to the measured latency."""

from dataclasses import replace

import numpy as np
import pandas as pd

from ns3_scenarios.trace import SlotValues
from orchestrator.analysis.byte_accounts import STEP_OF
from orchestrator.analysis.error_budget import (
    RADIO_PARTS,
    latencies_of,
    measured_plan,
    measured_service_order,
    radio_stages,
)
from orchestrator.analysis.radio_log import RadioLog
from orchestrator.engine.access import RadioAccess
from orchestrator.engine.faults import RoundFaults
from orchestrator.engine.plan import Array, RoundPlan
from orchestrator.engine.tcp_model import TcpModel
from orchestrator.rounds.simulation import BY_RULES, RoundTimes, simulate
from testbed.core.timeline import Round

PARTS = (
    "payload",
    "computing",
    "framing",
    "tls",
    "grpc",
    "quic",
    "headers",
    "handshakes",
    "resent_lost",
    "resent_dropped",
    "resent_spurious",
    "delay",
    "overruns",
    "slots",
    "order",
    "rest",
)
"""Parts of a round's latency, in order of evaluation.

payload: its bits at the channel's rates, without computing. computing: steps with the durations of
the device profile. framing to resent_spurious: see `BYTES` of
`orchestrator.analysis.byte_accounts`, added to the transfers that they belong to. delay: the links'
delay, including TCP windows that wait for it. overruns: deviations of computing steps from their
model. slots: late rate changes. order: another order of service. rest: unexplained.
Acknowledgements have no part: they use the other direction, which is idle at that time.
"""

PART_OF = {
    "payload_bytes": "payload",
    "framing_bytes": "framing",
    "tls_bytes": "tls",
    "grpc_bytes": "grpc",
    "quic_bytes": "quic",
    "header_bytes": "headers",
    "handshake_bytes": "handshakes",
    "resent_lost_bytes": "resent_lost",
    "resent_dropped_bytes": "resent_dropped",
    "resent_spurious_bytes": "resent_spurious",
}
_PLAN_BYTES = {"SM": "sm_bytes", "CA": "ca_bytes", "SG": "sg_bytes", "CM": "cm_bytes"}


def waterfalls(
    measured: Round,
    payload_plan: RoundPlan,
    accounts: pd.DataFrame,
    radio: RadioAccess,
    gain: SlotValues,
    slot_s: float,
    slot_edges_s: Array,
    *,
    charges_headers: bool,
    faults: RoundFaults | None = None,
    tcp: TcpModel | None = None,
    radio_log: RadioLog | None = None,
) -> list[dict[str, float]]:
    """Contribution of each of `PARTS` to a round's latency, s; their sum is the latency. The list
    has one entry for each round of an asynchronous run, or a single one.

    The simulation is repeated, each time with one more part.

    Args:
        measured: The measured round.
        payload_plan: Plan with payload bytes.
        accounts: The round's accounts, from `orchestrator.analysis.byte_accounts`.
        radio: Parameters that convert gains to rates.
        gain: Gains of the whole trace, shape [K, S] or for each direction.
        slot_s: Length of a slot, s.
        slot_edges_s: Actual times of rate changes, shape [S + 1], s.
        charges_headers: Whether the channel's rate includes headers of frames.
        faults: Faults in the round.
        tcp: Model of delay; effects of loss other than bytes are part of the rest.
        radio_log: Log of the radio's grants. Then each UAV is sent a copy of the broadcast of its
            own, and `RADIO_PARTS` of `orchestrator.analysis.error_budget` precede the rest.
    """
    payload_plan = replace(payload_plan, unicast=radio_log is not None)
    nothing = np.zeros_like(payload_plan.cf_s)
    plans = [
        replace(payload_plan, cf_s=nothing, cb_s=nothing, s_s=nothing),
        payload_plan,
    ]
    for column, part in PART_OF.items():
        if part == "payload":
            continue
        free = not charges_headers and part in ("headers", "handshakes")
        plans.append(plans[-1] if free else _with_bytes(plans[-1], accounts, column))
    start_s = measured.start_s
    stages: list[Round | RoundTimes] = [
        simulate(plan, radio, gain, slot_s, start_s, faults=faults) for plan in plans
    ]
    at = radio, gain, slot_s, start_s
    lossless = tcp and tcp.without_loss()
    stages.append(simulate(plans[-1], *at, faults=faults, tcp=lossless))
    # Measured durations already include slow nodes.
    faults = faults and faults.at_full_speed()
    computed = measured_plan(measured, plans[-1])
    stages.append(simulate(computed, *at, faults=faults, tcp=lossless))
    service_order = measured_service_order(measured, payload_plan)
    for order in (BY_RULES, service_order):
        times = simulate(
            computed,
            *at,
            slot_edges_s=slot_edges_s,
            service_order=order,
            faults=faults,
            tcp=lossless,
        )
        stages.append(times)
    parts: tuple[str, ...] = PARTS
    if radio_log is not None:
        assert tcp is not None
        of_radio = radio_stages(
            *(measured, computed, times, tcp, radio_log, service_order, slot_s, faults),
            accounts,
        )
        stages += [stage for _, stage in of_radio]
        parts = (*PARTS[:-1], *RADIO_PARTS, PARTS[-1])
    latencies = latencies_of([*stages, measured], payload_plan)
    in_rounds = np.diff(latencies, axis=0, prepend=0.0)
    return [dict(zip(parts, of_round, strict=True)) for of_round in in_rounds.T.tolist()]


def _with_bytes(plan: RoundPlan, accounts: pd.DataFrame, column: str) -> RoundPlan:
    """The plan with the bytes in a column of the accounts added to each transfer."""
    added = {name: getattr(plan, name).copy() for name in _PLAN_BYTES.values()}
    wanted = accounts[accounts["kind"].isin(list(STEP_OF)) & (accounts[column] != 0)]
    for kind, client, iteration, size in zip(
        *(wanted[name] for name in ("kind", "client", "iteration", column)), strict=True
    ):
        sizes = added[_PLAN_BYTES[STEP_OF[kind]]]
        at = (client - 1, iteration - 1)[: sizes.ndim]
        sizes[at] += size
    return replace(plan, **added)
