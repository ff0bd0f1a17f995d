# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Facts about scenarios: properties of which some do not go together with others.

`orchestrator.scenario.combinations` has the table of those that do not. A fact names the key that
has to change where it must not hold, and what is needed of this key.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

# The schema applies the table, so that facts read scenarios without importing it.
AnyScenario = Any


@dataclass(frozen=True)
class Found:
    """A key that has to change, and its value; None is not shown."""

    key: str
    value: object = None
    needs: str = ""
    """The need of this key, if it differs from that of the row."""


@dataclass(frozen=True)
class Fact:
    """A property of scenarios that may not go together with another one."""

    text: str
    """It in words, e.g. "emulation.air is 'ns3'"."""
    otherwise: str
    """What is needed of the first key where it must not hold, e.g. "must be 'links'"."""
    keys: tuple[str, ...]
    """The keys on which it depends. The first one has to change where it must not hold."""
    find: Callable[[AnyScenario], Found | None]
    """Finds it in a scenario; None: it does not hold."""
    is_lack: bool = False
    """Whether it is that a key does not have a certain value, which it could be given."""

    def __call__(self, scenario: AnyScenario) -> bool:
        """Whether it holds."""
        return self.find(scenario) is not None


def shown(value: object) -> str:
    """A value as in a scenario file."""
    return str(value).lower() if isinstance(value, bool) else repr(value)


def fact(
    key: str,
    text: str,
    otherwise: str,
    holds: Callable[[AnyScenario], object],
    *keys: str,
    shows: bool = True,
) -> Fact:
    """A fact about a key, which is shown with its value.

    Args:
        key: The key that has to change.
        text: The fact in words.
        otherwise: What is needed of the key.
        holds: Whether the fact holds.
        keys: Further keys on which it depends.
        shows: Whether a message shows the value.
    """
    value_of = attrgetter(key)

    def find(scenario: AnyScenario) -> Found | None:
        if not holds(scenario):
            return None
        value = value_of(scenario)
        return Found(key, value if shows and isinstance(value, bool | int | float | str) else None)

    return Fact(text, otherwise, (key, *keys), find)


def is_not(key: str, *fits: object) -> Fact:
    """The fact that a key has none of these values; None: that it is given."""
    words = " or ".join(_words(fit) for fit in fits)
    value_of = attrgetter(key)
    found = fact(
        key, f"{key} is not {words}", f"must be {words}", lambda s: value_of(s) not in fits
    )
    return replace(found, is_lack=True)


def is_value(key: str, value: object, *fits: object, otherwise: str = "") -> Fact:
    """The fact that a key has a value, where one of `fits` is needed."""
    words = otherwise or f"must be {' or '.join(_words(fit) for fit in fits)}"
    value_of = attrgetter(key)
    return fact(key, f"{key} is {_words(value)}", words, lambda s: value_of(s) == value)


def _words(value: object) -> str:
    """A value in words; None means that the key is absent."""
    if value is None:
        return "absent"
    return f"{value:g}" if isinstance(value, float) else shown(value)


def first(text: str, otherwise: str, *facts: Fact) -> Fact:
    """The first of several facts that holds."""

    def find(scenario: AnyScenario) -> Found | None:
        return next((found for fact in facts if (found := fact.find(scenario))), None)

    return Fact(text, otherwise, tuple(dict.fromkeys(k for f in facts for k in f.keys)), find)


def given(key: str) -> Fact:
    """The fact that a key is given."""
    value_of = attrgetter(key)
    return fact(key, f"{key} is given", "must be absent", lambda s: bool(value_of(s)), shows=False)


def _key_of_step(scenario: AnyScenario, *attributes: str) -> Found | None:
    """The key because of which `Workload.travelling` has one of these; None: it has none."""

    def has(travelling: Any) -> bool:
        return any(getattr(travelling, name) for name in attributes)

    workload = scenario.workload
    if not has(workload.travelling):
        return None
    of_rule = workload.model_copy(update={"local_step": None, "local_step_parameters": {}})
    key = "aggregation" if has(of_rule.travelling) else "local_step"
    return Found(f"workload.{key}", getattr(workload, key))


def differs(name: str) -> Fact:
    """The fact that UAVs have different values of a key of `workload`."""
    key = f"workload.{name}"
    return fact(
        key, f"UAVs differ in {key}", "must be one number", lambda s: s.workload.differs(name)
    )


def _of_protocol(key: str, text: str, otherwise: str, holds: Callable[[Any], object]) -> Fact:
    """A fact about the protocol, which its own key or the paradigm of a plug-in may say."""
    value_of = attrgetter(key)

    def find(scenario: AnyScenario) -> Found | None:
        if not holds(scenario.scheme):
            return None
        value = value_of(scenario)
        return Found(key, value) if value else Found("paradigm", scenario.paradigm)

    return Fact(text, otherwise, (key, "paradigm"), find)


def round_of_fault(scenario: AnyScenario) -> Found | None:
    """The first fault whose time is measured from the start of a round other than 0."""
    rounds = enumerate(event.round for event in scenario.faults.events)
    return next((Found(f"faults.events.{i}.round", r) for i, r in rounds if r), None)


def own_power_of_edge(scenario: AnyScenario) -> Found | None:
    """The first edge server whose transmit power is not that of the base station."""
    edges = () if scenario.topology is None else scenario.topology.edges
    power_w = scenario.base_station.tx_power_w
    for e, edge in enumerate(edges):
        if edge.tx_power_w not in (None, power_w):
            return Found(f"topology.edges.{e}.tx_power_w", edge.tx_power_w)
    return None


def unsupported_key(scenario: AnyScenario) -> Found | None:
    """The first key whose value the transport does not support."""
    allowed = scenario.emulation.transport_kind.allowed
    values = ((key, attrgetter(key)(scenario), fits) for key, fits in allowed.items())
    for key, value, fits in values:
        if value not in fits:
            needs = f"must be {' or '.join(_words(fit) for fit in fits)}"
            transport = scenario.emulation.transport
            return Found(key, value, f"{needs} where emulation.transport is {transport!r}")
    return None


def small_mtu(scenario: AnyScenario) -> Found | None:
    """An MTU that is too small for the transport."""
    kind, mtu = scenario.emulation.transport_kind, scenario.emulation.mtu
    if mtu >= kind.least_mtu:
        return None
    needs = f"must be at least {kind.least_mtu} where emulation.transport is {kind.name!r}"
    return Found("emulation.mtu", mtu, needs)


def writable_files(scenario: AnyScenario) -> Found | None:
    """The first node whose programs may write files outside their home."""
    nodes = scenario.nodes.items()
    return next((Found(f"nodes.{name}.writable") for name, p in nodes if p.writable), None)


def _dividing_key(scenario: AnyScenario) -> Found | None:
    """The key by which the UAVs that send divide the band."""
    key = scenario.radio.dividing_key
    return None if key is None else Found(key, attrgetter(key)(scenario))


def over_ns3(access: str) -> Fact:
    """The fact that packets pass this radio access of ns-3 in the emulation."""
    return fact(
        "emulation.air",
        f"emulation.air is 'ns3' and radio.access is '{access}'",
        "must be 'links'",
        lambda s: NS3(s) and s.radio.kind.ns3 == access,
        "radio.access",
    )


def half_frame_slots(nr: Any) -> set[str]:
    """Directions of the NR slots of a TDD pattern that begin at multiples of 5 ms."""
    count, half_frame = len(nr.tdd_pattern), nr.subcarrier_spacing_khz // 3
    return {nr.tdd_pattern[half_frame * k % count] for k in range(count)}


def unequal(name: str) -> Fact:
    """The fact that shares are given for all clients, and differ."""
    key = f"allocation.{name}"
    value_of = attrgetter(key)
    return fact(
        key,
        f"{key} has unequal shares",
        "must be 'equal'",
        lambda s: value_of(s) != "equal" and max(value_of(s)) - min(value_of(s)) > 1e-9,
    )


def share_given(name: str) -> Fact:
    """The fact that shares are given for a resource."""
    return is_not(f"allocation.{name}", "equal")


# Paradigm and protocol.
ASYNCHRONOUS = fact(
    "paradigm",
    "the paradigm is asynchronous",
    "must not be asynchronous",
    lambda s: s.scheme.asynchronous,
)
IN_TURN = _of_protocol(
    "uploads.sharing",
    "uploads wait for their turn",
    "must be 'parallel'",
    lambda scheme: scheme.uplink == "sequential",
)
GATED = _of_protocol(
    "uploads.adapters_wait_for_all",
    "adapters wait for all clients",
    "must be false",
    lambda scheme: scheme.adapters_wait_for_all,
)
AGGREGATED = _of_protocol(
    "workload.gradient_aggregation",
    "workload.gradient_aggregation is not 0",
    "must be 0",
    lambda scheme: scheme.gradient_aggregation,
)

# Decisions.
DECIDES = fact(
    "allocation.policy",
    "allocation.policy decides",
    "must be 'fixed' or 'equal'",
    lambda s: s.allocation.kind.decides,
)
SPLITS_CLIENTS = fact(
    "allocation.policy",
    "allocation.policy chooses a split point per client",
    "must not be 'per-client-planner'",
    lambda s: s.allocation.kind.splits_clients,
)
MOVES_SPLITS = fact(
    "allocation.policy",
    "allocation.policy may move split points",
    "must be 'fixed', 'equal' or 'static'",
    lambda s: s.allocation.kind.moves_splits,
)
TRAINED = fact(
    "allocation.policy",
    "allocation.policy is 'agent'",
    "must not be 'agent'",
    lambda s: s.allocation.kind.is_trained,
)

# Radio.
DIVIDED = Fact(
    "the UAVs that send divide the band",
    "must give each UAV a share of the band",
    ("radio.access", "radio.lte.scheduler", "radio.nr.scheduler"),
    _dividing_key,
)
SHARED_CELL = Fact(
    "the scheduler of the cell is 'equal'",
    "must be 'shares'",
    ("radio.lte.scheduler", "radio.nr.scheduler", "radio.access"),
    lambda s: _dividing_key(s) if s.radio.kind.cell else None,
)
CONTENDS = fact(
    "radio.access", "radio.access is 'wifi'", "must not be 'wifi'", lambda s: s.radio.kind.divides
)
NS3 = is_value("emulation.air", "ns3", "links")
ON_LINKS = is_value("emulation.air", "links", "ns3")
OVER_NS3_LTE = over_ns3("lte")
OVER_NS3_NR = over_ns3("nr")
CELLS = given("radio.cells")
OWN_BLOCKS = is_value("radio.lte.scheduler", "shares", "equal")
OWN_NR_BLOCKS = is_value("radio.nr.scheduler", "shares", "equal")
SNR_LOSS = fact(
    "links.loss",
    "links.loss is 'snr'",
    "must not be 'snr'",
    lambda s: s.links.needs_snr("up", "down"),
)

# Training.
COMMON_SET = is_not("workload.server_adapters", "per-client")
SHARED_SET = is_value("workload.server_adapters", "shared", "per-client")
STAYS = fact(
    "workload.batch_norm",
    "workload.batch_norm keeps statistics at each client",
    "must be 'averaged' or 'frozen'",
    lambda s: s.workload.statistics_stay,
)
PASSES = fact(
    "workload.clients_per_pass",
    "workload.clients_per_pass is above 1",
    "must be 1",
    lambda s: s.workload.clients_per_pass > 1,
)
OWN_SPLITS = fact(
    "workload.split",
    "UAVs differ in workload.split",
    "must be one number",
    lambda s: s.workload.differing_splits,
)
OWN_BATCHES, OWN_ITERATIONS, OWN_RANKS, OWN_RATES = (
    differs(name) for name in ("batch_size", "local_iterations", "lora_rank", "learning_rate")
)
DRAWS = is_value("workload.sampling", "draws", "epochs")
KEEPS_LAST = is_value("workload.last_batch", "keep", "drop")
EPOCHS = given("workload.local_epochs")
FROZEN_HEAD = fact(
    "workload.train_head",
    "the head is not trained",
    "must be true",
    lambda s: not s.workload.trains_head,
    "workload.adapters",
)
REMEMBERS = Fact(
    "workload.aggregation or workload.local_step keeps state at UAVs",
    "must keep no state at UAVs",
    ("workload.aggregation", "workload.local_step"),
    lambda s: _key_of_step(s, "stays"),
)
HIDES = fact(
    "workload.local_step",
    "workload.local_step hides the data of clients",
    "must not be 'private'",
    lambda s: s.workload.travelling.hides,
)
TRAVELS = Fact(
    "vectors of workload.aggregation or workload.local_step accompany adapters",
    "must send nothing but adapters",
    ("workload.aggregation", "workload.local_step"),
    lambda s: _key_of_step(s, "is_sent"),
)
OWN_CLIENTS = Fact(
    "workload.aggregation or workload.local_step needs each client by itself",
    "must combine models only",
    ("workload.aggregation", "workload.local_step"),
    lambda s: (
        Found("workload.aggregation", s.workload.aggregation)
        if s.workload.algorithm.needs_clients
        else _key_of_step(s, "stays", "is_sent")
    ),
)


def _of_rule(text: str, otherwise: str, attribute: str) -> Fact:
    """A fact about what the aggregation rule needs."""
    return fact(
        "workload.aggregation",
        f"workload.aggregation {text}",
        otherwise,
        lambda s: getattr(s.workload.algorithm, attribute),
        "workload.aggregation_parameters",
    )


NEEDS_TIMES = _of_rule(
    "needs the channel or durations of a round",
    "must be a rule without the channel of a round",
    "needs_times",
)
NEEDS_SGD = _of_rule("counts steps of SGD", "must be another rule", "needs_sgd")
NEEDS_NO_MOMENTUM = _of_rule(
    "counts steps without momentum", "must be another rule", "needs_no_momentum"
)
SVD = is_value("workload.aggregation", "svd", otherwise="must not be 'svd'")

# Network, faults and structure.
VIRTUAL = is_value("emulation.clock", "virtual", "real")
DOCKER = is_not("emulation.runtime", "namespace")
LOSSY = fact(
    "links",
    "links lose frames or vary",
    "must have no loss, no jitter, and one delay",
    lambda s: s.links.lose_or_vary,
    shows=False,
)
DROPS = is_value("faults.on_loss", "drop", "wait", "abort")
TOPOLOGY = given("topology")
IS_GUIDED = is_value("mobility.model", "guided", otherwise="must not be 'guided'")
HAS_MEMORY = fact(
    "radio",
    "the channel depends on earlier positions",
    "must have a built-in channel without fading, chance, fit and further cells",
    lambda s: s.radio.remembers,
    shows=False,
)
FLIES = is_not("propulsion.model", "none")
STEERED = is_value("mobility.model", "steered", otherwise="must not be 'steered'")
DEADLINE = given("participation.deadline_s")
SOME_CLIENTS = fact(
    "participation",
    "participation is given",
    "must be absent",
    lambda s: s.participation != type(s).model_fields["participation"].default,
)
EVENTS, RANDOM = given("faults.events"), given("faults.random")
MAC_ORDER = is_value("radio.lte.downlink_order", "mac", "application")
MEASURED = is_value("workload.compute_time", "measured", "modelled")
PAYLOAD_RATES = is_value("emulation.rate_counts", "payload", "frame")
