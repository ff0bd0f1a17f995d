# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How much of a round is protocol: from payload over Shannon rate to what was measured."""

from dataclasses import replace

import numpy as np
import pandas as pd

from ns3_scenarios.trace import SlotValues
from orchestrator.analysis.byte_accounts import STEP_OF
from orchestrator.analysis.error_budget import measured_plan, measured_service_order
from orchestrator.engine.engine import simulate
from orchestrator.engine.faults import RoundFaults
from orchestrator.engine.kernel import BY_RULES
from orchestrator.engine.plan import Array, RoundPlan
from orchestrator.engine.radio import RadioAccess
from orchestrator.engine.tcp_model import Transport
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
"""What a round's latency is made of, in the order in which it is put in.

payload: its bits over the channel's rates, as if nothing was computed. computing: steps as long as
the device profile says. framing to resent_spurious: see `BYTES` of
`orchestrator.analysis.byte_accounts`, each on the transfer that it belongs to. delay: of the air,
with the windows that wait for it. overruns: computing steps took other than modelled. slots: rates
changed late. order: the server served in another order. rest: what none of it explains.
Acknowledgements have no part: they go the other way on a link that carries nothing else at that
time.
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


def waterfall(
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
    transport: Transport | None = None,
) -> dict[str, float]:
    """What each of `PARTS` adds to a round's latency, in seconds; they add up to it exactly.

    The engine plays the round again and again, each time with one more thing put in.

    Args:
        measured: The round as it went.
        payload_plan: Plan with payload bytes.
        accounts: The round's, from `orchestrator.analysis.byte_accounts`.
        radio: What turns a gain into a rate.
        gain: Shape [K, S] or for each direction, the whole trace.
        slot_s: Length of a slot.
        slot_edges_s: Shape [S + 1], when the rates really changed.
        charges_headers: Whether the channel's rate carries frames, or their payload alone.
        faults: What went wrong in it.
        transport: What delays mean for its transfers; what losses do beyond bytes is in the rest.
    """
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
    latencies = [0.0]
    latencies += [
        simulate(plan, radio, gain, slot_s, start_s, faults=faults).latency_s for plan in plans
    ]
    at = radio, gain, slot_s, start_s
    lossless = transport and transport.without_loss()
    latencies.append(simulate(plans[-1], *at, faults=faults, transport=lossless).latency_s)
    # What nodes took was measured with their slowness.
    faults = faults and faults.at_full_speed()
    computed = measured_plan(measured, plans[-1])
    latencies.append(simulate(computed, *at, faults=faults, transport=lossless).latency_s)
    service_order = measured_service_order(measured, payload_plan)
    for order in (BY_RULES, service_order):
        times = simulate(
            computed,
            *at,
            slot_edges_s=slot_edges_s,
            service_order=order,
            faults=faults,
            transport=lossless,
        )
        latencies.append(times.latency_s)
    latencies.append(measured.latency_s)
    return dict(zip(PARTS, np.diff(latencies).tolist(), strict=True))


def _with_bytes(plan: RoundPlan, accounts: pd.DataFrame, column: str) -> RoundPlan:
    """The plan with what a column of the accounts adds to each transfer."""
    added = {name: getattr(plan, name).copy() for name in _PLAN_BYTES.values()}
    wanted = accounts[accounts["kind"].isin(list(STEP_OF)) & (accounts[column] != 0)]
    for kind, client, iteration, size in zip(
        *(wanted[name] for name in ("kind", "client", "iteration", column)), strict=True
    ):
        sizes = added[_PLAN_BYTES[STEP_OF[kind]]]
        at = (client - 1, iteration - 1)[: sizes.ndim]
        sizes[at] += size
    return replace(plan, **added)
