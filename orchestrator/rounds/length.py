# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The bound on the length of a round, `longest_round_s`.

With a value in a wrong unit, a round may last years, and its channel would fill the memory before
it ends. So the time that a round needs is estimated from the rates of the slots that are known,
before further slots are made, and the key whose unit is probably wrong is named.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from ns3_scenarios.trace import SlotTrace
from orchestrator.engine.access import RadioAccess
from orchestrator.engine.arrays import Array
from orchestrator.engine.faults import RoundFaults
from orchestrator.engine.plan import RoundPlan
from orchestrator.scenario.channel import Channel
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from testbed.core.timeline import Round

SAMPLED_SLOTS = 4096
"""Largest number of slots from which a mean rate is computed."""
MOST_STEPS = 50_000_000
"""Largest number of steps of all rounds; each needs about 100 bytes."""
USUAL = {
    "uavs.compute_flops": (1e8, 1e16),
    "base_station.compute_flops": (1e9, 1e18),
    "uavs.tx_power_w": (1e-3, 1e3),
    "base_station.tx_power_w": (1e-2, 1e4),
    "radio.uplink_bandwidth_hz": (1e5, 1e10),
    "radio.downlink_bandwidth_hz": (1e5, 1e10),
    "radio.noise_dbm_per_mhz": (-180.0, -90.0),
    "radio.lte.interference_margin_db": (0.0, 20.0),
    "radio.lte.antenna_gain_db": (-10.0, 40.0),
    "radio.nr.interference_margin_db": (0.0, 20.0),
    "radio.nr.antenna_gain_db": (-10.0, 40.0),
    "allocation.alpha": (1e-3, 1.0),
    "allocation.beta": (1e-3, 1.0),
    "allocation.rho": (1e-3, 1.0),
    "workload.backward_ratio": (0.1, 10.0),
    "workload.batch_size": (1.0, 1024.0),
    "workload.local_iterations": (1.0, 100.0),
    "workload.lora_rank": (1.0, 256.0),
    "workload.sequence_length": (1.0, 1e5),
    "workload.classes": (1.0, 1e5),
    "topology.edge_rounds": (1.0, 100.0),
    "topology.backhaul.uplink_bps": (1e4, 1e12),
    "topology.backhaul.downlink_bps": (1e4, 1e12),
    "participation.deadline_s": (0.0, 1e4),
    "faults.loss_timeout_s": (0.0, 1e4),
}
"""Values with which the unit of a key is hardly wrong."""
LOADS = ("workload.batch_size", "workload.local_iterations", "workload.backward_ratio")
SIZES = (*LOADS[:2], "workload.lora_rank", "workload.sequence_length", "workload.classes")
RADIO = (
    "radio.noise_dbm_per_mhz",
    *(
        f"radio.{cell}.{key}"
        for cell in ("lte", "nr")
        for key in ("interference_margin_db", "antenna_gain_db")
    ),
)
UPLINK = (*RADIO, "uavs.tx_power_w", "radio.uplink_bandwidth_hz", "allocation.beta", *SIZES)
DOWNLINK = (
    *(*RADIO, "base_station.tx_power_w", "radio.downlink_bandwidth_hz"),
    *("allocation.rho", "allocation.beta", *SIZES),
)


@dataclass(frozen=True)
class _Part:
    """Steps of a round, which take a part of its time."""

    what: str
    """What takes the time, with `{}` for the name of a UAV."""
    seconds: Array
    """Seconds for each client, shape [K]; 0 where the known slots have no rate."""
    keys: tuple[str, ...]
    """Keys that determine the time."""
    is_queue: bool = False
    """Whether the clients wait for each other."""
    rate_bps: Array | None = None
    """Mean rates of the links, shape [K]."""


def check_length(
    scenario: Scenario,
    plan: RoundPlan,
    radio: RadioAccess,
    trace: SlotTrace,
    start_s: float,
    faults: RoundFaults | None = None,
    rounds: int = 1,
) -> None:
    """Refuse a round that needs more than `longest_round_s` at the mean rates of the known slots.

    Args:
        scenario: Scenario of the round.
        plan: The round.
        radio: Its radio.
        trace: Slots of its channel, which end before the round does.
        start_s: Start of the round in s.
        faults: Faults of the round.
        rounds: Number of such rounds, one after the other, that the slots are for.

    Raises:
        InputError: One line that names the step, and the key whose unit is probably wrong.
    """
    most_s = scenario.longest_round_s
    if faults is not None and faults.deadline_s - start_s <= most_s:
        return
    taking = np.zeros(plan.clients, bool)
    taking[np.array(plan.allocation.clients or range(1, plan.clients + 1)) - 1] = True
    if faults is not None:
        taking &= ~faults.absent & np.isinf(faults.lost_s)
    if not taking.any():
        return
    parts = list(_parts(plan, radio, trace, start_s))
    each_s = np.sum([part.seconds for part in parts], axis=0)
    if plan.updates:  # the plan is that of all rounds
        rounds = plan.updates // plan.updates_per_round
    past_s = (trace.end * trace.slot_s - start_s) / rounds
    if plan.updates:
        client = int(np.argmin(np.where(taking, each_s, np.inf)))
        least_s = plan.updates_per_round / (1 / each_s[taking].clip(min=1e-9)).sum()
    else:
        client = int(np.argmax(np.where(taking, each_s, -np.inf)))
        least_s = each_s[client]
    part = max(parts, key=lambda part: part.seconds[client])
    who, part_s = f"uav{client + 1}", part.seconds[client]
    for queue in parts if not plan.updates else ():
        if queue.is_queue and (total_s := queue.seconds[taking].sum()) > least_s:
            part, least_s, part_s, who = queue, total_s, total_s, "all UAVs together"
    if max(least_s, past_s) <= most_s:
        return
    if least_s <= most_s:
        why = f"at its mean rates it would take {_seconds(least_s)}"
        _refuse(scenario, past_s, f"{why}; see links.loss and faults", (), client)
    rate = "" if part.rate_bps is None else f" (mean rate {_rate(part.rate_bps[client])})"
    why = f"{part.what.format(who)} takes {_seconds(part_s)}{rate}"
    _refuse(scenario, max(least_s, past_s), why, part.keys, client)


def check_steps(scenario: Scenario) -> None:
    """Refuse a scenario whose steps would fill the memory.

    Raises:
        InputError: One line with the number of steps.
    """
    count, iterations = scenario.uavs.count, scenario.iterations
    steps = count * (5 * iterations + 2) * (1 if scenario.updates else scenario.rounds)
    if steps > MOST_STEPS:
        updates = f", {scenario.updates_per_round:,} updates each" if scenario.updates else ""
        raise InputError(
            f"rounds: {scenario.rounds:,} rounds{updates} of {count:,} UAVs with "
            f"{scenario.workload.largest('local_iterations'):,} iterations have {steps:,} steps; "
            f"at most {MOST_STEPS:,} are possible"
        )


def check_rounds(channel: Channel, latency_s: float, count: int) -> None:
    """Refuse a number of rounds of this latency whose channel would fill the memory.

    Raises:
        InputError: It would; one line.
    """
    if channel.forgets:
        return
    try:
        channel.check_room(math.ceil(count * latency_s / channel.slot_s))
    except InputError as error:
        raise InputError(f"rounds: {count:,} rounds of {latency_s:.4g} s: {error}") from None


def check_played(scenario: Scenario, round_: Round) -> None:
    """Refuse a predicted round that has lasted longer than `longest_round_s`.

    Raises:
        InputError: One line that names the key whose unit is probably wrong.
    """
    if round_.latency_s > scenario.longest_round_s:
        why = f"round {round_.index} takes {_seconds(round_.latency_s)}"
        _refuse(scenario, round_.latency_s, why, tuple(USUAL), 0)


def _refuse(
    scenario: Scenario, least_s: float, why: str, keys: tuple[str, ...], client: int
) -> NoReturn:
    """Refuse a round.

    Args:
        scenario: Scenario of the round.
        least_s: The time that it needs at least.
        why: What takes most of the time.
        keys: Keys that determine this time.
        client: Index of the client that needs it, from 0.

    Raises:
        InputError: Always.
    """
    bound = f"a round may last {_seconds(scenario.longest_round_s)} (longest_round_s)"
    values = {key: _value(scenario, key, client) for key in keys}
    strange = {key: _strangeness(key, value) for key, value in values.items() if value is not None}
    key = max(strange, key=lambda key: strange[key], default="")
    if not key or not strange[key]:
        raise InputError(f"longest_round_s: {bound}, and needs {_seconds(least_s)} or more: {why}")
    raise InputError(f"{key}: with {values[key]:g}, {why}; {bound}; is the unit right?")


def _parts(
    plan: RoundPlan, radio: RadioAccess, trace: SlotTrace, start_s: float
) -> Iterator[_Part]:
    """The steps of a round, each at the mean of its link's rates in the known slots.

    Where UAVs share a band, each is assumed to have the whole band.
    """
    first = min(int(start_s / trace.slot_s) - trace.begin, trace.slots - 1)
    values = trace.values[:, first :: math.ceil((trace.slots - first) / SAMPLED_SLOTS)]
    how: dict[str, Any] = {"in_turns": plan.in_turns, "active": 1}
    rates = radio.link_rates(plan.allocation, values, **how)
    up_bps = radio.link_rates(plan.uplink_shares, values, **how).uplink.mean(axis=1)
    down_bps, broadcast_bps = rates.gradient.mean(axis=1), rates.broadcast.mean(axis=1)
    count, scheme = plan.iterations_of, plan.paradigm
    up_in_turns = radio.is_shared or scheme.uplink == "sequential"

    def sent_s(sizes: npt.NDArray[np.int64], bps: Array) -> Array:
        # In an asynchronous run, adapters have the shape of iterations, most of which have none.
        sizes = sizes.reshape(plan.clients, -1).max(axis=1)
        return np.asarray(np.divide(8.0 * sizes, bps, out=np.zeros(plan.clients), where=bps > 0))

    yield _Part(
        "the computing of {}",
        count * (plan.cf_s[:, 0] + plan.cb_s[:, 0]),
        ("uavs.compute_flops", *LOADS),
    )
    yield _Part(
        "the server's computing for {}",
        count * plan.s_s[:, 0],
        ("base_station.compute_flops", "allocation.alpha", *LOADS),
        scheme.server_compute == "sequential",
    )
    for what, sizes, bps, keys, is_queue in (
        ("the broadcast to {}", plan.sm_bytes, broadcast_bps, DOWNLINK, False),
        ("the upload of smashed data of {}", count * plan.ca_bytes[:, 0], up_bps, UPLINK, True),
        ("the download of gradients of {}", count * plan.sg_bytes[:, 0], down_bps, DOWNLINK, True),
        ("the upload of adapters of {}", plan.cm_bytes, up_bps, UPLINK, True),
    ):
        in_turns = plan.in_turns if keys is DOWNLINK else up_in_turns
        yield _Part(what, sent_s(sizes, bps), keys, is_queue and in_turns, bps)


def _value(scenario: Scenario, key: str, client: int) -> float | None:
    """The value of a key for a client, from 0; None: it has none."""
    section, _, name = key.partition(".")
    if section == "uavs":
        return float(getattr(scenario.fleet, name)[client])
    node: Any = scenario
    for part in key.split("."):
        node = getattr(node, part, None)
    if isinstance(node, list):
        node = node[client]
    return float(node) if isinstance(node, int | float) else None


def _strangeness(key: str, value: float) -> float:
    """Number of decades by which a value lies outside `USUAL`."""
    low, high = USUAL[key]
    if key.split("_")[-1] in ("db", "mhz"):
        return max(0.0, low - value, value - high) / 10
    return max(
        0.0, math.log10(max(low, 1e-9) / max(value, 1e-9)), math.log10(max(value, 1e-9) / high)
    )


def _seconds(time_s: float) -> str:
    return f"{time_s:,.0f} s" if time_s >= 100 else f"{time_s:.3g} s"


def _rate(bps: float) -> str:
    return f"{bps:,.3g} bit/s" if bps < 1000 else f"{bps:,.0f} bit/s"
