# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Training as the orchestrator sees it: the settings of the nodes, and their results."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ns3_scenarios.trace import both_ways
from orchestrator.engine.access import RadioAccess
from orchestrator.engine.fdma import Fdma
from orchestrator.engine.links import impairments_of
from orchestrator.engine.lte import Cellular
from orchestrator.engine.plan import RoundPlan
from orchestrator.scenario.profiles import data_of, model_of, profile_of
from orchestrator.scenario.schema import BaseStation, ResolvedScenario, Scenario, Uavs
from testbed.control.messages import BaseStationReport, Evaluated, Keeping, RoundReport
from testbed.core.node import NodeId, uav
from testbed.system.machine import gpus
from workloads.aggregation.privacy import Private, spent
from workloads.aggregation.rules import Rule, rule_of
from workloads.codecs.codec import DIRECTIONS
from workloads.learning.settings import TrainingConfig

if TYPE_CHECKING:
    from orchestrator.emulated.rate_feed import RoundRates

SLOW_FLOPS = 5e9
"""FLOP/s of a slow or busy core."""
START_S, NODE_S = 60.0, 2.0
"""Timeout of the start in real seconds, and its increase per node: containers share no imports."""
LOAD_S = 600.0
"""Timeout of the start where nodes load a model, in real seconds."""
CROSSINGS = 10
"""One-way delays until two nodes are connected: TLS needs six."""


def learning_settings(scenario: Scenario) -> dict[str, Any] | None:
    """Settings of `workloads.learning.real` except `place`, as plain values; None without training.

    Builds the file of the backbone if it does not exist yet.

    Raises:
        InputError: The model or its weights are unavailable.
    """
    workload = scenario.workload
    if workload.compute == "none":
        return None
    from testbed.system.folders import cache_folder
    from workloads.learning.cached import backbone_file

    model = model_of(scenario)
    return {
        "model": asdict(model),
        "training": asdict(_training(scenario)),
        "data": asdict(data_of(scenario)),
        "batch_size": workload.largest("batch_size"),
        "batch_sizes": _if_they_differ(scenario, "batch_size"),
        "clients": scenario.uavs.count,
        "backbone": str(backbone_file(model, cache_folder())),
        "wire_dtype": workload.wire_dtype,
        "wire_parameters": workload.wire_parameters,
        "codecs": {
            direction: named
            for direction in DIRECTIONS
            if (named := workload.codecs.named(direction)) is not None
        },
        "error_feedback": workload.codecs.error_feedback,
        "wire_error": workload.wire_error,
        "clients_per_pass": workload.clients_per_pass,
        "evaluate_samples": workload.evaluate_samples,
        "shared_samples": workload.aggregated_samples,
        "epoch_iterations": [
            workload.of_client("local_iterations", client)
            for client in range(1, scenario.uavs.count + 1)
            if workload.sampling == "epochs"
        ],
        "keeps_last_batch": workload.last_batch == "keep",
    }


def _training(scenario: Scenario) -> TrainingConfig:
    """The configuration of training."""
    workload = scenario.workload
    rule = workload.aggregation, workload.aggregation_parameters
    if cloud_rule(scenario) is not None:
        rule = "fedavg", {}
    return TrainingConfig(
        learning_rate=float(workload.largest("learning_rate")),
        learning_rates=_if_they_differ(scenario, "learning_rate"),
        ranks=_if_they_differ(scenario, "lora_rank"),
        optimiser=workload.optimiser,
        weight_decay=workload.weight_decay,
        momentum=workload.momentum,
        schedule=workload.learning_rate_schedule,
        warmup=workload.learning_rate_warmup,
        step_rounds=workload.learning_rate_step,
        decay=workload.learning_rate_decay,
        last=workload.learning_rate_last,
        rounds=scenario.rounds * scenario.edge_rounds,
        clip_norm=workload.clip_norm,
        accumulate=workload.accumulate,
        server_adapters=workload.server_adapters,
        aggregation=rule[0],
        aggregation_parameters=rule[1],
        local_step=workload.local_step,
        local_step_parameters=workload.local_step_parameters,
        seed=scenario.seed,
        recompute=workload.recompute,
        asynchronous=workload.asynchronous.model_dump(
            include={"mixing", "staleness", "exponent", "hinge"}
        ),
        buffer=workload.asynchronous.buffer,
        server_learning_rate=workload.asynchronous.server_learning_rate,
    )


def cloud_rule(scenario: Scenario) -> Rule | None:
    """The rule with which the cloud aggregates the models of edge servers, which average those of
    their UAVs; None: there is no cloud, or it averages as well."""
    workload = scenario.workload
    if scenario.topology is None or workload.aggregation in ("fedavg", "fedprox"):
        return None
    return rule_of(workload.aggregation, workload.aggregation_parameters)


def _if_they_differ(scenario: Scenario, key: str) -> tuple[Any, ...]:
    """The values of a key by client if clients differ in it; otherwise empty."""
    if not scenario.workload.differs(key):
        return ()
    clients = range(1, scenario.uavs.count + 1)
    return tuple(scenario.workload.of_client(key, client) for client in clients)


def startup_limit_s(scenario: ResolvedScenario) -> float:
    """Timeout in real seconds until nodes are connected, assuming that all share one slow core."""
    ways = impairments_of(scenario, scenario.dilation)
    delay_s = CROSSINGS * max(link.delay_s for way in ways for link in way)
    if scenario.workload.compute == "none":
        return START_S + NODE_S * scenario.uavs.count + delay_s
    return LOAD_S + delay_s


def computing_limit_s(scenario: Scenario) -> float:
    """Timeout of a round's real computing in real seconds, as if all ran on one slow core."""
    workload = scenario.workload
    if workload.compute == "none":
        return 0.0
    profile = profile_of(scenario)
    forward_flops = profile.client_forward_flops[0] + profile.server_forward_flops[0]
    batches = (scenario.updates or scenario.uavs.count) * workload.largest("local_iterations")
    # The backward pass takes about as long as the forward pass, and so does recomputing.
    samples = batches * workload.largest("batch_size")
    return float(samples * 3 * forward_flops / SLOW_FLOPS)


def place(node: BaseStation | Uavs) -> dict[str, Any]:
    """The device and threads of a node, which are added to the settings of each kind of node."""
    return {"device": node.device, "threads": node.threads}


def takes_gpu(node: BaseStation | Uavs) -> bool:
    """Whether a node needs access to the GPUs of this machine."""
    return node.device.startswith("cuda") or (node.device == "auto" and gpus() > 0)


def links_at(
    scenario: Scenario, plan: RoundPlan, radio: RadioAccess, table: "RoundRates"
) -> tuple[tuple[float, ...], ...]:
    """The values of `workloads.aggregation.rules.Link` for every client in the first slot of a
    round; empty if the aggregation rule does not use them."""
    workload = scenario.workload
    if workload.compute == "none" or not workload.algorithm.needs_times:
        return ()
    values = table.gain[:, table.first : table.first + 1]
    unknown = np.full((plan.clients, 1), math.nan)
    gains, snr = (unknown, unknown), np.stack([unknown, unknown])
    if isinstance(radio, Fdma | Cellular):
        gains = both_ways(values)
        snr = radio.snr(plan.allocation, values, in_turns=plan.in_turns)
    with np.errstate(divide="ignore"):
        snr_db = 10 * np.log10(snr)
    rates = table.rates
    columns = (*gains, rates.uplink, rates.gradient, snr_db[0], snr_db[1])
    return tuple(map(tuple, np.stack([column[:, 0] for column in columns], 1).tolist()))


def evaluates(scenario: Scenario) -> bool:
    """Whether the scenario evaluates the global state on held-out data."""
    every = scenario.workload.evaluate_every > 0 or scenario.evaluates_within_rounds
    return every and scenario.workload.compute != "none"


def evaluates_after(scenario: Scenario, rounds: int) -> bool:
    """Whether the global state is evaluated on held-out data after this number of rounds."""
    if not evaluates(scenario):
        return False
    every = scenario.workload.evaluate_every
    return rounds in (0, scenario.rounds) or (every > 0 and rounds % every == 0)


def keeping(scenario: Scenario) -> Keeping:
    """When the global state of an asynchronous run is kept for evaluations before its end."""
    workload, section = scenario.workload, scenario.workload.asynchronous
    if not scenario.updates or not evaluates(scenario):
        return Keeping()
    every = workload.evaluate_every * scenario.updates_per_round, section.evaluate_every_updates
    return Keeping(tuple(n for n in every if n), section.evaluate_every_s or 0.0)


ERRORS = ("smashed_error", "gradient_error")
COLUMNS = ("round", "data", "client", "iteration", "time_s", "loss", "accuracy")


def whole_table(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The tables of all rounds in one; empty if nothing was trained."""
    if not parts:
        return pd.DataFrame(columns=[*COLUMNS, *ERRORS])
    return pd.concat(parts, ignore_index=True)


def learning_table(
    round_: int, bs: BaseStationReport, reports: Mapping[NodeId, RoundReport]
) -> pd.DataFrame:
    """The metrics of a round's batches, one row per batch.

    Returns:
        `COLUMNS`, with `data` = train and `time_s` the end of S; then `smashed_error` and
        `gradient_error`, the relative errors of the codec (NaN where they were not recorded).
    """
    # A lost client may have computed a batch whose step never ended.
    ends_s = {(span[0], span[1]): span[4] for span in bs.spans if span[2] == "S"}
    table = pd.DataFrame(
        [
            (round_, "train", *place, ends_s[place], batch.loss, batch.accuracy)
            for batch in bs.batches
            if (place := (batch.client, batch.iteration)) in ends_s
        ],
        columns=COLUMNS,
    ).sort_values(["client", "iteration"], ignore_index=True)
    errors = {
        "smashed_error": {
            client: reports[uav(client)].notes["wire_errors"] for client in table["client"].unique()
        },
        "gradient_error": {int(k): own for k, own in bs.notes["wire_errors"].items()},
    }
    for column, by_client in errors.items():
        # In the order of iterations; empty where they were not recorded.
        table[column] = [
            by_client[client][iteration - 1] if by_client[client] else math.nan
            for client, iteration in zip(table["client"], table["iteration"], strict=True)
        ]
    return table


def few_samples(
    partition: Sequence[Sequence[Sequence[int]]],
    batch_size: int | Sequence[int],
    sampling: str = "draws",
) -> str:
    """A line about UAVs that have fewer samples than a batch; empty if there are none.

    Args:
        partition: By UAV: pairs of a class and its number of samples.
        batch_size: Samples per batch, or one number per UAV.
        sampling: The key of the workload.
    """
    batches = [batch_size] * len(partition) if isinstance(batch_size, int) else batch_size
    counts = [sum(count for _, count in holdings) for holdings in partition]
    few = [
        client
        for client, (count, batch) in enumerate(zip(counts, batches, strict=False), start=1)
        if count < batch
    ]
    if not few:
        return ""
    more = f" and {len(few) - 1} more UAVs have" if len(few) > 1 else " has"
    count, batch = counts[few[0] - 1], batches[few[0] - 1]
    return (
        f"workload.data: {uav(few[0])}{more} fewer samples than workload.batch_size "
        f"({count}, and batches of {batch}), so their batches "
        + ("repeat samples" if sampling == "draws" else "are smaller")
    )


def privacy(scenario: Scenario, learning: pd.DataFrame) -> str:
    """A line about the accounted privacy of the UAV that took part most often; empty if no local
    step hides data."""
    steps = [step for _, step in _training(scenario).local_steps if isinstance(step, Private)]
    batches = learning[learning["data"] == "train"]
    if not steps or not len(batches):
        return ""
    rounds = int(batches.groupby("client")["round"].nunique().max())
    return spent(steps[0], rounds * scenario.edge_rounds)


def divergence(learning: pd.DataFrame, diverged: Mapping[int, Sequence[int]]) -> str:
    """Rounds in which losses or models stopped being finite, in words; empty if all are finite.

    Args:
        learning: Training and evaluation tables of a run so far.
        diverged: By round, the clients whose model had values that are not finite at its end.
    """
    lost = learning[~np.isfinite(learning["loss"].astype(float))]
    models = [round_ for round_, clients in diverged.items() if clients]
    if not len(lost) and not models:
        return ""
    first = min([*lost["round"], *models])
    batches = lost[(lost["round"] == first) & (lost["data"] == "train")].sort_values("time_s")
    if len(batches):
        batch = batches.iloc[0]
        which = f"{uav(int(batch['client']))}, iteration {batch['iteration']}"
    elif first in models:
        which = f"at its end: {', '.join(str(uav(client)) for client in diverged[first])}"
    else:
        which = "held-out data"
    where = "before the first round" if first < 0 else f"in round {first}"
    return f"losses stopped being finite {where} ({which}): the training has diverged"


def evaluation_table(round_: int, time_s: float, found: Evaluated) -> pd.DataFrame:
    """An evaluation as a row of `learning_table`: `data` is held-out, client and iteration 0.

    Args:
        round_: Index of the round before the evaluation, from 0; -1 before the first.
        time_s: Emulated time at which the round ended.
        found: Loss and accuracy of the evaluation.
    """
    row = (round_, "held-out", 0, 0, time_s, found.loss, found.accuracy, math.nan, math.nan)
    return pd.DataFrame([row], columns=[*COLUMNS, *ERRORS])
