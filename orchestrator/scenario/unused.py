# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Keys of a scenario that differ from their default and have no effect, or have a value that is
probably in another unit, said in one line each.

Such a key is no error: a scenario may be meant for several uses, and keys that belong together may
be set one after the other. But its effect would be expected.
"""

import logging
from collections.abc import Iterator, Mapping
from functools import cache
from operator import attrgetter
from typing import Literal

from ns3_scenarios.trace import RateTrace, SlotTrace
from orchestrator.scenario.facts import ASYNCHRONOUS, CONTENDS, TRAINED
from orchestrator.scenario.schema import (
    COUNTED_RULES,
    LASTING,
    POLICY_KINDS,
    Mobility,
    Scenario,
    Workload,
)
from testbed.system import inside

log = logging.getLogger(__name__)

Use = Literal["a prediction", "a run", "a session"]
"""The use of a scenario: `testbed predict` and what computes like it, `run`, or `up`."""

OF_SESSIONS = ("links.relay", "links.at_trace_end", "nodes")
OF_ROUNDS = (
    "order",
    "uploads",
    *(f"participation.{name}" for name in ("clients", "rule", "deadline_s")),
)
UNUSED: Mapping[Use, Mapping[str, tuple[str, ...]]] = {
    "a prediction": {
        "only a session (`testbed up`) has them": OF_SESSIONS,
        "only the emulation has queues": ("links.queue", "links.ecn"),
        "modelled times are predicted": ("workload.compute_time",),
    },
    "a run": {"only a session (`testbed up`) has them": OF_SESSIONS},
    "a session": {"a session has no rounds": OF_ROUNDS},
}
"""By use: the keys that it does not consider, by the reason."""
OF_TEXTS = ("tokenizer", "text_column")
OF_LEARNING = (
    *("evaluate_every", "evaluate_samples", "wire_error"),
    *("learning_rate", "optimiser", "weight_decay", "dtype", "recompute", "weights"),
    *("lora_alpha", "lora_dropout", "clients_per_pass", "server_adapters"),
    *("codecs.error_feedback", "last_batch"),
    *("momentum", "clip_norm", "accumulate"),
    *("learning_rate_schedule", *(f"learning_rate_{name}" for name in ("warmup", "step"))),
    *("learning_rate_decay", "learning_rate_last"),
)
OF_RULES = ("aggregation", "aggregation_parameters", "local_step", "local_step_parameters")
OF_ADAPTERS = ("lora_rank", "lora_alpha", "lora_targets", "lora_dropout")
OF_SCHEDULES = {"step": ("step",), "decay": ("step",), "last": ("cosine", "linear")}
OF_DATA = (
    *("source", "samples", "partition", "partition_parameters", "concentration", "noise"),
    *("partition_column", "shards"),
    *OF_TEXTS,
)
OF_CHANNEL = (
    *(f"mobility.{name}" for name in Mobility.model_fields),
    *(f"radio.{name}" for name in ("carrier_hz", "channel", "parameters", "fitted")),
    *("radio.line_of_sight", "radio.shadow_fading", "uavs.height_m", "uavs.rings_m", "uavs.ring"),
)
OF_RADIO = (
    *("radio.uplink_bandwidth_hz", "radio.downlink_bandwidth_hz", "radio.noise_dbm_per_mhz"),
    "base_station.tx_power_w",
)
OF_STALENESS = ("updates", "mixing", "staleness", "exponent", "hinge")
OF_BUFFER = ("server_learning_rate", "start")
OF_EVALUATION = ("evaluate_every_updates", "evaluate_every_s")
OF_OBSERVATION = ("delay_slots", "noise_db", "position_noise_m")

USUAL = {
    "uavs.tx_power_w": (1e-4, 10, "W; 30 dBm are 1 W"),
    "base_station.tx_power_w": (1e-3, 1000, "W; 46 dBm are 40 W"),
    "radio.uplink_bandwidth_hz": (1e5, 1e10, "Hz"),
    "radio.downlink_bandwidth_hz": (1e5, 1e10, "Hz"),
    "links.one_way_delay_s": (0, 1, "s"),
    "uavs.compute_flops": (1e6, 1e16, "FLOP/s"),
    "base_station.compute_flops": (1e7, 1e19, "FLOP/s"),
}
"""By key: the least and the largest value of known devices, and the unit. Other values are allowed,
and often in another unit."""


def unusual(scenario: Scenario) -> list[str]:
    """A line for each key whose value no known device has."""
    lines = []
    for key, (least, most, unit) in USUAL.items():
        given = attrgetter(key)(scenario)
        for value in given if isinstance(given, list) else [given]:
            if isinstance(value, int | float) and not least <= value <= most:
                lines.append(f"{key}: {value:g} is unusual; the unit is {unit}")
                break
    return lines


def say_unused(scenario: Scenario, use: Use | None = None) -> None:
    """Log a line for each reason why keys have no effect; equal lines are logged once.

    Args:
        scenario: The scenario.
        use: What it is used for; None: what holds for any use.
    """
    if inside.guest_settings() is None:  # the host of a guest has logged it
        for line in unusual(scenario) if use is None else ():
            _log_once(line)
        for reason, keys in unused(scenario, use).items():
            _log_once(f"{', '.join(keys)}: no effect; {reason}")
        if CONTENDS(scenario):
            say_access_point_power(scenario)
        workload = scenario.workload
        if use is None and (varying := workload.varying_sizes):
            _log_once(
                f"workload.codecs: sizes of {', '.join(varying)} depend on the data; predictions "
                "use their bounds"
            )
        if workload.compute == "real" and workload.learning_rate_warmup >= scenario.rounds:
            _log_once(
                f"workload.learning_rate_warmup: lasts {workload.learning_rate_warmup} rounds and "
                f"the run {scenario.rounds}, so that workload.learning_rate is never reached"
            )


def say_access_point_power(scenario: Scenario) -> None:
    """Log the power of a Wi-Fi access point where it is by default less than the base station's."""
    power_w, station_w = scenario.access_point_power_w, scenario.base_station.tx_power_w
    is_said = inside.guest_settings() is not None  # by the host
    if not is_said and scenario.radio.wifi.access_point_power_w is None and power_w < station_w:
        _log_once(
            f"the access point sends with {power_w:g} W; base_station.tx_power_w, {station_w:g} W, "
            "is more than Wi-Fi may send with"
        )


@cache
def _log_once(line: str) -> None:
    log.warning(line)


def unused(scenario: Scenario, use: Use | None = None) -> dict[str, list[str]]:
    """The keys that differ from their default and have no effect, by the reason.

    Args:
        scenario: The scenario.
        use: What it is used for; None: what holds for any use.
    """
    if use is None:
        found = _in_combination(scenario)
    else:
        found = ((key, reason) for reason, keys in UNUSED[use].items() for key in keys)
    reasons: dict[str, list[str]] = {}
    if use is None and (replaced := scenario.emulation.replaced):
        reason = "emulation.clock is 'virtual', so the dilation is 1 and no other program runs"
        reasons[reason] = [f"emulation.{key}" for key in replaced]
    for key, reason in found:
        if _differs(scenario, key) and not any(key in keys for keys in reasons.values()):
            reasons.setdefault(reason, []).append(key)
    return reasons


def replaced_by(scenario: Scenario, trace: SlotTrace) -> list[str]:
    """The keys of the channel that differ from their default and that a given trace replaces.

    A planner uses those of flight and path loss to forecast gains if the trace has positions.
    """
    is_given = isinstance(trace, RateTrace)
    forecasts = scenario.allocation.kind.forecasts and not is_given
    keys = () if forecasts and trace.position_m is not None else OF_CHANNEL
    more = OF_RADIO if is_given else ()
    return [key for key in (*keys, "slot_s", *more) if _differs(scenario, key)]


def _differs(scenario: Scenario, key: str) -> bool:
    """Whether a key differs from its default; items of lists are listed if they do."""
    if "[" in key:
        return True
    *parents, name = key.split(".")
    section = attrgetter(".".join(parents))(scenario) if parents else scenario
    default = type(section).model_fields[name].get_default(call_default_factory=True)
    return bool(getattr(section, name) != default)


def _in_combination(scenario: Scenario) -> Iterator[tuple[str, str]]:
    """Keys that have no effect together with others, with the reason; some have their default."""
    workload, allocation, scheme = scenario.workload, scenario.allocation, scenario.scheme
    policy, rule = allocation.policy, scenario.participation.rule
    if not ASYNCHRONOUS(scenario):
        for name in (*OF_STALENESS, "buffer", *OF_BUFFER, *OF_EVALUATION):
            reason = f"the paradigm {scenario.paradigm!r} is not asynchronous"
            yield f"workload.asynchronous.{name}", reason
    elif (staleness := workload.asynchronous.staleness) != "hinge":
        yield "workload.asynchronous.hinge", f"workload.asynchronous.staleness is {staleness!r}"
        if staleness == "constant":
            yield "workload.asynchronous.exponent", "workload.asynchronous.staleness is 'constant'"
    if scheme.asynchronous:
        buffer = workload.asynchronous.buffer
        for name in OF_BUFFER if buffer == 1 else ("mixing",):
            yield f"workload.asynchronous.{name}", f"workload.asynchronous.buffer is {buffer}"
    radio = scenario.radio
    if scheme.asynchronous or scheme.gradient_transmission == "parallel":
        reason = f"{scenario.paradigm!r} has no sequential gradients; only a session's programs"
        yield "radio.lte.downlink_order", f"{reason} may mark their packets then"
    if radio.access != "lte":
        reason = f"radio.access is {radio.access!r}; only `trace --radio ns3-lte` takes them then"
        yield "radio.lte", reason
    elif scenario.emulation.air != "ns3":
        reason = "emulation.air is 'links'; only `trace --radio ns3-lte` takes it then"
        for name in ("scheduling_request_s", "background.users"):
            yield f"radio.lte.{name}", reason
    if radio.access != "nr":
        yield "radio.nr", f"radio.access is {radio.access!r}"
    elif radio.nr.duplex == "fdd":
        yield "radio.nr.tdd_pattern", "radio.nr.duplex is 'fdd'"
    if not CONTENDS(scenario):
        reason = f"radio.access is {radio.access!r}; only `trace --radio ns3-wifi` takes them then"
        yield "radio.wifi", reason
    else:
        for name in ("uplink_bandwidth_hz", "downlink_bandwidth_hz"):
            yield f"radio.{name}", "radio.access is 'wifi', whose channel has radio.wifi.width_mhz"
        if radio.wifi.access_point_power_w is not None:
            yield "base_station.tx_power_w", "radio.wifi.access_point_power_w is given"
    of_handover = ("a3_hysteresis_db", "a3_time_to_trigger_s")
    for name in ("handover", *of_handover) if not radio.cells else ():
        yield f"radio.{name}", "radio.cells is empty"
    for name in of_handover if radio.handover == "none" else ():
        yield f"radio.{name}", "radio.handover is 'none'"
    for name in ("fading_block", "doppler_hz", "rician_k_db"):
        if radio.fading == "none" or (name == "rician_k_db" and radio.fading != "rician"):
            yield f"radio.{name}", f"radio.fading is {radio.fading!r}"
    parallel = scheme.server_compute, scheme.gradient_transmission
    if parallel[0] == "sequential":
        yield "allocation.alpha", f"{scenario.paradigm!r} computes sequentially"
    if parallel[1] == "sequential":
        yield "allocation.rho", f"{scenario.paradigm!r} transmits gradients sequentially"
    if parallel == ("parallel", "parallel"):
        yield "order", f"{scenario.paradigm!r} has no queue"
    if scheme.uplink == "parallel":
        yield "uploads.order", f"uploads of {scenario.paradigm!r} are parallel"
    elif parallel[1] == "sequential":
        yield "allocation.beta", "uploads and gradients use the whole band one after the other"
    chooses = scenario.participation.clients is not None or rule not in COUNTED_RULES
    if not chooses:
        yield "participation.rule", "participation.clients is absent, so all UAVs take part"
    observes = chooses and not scenario.participation.is_blind
    for name in OF_OBSERVATION:
        if not allocation.kind.observes and not observes:
            reason = f"allocation.policy {policy!r} does not observe the channel"
            yield f"allocation.observation.{name}", reason
    if TRAINED(scenario) and not observes:
        yield "allocation.observation.noise_db", "an agent observes positions, not gains"
    if not TRAINED(scenario):
        yield "allocation.agent", f"allocation.policy is {policy!r}"
    if allocation.kind.decides and policy in POLICY_KINDS and not TRAINED(scenario):
        yield "workload.split", f"allocation.policy {policy!r} decides split points"
    if workload.compute == "none":
        of_evaluation = (f"asynchronous.{name}" for name in OF_EVALUATION)
        of_rules = () if workload.travelling.is_sent else OF_RULES
        of_data = (f"data.{name}" for name in OF_DATA if workload.local_epochs is None)
        for name in (*OF_LEARNING, *of_rules, *of_data, *of_evaluation):
            yield f"workload.{name}", "workload.compute is 'none'"
    elif workload.evaluate_every == 0 and not scenario.evaluates_within_rounds:
        yield "workload.evaluate_samples", "workload.evaluate_every is 0"
    codecs = workload.codecs
    if codecs.smashed is not None and codecs.gradient is not None:
        for name in ("wire_dtype", "wire_parameters"):
            yield f"workload.{name}", "workload.codecs has those of smashed data and of gradients"
    if codecs.named("adapters_up") is None:
        yield "workload.codecs.error_feedback", "workload.codecs.adapters_up encodes nothing"
    if workload.sampling == "draws":
        yield "workload.last_batch", "workload.sampling is 'draws'"
    elif workload.compute == "none" and workload.local_epochs is None:
        yield "workload.sampling", "workload.compute is 'none'"
    yield from _of_training(workload, scenario.rounds)
    data = workload.data
    if data.source == "synthetic":
        for name in ("image_column", "label_column", *OF_TEXTS):
            yield f"workload.data.{name}", "workload.data.source is 'synthetic'"
    else:
        yield "workload.data.samples", "workload.data.source is not 'synthetic'"
    if data.partition not in ("dirichlet", "quantity"):
        yield "workload.data.concentration", f"workload.data.partition is {data.partition!r}"
    if data.partition != "column":
        yield "workload.data.partition_column", f"workload.data.partition is {data.partition!r}"
    if data.partition != "shards":
        yield "workload.data.shards", f"workload.data.partition is {data.partition!r}"
    if data.partition != "feature":
        yield "workload.data.noise", f"workload.data.partition is {data.partition!r}"
    if scenario.emulation.dilation != "auto":
        yield "emulation.overrun_bound", "emulation.dilation is a number"
    if scenario.emulation.runtime != "docker":
        yield "emulation.docker_image", "emulation.runtime is 'namespace'"
    yield from _of_faults(scenario)


def _of_training(workload: Workload, rounds: int) -> Iterator[tuple[str, str]]:
    if workload.adapters in ("full", "none"):
        for name in OF_ADAPTERS:
            yield f"workload.{name}", f"workload.adapters is {workload.adapters!r}"
    if workload.optimiser != "sgd":
        yield "workload.momentum", f"workload.optimiser is {workload.optimiser!r}"
    schedule = workload.learning_rate_schedule
    for name, schedules in OF_SCHEDULES.items():
        if schedule not in schedules:
            reason = f"workload.learning_rate_schedule is {schedule!r}"
            yield f"workload.learning_rate_{name}", reason
    if schedule == "step" and workload.learning_rate_step + workload.learning_rate_warmup >= rounds:
        reason = "the first change of workload.learning_rate_step is after the last round"
        yield "workload.learning_rate_schedule", reason


def _of_faults(scenario: Scenario) -> Iterator[tuple[str, str]]:
    for index, event in enumerate(scenario.faults.events):
        where = f"faults.events[{index}]"
        if event.kind != "slow-node" and event.factor != type(event).model_fields["factor"].default:
            yield f"{where}.factor", f"{where}.kind is {event.kind!r}"
        if event.round is not None and event.round >= scenario.rounds:
            yield f"{where}.round", f"the last round is {scenario.rounds - 1}"
    random = scenario.faults.random
    if random is None:
        return
    if "slow-node" not in random.kinds:
        yield "faults.random.factor", "faults.random.kinds has no slow-node"
    if not set(random.kinds) & set(LASTING):
        yield "faults.random.duration_s", "no kind in faults.random.kinds has a duration"
    if random.count is not None:
        yield "faults.random.rate_per_s", "faults.random.count is given"
