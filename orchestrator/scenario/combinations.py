# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Values of keys that do not go together: one row per rule, in one table.

A row pairs two facts about a scenario: one that must not hold, and one where it must not. The rows
without a command are applied when a scenario is loaded; those of a command when the command loads
its scenario; those of a channel as soon as a trace is known. Facts are properties, such as "the
UAVs that send divide the band", so that rules also apply to plug-ins.

Bounds of a key, and lists with one value per UAV, are no combinations; they are in the schema.

``python -m orchestrator.scenario.combinations > docs/combinations.md``
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from ns3_scenarios.packets import CONGESTION_CONTROLS
from ns3_scenarios.radio import MOST_WIFI_MTU
from orchestrator.scenario.facts import (
    AGGREGATED,
    ASYNCHRONOUS,
    CELLS,
    COMMON_SET,
    CONTENDS,
    DEADLINE,
    DECIDES,
    DIVIDED,
    DOCKER,
    DRAWS,
    DROPS,
    EPOCHS,
    EVENTS,
    FLIES,
    FROZEN_HEAD,
    GATED,
    HAS_MEMORY,
    HIDES,
    IN_TURN,
    IS_GUIDED,
    KEEPS_LAST,
    LOSSY,
    MAC_ORDER,
    MEASURED,
    MOVES_SPLITS,
    NEEDS_NO_MOMENTUM,
    NEEDS_SGD,
    NEEDS_TIMES,
    NS3,
    ON_LINKS,
    OVER_NS3_LTE,
    OVER_NS3_NR,
    OWN_BATCHES,
    OWN_BLOCKS,
    OWN_CLIENTS,
    OWN_ITERATIONS,
    OWN_NR_BLOCKS,
    OWN_RANKS,
    OWN_RATES,
    OWN_SPLITS,
    PASSES,
    PAYLOAD_RATES,
    RANDOM,
    REMEMBERS,
    SHARED_CELL,
    SHARED_SET,
    SNR_LOSS,
    SOME_CLIENTS,
    SPLITS_CLIENTS,
    STAYS,
    STEERED,
    SVD,
    TOPOLOGY,
    TRAINED,
    TRAVELS,
    VIRTUAL,
    AnyScenario,
    Fact,
    Found,
    fact,
    first,
    given,
    half_frame_slots,
    is_not,
    is_value,
    over_ns3,
    own_power_of_edge,
    round_of_fault,
    share_given,
    shown,
    small_mtu,
    unequal,
    unsupported_key,
    writable_files,
)
from testbed.core.errors import InputError
from workloads.models.language import is_language

Kind = Literal["contradiction", "not modelled"]
Channel = Literal["", "gains", "rates", "cell rates"]
"""What a trace has: gains, rates of each link, or rates of which those of the downlink are the
cell's; empty: any of them."""
RATES: tuple[Channel, ...] = ("rates", "cell rates")
COMMANDS = {
    "": "",
    "run": "in an emulation",
    "up": "in a session",
    "--downlink": "in a session",
    "--scheduler": "on several machines",
    "run --scheduler": "on several machines",
    "up --scheduler": "on several machines",
    "cross-check": "for ns-3's packets (`testbed cross-check`)",
    "--delay-ms": "with another delay of ns-3's packets",
    "ns3-lte": "for ns-3's LTE",
    "ns3-nr": "for 5G-LENA's NR",
    "theory": "for closed forms (`testbed theory`)",
    "constant": "for closed forms",
    "validate": "for `testbed validate`",
    "learn": "for learning without times (`testbed learn`)",
    "times": "where steps have times (not for `testbed learn`)",
    "train": "for the training of an agent",
    "bound_rounds": "for the lower bound of a campaign",
}
"""By command of a row: the words for it. A scenario that is emulated over ns-3's LTE or NR applies
`ns3-lte` or `ns3-nr` by itself."""


@dataclass(frozen=True)
class Combination:
    """A rule: a fact that must not hold where another one does."""

    name: str
    without: Fact
    where: Fact | None
    """None: everywhere, for the row of a command or a channel."""
    because: str
    """The reason, the end of a sentence."""
    kind: Kind
    command: str = ""
    """The command of the row; empty: the row is applied when a scenario is loaded."""
    channels: tuple[Channel, ...] = ()
    """The channels of the row; none: all of them."""

    @property
    def keys(self) -> list[str]:
        """The keys that do not go together; the first one has to change."""
        return list(dict.fromkeys([*self.without.keys, *(self.where.keys if self.where else ())]))

    @property
    def needs(self) -> str:
        """What is needed of the first key, and where."""
        found = [self.without.otherwise]
        if self.where is not None:
            found.append(f"where {self.where.text}")
        if self.channels:
            found.append(f"where the trace has {'rates' if 'rates' in self.channels else 'gains'}")
        return " ".join([*found, COMMANDS[self.command]]).strip()

    def broken(self, scenario: AnyScenario) -> str | None:
        """A line that names the key, what is needed, the reason and the value; None: the rule
        holds."""
        if self.where is not None and not self.where(scenario):
            return None
        if (found := self.without.find(scenario)) is None:
            return None
        value = "" if found.value is None else f"; not {shown(found.value)}"
        needs = found.needs or self.needs
        return f"{found.key}: {needs}, because {self.because}{value}"

    def to_json(self) -> dict[str, Any]:
        """The row as an object of `testbed combinations --json`."""
        return {
            "name": self.name,
            "keys": self.keys,
            "needs": self.needs,
            "because": self.because,
            "class": self.kind,
        }


def refusals(scenario: AnyScenario, *commands: str, channel: Channel = "") -> Iterator[str]:
    """The lines of all broken rules. Those that the value of a further key would allow come last,
    because another rule may refuse the scenario with this value, too.

    Args:
        scenario: The scenario.
        commands: The commands whose rules are applied; none: the rules of all commands.
        channel: The kind of the trace whose rules are applied; empty: those of any trace.
    """
    applied = set(commands) or {""}
    if not commands:
        over = {"ns3-lte": OVER_NS3_LTE, "ns3-nr": OVER_NS3_NR}
        applied.update(name for name, is_over in over.items() if is_over(scenario))
    for row in sorted(COMBINATIONS, key=lambda row: row.where is not None and row.where.is_lack):
        of_channel = channel in row.channels if channel else not row.channels
        if row.command in applied and of_channel and (line := row.broken(scenario)):
            yield line


def check(scenario: AnyScenario, *commands: str, channel: Channel = "") -> None:
    """Refuse a scenario that breaks a rule; arguments as for `refusals`.

    Raises:
        InputError: A rule is broken; the line names the key, what is needed, and why.
    """
    for line in refusals(scenario, *commands, channel=channel):
        raise InputError(line)


# --- rules ---------------------------------------------------------------------------------------

CONTRADICTION: Kind = "contradiction"
MISSING: Kind = "not modelled"


def _rows(
    kind: Kind,
    command: str,
    rows: Mapping[str, tuple[Fact, Fact | None, str]],
    channels: tuple[Channel, ...] = (),
) -> Iterator[Combination]:
    """Rows of one class, command and channel, by name: what must not hold, where, and why."""
    for name, (without, where, because) in rows.items():
        yield Combination(name, without, where, because, kind, command, channels)


_NO_START = "rounds of an asynchronous paradigm have no common start"
_MERGED = "updates are merged one by one as they arrive"
_NS3_CARRIES = "ns-3's radio itself delays, loses and queues packets"
_TRAINED_ON_ALL = "an agent is trained on rounds of all UAVs with one split point"
_ONE_PASS = "one pass computes with one set of parameters and batches of one size"
_ONE_SET = "a common set of server-side adapters needs clients with equal parts of the model"
_EQUAL_BATCHES = "gradients are averaged sample by sample over all clients"
_STATE = "no other party has the state of a client"
_KEEPS = "no other party has the statistics of a client"
_EQUAL_COSTS = "the costs of a split point are those of equal clients"
_LIKE_TRANSPORT = "the transport does not support other values"
_NO_MEDIUM_AND_TCP = "TCP's reaction to losses is modelled for links with rates of their own"
_NO_GAINS = "a trace of rates has no gains"
_FORMS_PLAIN = "the paper's equations are those of its own protocol"
_BOUND = "the lower bound is that of the paper's synchronous protocol"
_ONE_STATION = "only one base station is considered"
_AGENT_PLAIN = "an agent decides for the paper's synchronous rounds of all UAVs"
_MADE_AGAIN = "links need slots ahead of time, which a new decision replaces"
_FLIGHT_OF_ROUNDS = "the energy of flight is that of the rounds of one base station"
_NS3_LACKS = "ns-3's model of LTE lacks this"

COMBINATIONS: tuple[Combination, ...] = (
    *_rows(
        CONTRADICTION,
        "",
        {
            "weight-of-a-flight-without-model": (
                fact(
                    "objective.flight_energy_weight",
                    "objective.flight_energy_weight is above 0",
                    "must be 0",
                    lambda s: s.objective.flight_energy_weight > 0,
                ),
                is_value("propulsion.model", "none", otherwise="must not be 'none'"),
                "there is no energy of flight",
            ),
            "shares-of-another-policy": (
                first(
                    "shares are given",
                    "must be 'equal'",
                    *map(share_given, ("alpha", "beta", "rho")),
                ),
                fact(
                    "allocation.policy",
                    "allocation.policy is not 'fixed'",
                    "must be 'fixed'",
                    lambda s: not s.allocation.kind.takes_shares,
                ),
                "other policies have their own shares",
            ),
            "agent-without-folder": (
                fact(
                    "allocation.agent",
                    "allocation.agent is absent",
                    "must be given",
                    lambda s: s.allocation.agent is None,
                ),
                TRAINED,
                "the policy is the agent in that folder",
            ),
            "split-per-client-with-common-adapters": (
                SPLITS_CLIENTS,
                COMMON_SET,
                _ONE_SET,
            ),
            "unequal-bands-on-a-shared-band": (
                unequal("beta"),
                DIVIDED,
                "the UAVs that send divide the band equally",
            ),
            "unequal-power-without-effect": (
                unequal("rho"),
                fact(
                    "radio.access",
                    "radio.access is 'lte', 'nr' or 'wifi'",
                    "must divide the transmit power",
                    lambda s: not s.radio.kind.has_rho,
                ),
                "the base station sends to all UAVs with the same power",
            ),
            "new-head-not-trained": (
                is_value("workload.head", "new", otherwise="must not be 'new'"),
                FROZEN_HEAD,
                "a frozen head is that of the weights",
            ),
            "nothing-trained": (
                is_value("workload.adapters", "none", otherwise="must not be 'none'"),
                FROZEN_HEAD,
                "nothing would be trained",
            ),
            "head-of-no-file": (
                is_value("workload.head", "file", otherwise="must not be 'file'"),
                fact(
                    "workload.weights",
                    "workload.weights is absent",
                    "must be given",
                    # A language model may have weights in its folder.
                    lambda s: s.workload.weights is None and not is_language(s.workload.model),
                    shows=False,
                ),
                "it is the head of these weights",
            ),
            "svd-without-adapters": (
                SVD,
                fact(
                    "workload.adapters",
                    "workload.adapters is 'full' or 'none'",
                    "must be 'lora' or 'dora'",
                    lambda s: s.workload.adapters in ("full", "none"),
                ),
                "this rule needs adapters of low rank",
            ),
            "common-adapters-with-own-splits": (OWN_SPLITS, COMMON_SET, _ONE_SET),
            "common-adapters-with-own-ranks": (OWN_RANKS, COMMON_SET, _ONE_SET),
            "shared-adapters-with-own-learning-rates": (
                OWN_RATES,
                SHARED_SET,
                "a shared set has one optimiser",
            ),
            "passes-with-shared-adapters": (
                PASSES,
                SHARED_SET,
                "the batches train the shared set in turn",
            ),
            "own-ranks-of-a-given-profile": (
                OWN_RANKS,
                fact(
                    "workload.profile",
                    "workload.profile gives the costs",
                    "must not give the costs",
                    lambda s: not isinstance(s.workload.profile, str),
                ),
                "the given costs are those of one rank",
            ),
            "averaged-adapters-without-gate": (
                is_value(
                    "workload.server_adapters", "averaged", otherwise="must not be 'averaged'"
                ),
                fact(
                    "paradigm",
                    "clients do not wait for all in each iteration",
                    "must make clients wait for all in each iteration",
                    lambda s: (
                        not (s.scheme.compute_waits_for_all or s.scheme.transmission_waits_for_all)
                    ),
                ),
                "the average of an iteration needs all clients, as in 'sfl-sp' and 'sfl-ps'",
            ),
            "own-statistics-with-shared-adapters": (STAYS, SHARED_SET, _KEEPS),
            "own-statistics-with-moving-splits": (
                STAYS,
                MOVES_SPLITS,
                "statistics would move to the other side of the split point",
            ),
            "own-statistics-of-lost-clients": (STAYS, DROPS, _KEEPS),
            "steps-of-another-optimiser": (
                is_not("workload.optimiser", "sgd"),
                NEEDS_SGD,
                "the rule divides the change of a model by the number of steps of SGD",
            ),
            "steps-with-momentum": (
                is_not("workload.momentum", 0.0),
                NEEDS_NO_MOMENTUM,
                "the rule takes the change of a model for the sum of its gradients",
            ),
            "own-state-with-common-adapters": (
                OWN_CLIENTS,
                COMMON_SET,
                "a common set of server-side adapters is not that of one client",
            ),
            "privacy-with-common-adapters": (
                HIDES,
                COMMON_SET,
                "a common set of server-side adapters has no change of one client",
            ),
            "privacy-with-vectors": (
                HIDES,
                TRAVELS,
                "these vectors would be sent without noise",
            ),
            "own-state-with-moving-splits": (
                REMEMBERS,
                MOVES_SPLITS,
                "state would move to the other side of the split point",
            ),
            "own-state-of-lost-clients": (REMEMBERS, DROPS, _STATE),
            "asynchronous-rounds-of-faults": (
                Fact(
                    "a fault has a round",
                    "must be absent or 0",
                    ("faults.events",),
                    round_of_fault,
                ),
                ASYNCHRONOUS,
                _NO_START,
            ),
            "asynchronous-with-decisions": (DECIDES, ASYNCHRONOUS, _NO_START),
            "asynchronous-with-schedule": (
                is_not("workload.learning_rate_schedule", "constant"),
                ASYNCHRONOUS,
                "the learning rate follows a count of rounds, which clients do not have in common",
            ),
            "asynchronous-with-warmup": (
                is_not("workload.learning_rate_warmup", 0),
                ASYNCHRONOUS,
                "the learning rate follows a count of rounds, which clients do not have in common",
            ),
            "asynchronous-with-deadline": (DEADLINE, ASYNCHRONOUS, _NO_START),
            "asynchronous-with-an-adapter-gate": (
                GATED,
                ASYNCHRONOUS,
                "clients that wait for all are synchronous",
            ),
            "scheduled-rule-without-turns": (
                fact(
                    "participation.rule",
                    "participation.rule is 'fedcs'",
                    "must not be 'fedcs'",
                    lambda s: s.participation.schedules_uploads,
                ),
                fact(
                    "uploads.sharing",
                    "uploads.sharing is not 'sequential'",
                    "must be 'sequential'",
                    lambda s: s.scheme.uplink == "parallel",
                    "paradigm",
                ),
                "this rule plans one upload after the other",
            ),
            "scheduled-order-without-turns": (
                fact(
                    "uploads.order",
                    "uploads.order is 'scheduled'",
                    "must not be 'scheduled'",
                    lambda s: s.scheme.uplink_order == "scheduled",
                    "paradigm",
                ),
                fact(
                    "uploads.sharing",
                    "uploads.sharing is not 'sequential'",
                    "must be 'sequential'",
                    lambda s: s.scheme.uplink == "parallel",
                ),
                "parallel uploads have no order",
            ),
            "aggregated-gradients-without-gate": (
                AGGREGATED,
                fact(
                    "paradigm",
                    "gradients do not wait for all",
                    "must let gradients wait for all",
                    lambda s: not s.scheme.transmission_waits_for_all,
                ),
                "the mean needs the gradients of all clients, as in 'sfl-sp' and 'sfl-ps'",
            ),
            "aggregated-gradients-with-own-splits": (OWN_SPLITS, AGGREGATED, _EQUAL_BATCHES),
            "aggregated-gradients-with-split-per-client": (
                SPLITS_CLIENTS,
                AGGREGATED,
                _EQUAL_BATCHES,
            ),
            "aggregated-gradients-with-own-batches": (OWN_BATCHES, AGGREGATED, _EQUAL_BATCHES),
            "epochs-of-draws": (DRAWS, EPOCHS, "fresh draws have no epochs"),
            "smaller-batches-of-aggregated-gradients": (KEEPS_LAST, AGGREGATED, _EQUAL_BATCHES),
            "aggregated-gradients-with-own-iterations": (
                OWN_ITERATIONS,
                AGGREGATED,
                _EQUAL_BATCHES,
            ),
            "aggregated-gradients-without-split": (
                fact(
                    "workload.profile.smashed_bytes",
                    "clients train the whole model",
                    "must not be 0",
                    lambda s: (
                        not isinstance(s.workload.profile, str)
                        and not all(
                            s.workload.profile.smashed_bytes
                            if s.allocation.kind.moves_splits
                            else [s.workload.profile.smashed_bytes[s.workload.deepest_split - 1]]
                        )
                    ),
                    "workload.profile",
                ),
                AGGREGATED,
                "without smashed data there are no gradients to send",
            ),
            "jitter-without-delay": (
                is_not("links.jitter_s", 0.0),
                is_value("links.one_way_delay_s", 0.0),
                "jitter varies around a delay",
            ),
            "reordering-without-jitter": (
                is_not("links.reordering", False),
                is_value("links.jitter_s", 0.0),
                "frames overtake others only if their delays differ",
            ),
            "tdd-with-two-bandwidths": (
                fact(
                    "radio.downlink_bandwidth_hz",
                    "the bandwidths differ",
                    "must be that of the uplink",
                    lambda s: s.radio.downlink_bandwidth_hz != s.radio.uplink_bandwidth_hz,
                    "radio.uplink_bandwidth_hz",
                ),
                fact(
                    "radio.nr.duplex",
                    "radio.nr.duplex is 'tdd'",
                    "must be 'fdd'",
                    lambda s: s.radio.kind.cell == "nr" and s.radio.nr.duplex == "tdd",
                    "radio.access",
                ),
                "both directions share one carrier",
            ),
            "mac-order-without-lte": (
                MAC_ORDER,
                is_not("radio.access", "lte"),
                "it is the scheduler of an LTE cell that orders packets",
            ),
            "mac-order-without-marks": (
                MAC_ORDER,
                fact(
                    "emulation.transport",
                    "packets of emulation.transport cannot be marked per client",
                    "must mark packets",
                    lambda s: not s.emulation.transport_kind.marks_packets,
                ),
                "the scheduler reads the priority from the packets",
            ),
            "keys-of-the-transport": (
                Fact(
                    "emulation.transport does not support a key",
                    "must be supported",
                    (
                        *("emulation.connection", "emulation.nagle", "emulation.initial_window"),
                        *("emulation.rate_counts", "emulation.congestion_control", "links.ecn"),
                        "emulation.transport",
                    ),
                    unsupported_key,
                ),
                None,
                _LIKE_TRANSPORT,
            ),
            "mtu-of-the-transport": (
                Fact(
                    "emulation.mtu is too small for emulation.transport",
                    "must be large enough for the datagrams of emulation.transport",
                    ("emulation.mtu", "emulation.transport"),
                    small_mtu,
                ),
                None,
                "its datagrams are not fragmented",
            ),
            "slow-nodes-of-measured-time": (
                MEASURED,
                fact(
                    "faults",
                    "a fault is a slow-node",
                    "must not slow nodes",
                    lambda s: "slow-node" in s.faults.kinds,
                    shows=False,
                ),
                "real computing cannot be slowed",
            ),
            "measured-time-in-virtual-time": (MEASURED, VIRTUAL, "computing takes no time there"),
            "passes-in-virtual-time": (
                PASSES,
                VIRTUAL,
                "the duration of a pass cannot be measured there",
            ),
            "docker-in-virtual-time": (
                DOCKER,
                VIRTUAL,
                "the guest of virtual time has no Docker daemon",
            ),
            "date-of-the-real-clock": (
                fact(
                    "emulation.virtual_date",
                    "emulation.virtual_date is given",
                    "must be absent",
                    lambda s: (
                        s.emulation.virtual_date
                        != type(s.emulation).model_fields["virtual_date"].default
                    ),
                ),
                is_value("emulation.clock", "real", "virtual"),
                "the real clock has today's date",
            ),
            "memory-of-the-real-clock": (
                is_not("emulation.memory_bytes", 1 << 32),
                is_value("emulation.clock", "real", "virtual"),
                "only a guest has a memory of its own",
            ),
            "ns3-with-payload-rates": (PAYLOAD_RATES, NS3, "ns-3's radio carries whole packets"),
            "ns3-with-delay": (is_not("links.one_way_delay_s", 0.0), NS3, _NS3_CARRIES),
            "ns3-with-loss": (is_not("links.loss", 0.0), NS3, _NS3_CARRIES),
            "ns3-with-queue": (is_not("links.queue", "fifo"), NS3, _NS3_CARRIES),
            "ns3-with-ecn": (is_not("links.ecn", False), NS3, _NS3_CARRIES),
            "mtu-of-ns3-wifi": (
                fact(
                    "emulation.mtu",
                    f"emulation.mtu is above {MOST_WIFI_MTU}",
                    f"must be at most {MOST_WIFI_MTU}",
                    lambda s: s.emulation.mtu > MOST_WIFI_MTU,
                ),
                over_ns3("wifi"),
                "this is the largest packet of Wi-Fi",
            ),
            "edge-servers-of-asynchronous-clients": (
                ASYNCHRONOUS,
                TOPOLOGY,
                "edge servers synchronise with the cloud after whole rounds",
            ),
            "deadline-without-drop": (
                DEADLINE,
                is_not("faults.on_loss", "drop"),
                "a client that is too late is dropped from the round",
            ),
        },
    ),
    *_rows(
        MISSING,
        "",
        {
            "agent-with-own-splits": (OWN_SPLITS, TRAINED, _TRAINED_ON_ALL),
            "dora-with-dropout": (
                is_not("workload.lora_dropout", 0.0),
                is_value("workload.adapters", "dora"),
                "DoRA is defined without dropout",
            ),
            "passes-of-whole-models": (PASSES, is_value("workload.adapters", "full"), _ONE_PASS),
            "passes-with-own-batches": (OWN_BATCHES, PASSES, _ONE_PASS),
            "passes-with-own-ranks": (OWN_RANKS, PASSES, _ONE_PASS),
            "own-ranks-without-lora": (
                OWN_RANKS,
                is_not("workload.adapters", "lora"),
                "parts of adapters are defined for LoRA",
            ),
            "own-statistics-of-asynchronous-clients": (STAYS, ASYNCHRONOUS, _KEEPS),
            "own-state-of-asynchronous-clients": (
                REMEMBERS,
                ASYNCHRONOUS,
                _STATE,
            ),
            "privacy-of-asynchronous-clients": (
                HIDES,
                ASYNCHRONOUS,
                "noise is drawn once in each round, and not for each update",
            ),
            "own-state-at-edge-servers": (
                OWN_CLIENTS,
                TOPOLOGY,
                "edge servers average the models of their UAVs",
            ),
            "own-vectors-with-codecs": (
                TRAVELS,
                fact(
                    "workload.codecs",
                    "workload.codecs encodes adapters",
                    "must not encode adapters",
                    lambda s: any(
                        s.workload.codecs.named(way) for way in ("adapters_up", "adapters_down")
                    ),
                    shows=False,
                ),
                "vectors that accompany adapters are sent as float32",
            ),
            "asynchronous-with-server-momentum": (
                is_not("workload.aggregation", "fedavg", "fedprox"),
                ASYNCHRONOUS,
                _MERGED,
            ),
            "asynchronous-with-common-adapters": (COMMON_SET, ASYNCHRONOUS, _MERGED),
            "aggregated-gradients-of-measured-time": (
                MEASURED,
                AGGREGATED,
                "a node starts the common work only when all gradients are known",
            ),
            "cells-of-another-radio": (
                CELLS,
                is_not("radio.access", "lte", "nr"),
                "cells and handovers are modelled for LTE and NR only",
            ),
            "cells-with-fading": (
                CELLS,
                is_not("radio.fading", "none"),
                "the interference of further cells is computed without fading",
            ),
            "limited-grants-of-own-blocks": (
                given("radio.lte.grants_per_tti"),
                OWN_BLOCKS,
                "each UAV has resource blocks of its own in every TTI",
            ),
            "limited-nr-grants-of-own-blocks": (
                given("radio.nr.grants_per_tti"),
                OWN_NR_BLOCKS,
                "each UAV has resource blocks of its own in every NR slot",
            ),
            "background-users-of-own-blocks": (
                given("radio.lte.background.users"),
                OWN_BLOCKS,
                "background users divide the resource blocks with the UAVs that send",
            ),
            "loss-on-a-shared-band": (
                LOSSY,
                replace(DIVIDED, find=lambda s: None if NS3(s) else DIVIDED.find(s)),
                _NO_MEDIUM_AND_TCP,
            ),
            "mac-order-on-links": (
                MAC_ORDER,
                ON_LINKS,
                "only ns-3's cell has a scheduler of packets",
            ),
            "ns3-of-another-radio": (
                fact(
                    "radio.access",
                    "ns-3 does not simulate radio.access",
                    "must be 'lte', 'nr' or 'wifi'",
                    lambda s: s.radio.kind.ns3 is None,
                ),
                NS3,
                "these are the radios that ns-3 simulates",
            ),
            "ns3-with-docker": (
                DOCKER,
                NS3,
                "the devices of ns-3 are in one network namespace",
            ),
            "ns3-on-several-machines": (
                is_not("emulation.placement", None),
                NS3,
                "the devices of ns-3 are in one network namespace",
            ),
            "ns3-shares-with-decisions": (
                DECIDES,
                fact(
                    "emulation.air",
                    "emulation.air is 'ns3' and the scheduler is 'shares'",
                    "must be 'links'",
                    lambda s: (
                        (OVER_NS3_LTE(s) or OVER_NS3_NR(s)) and s.radio.cell.scheduler == "shares"
                    ),
                    "radio.lte.scheduler",
                    "radio.nr.scheduler",
                ),
                "the shares of ns-3's scheduler stay the same",
            ),
            "edge-servers-with-cells": (
                CELLS,
                TOPOLOGY,
                "UAVs are handed over between the cells of one base station",
            ),
            "edge-servers-of-own-power-over-ns3": (
                Fact(
                    "an edge server has a transmit power of its own",
                    "must be that of base_station",
                    ("topology.edges",),
                    own_power_of_edge,
                ),
                NS3,
                "one radio of ns-3 carries the rounds of all edge servers",
            ),
            "edge-servers-with-programs": (
                given("nodes"),
                TOPOLOGY,
                "a session has one base station",
            ),
            "edge-servers-with-an-agent": (TRAINED, TOPOLOGY, _TRAINED_ON_ALL),
            "guided-flight-with-edge-servers": (
                IS_GUIDED,
                TOPOLOGY,
                "each edge server decides at its own times, and the flight has one pilot",
            ),
            "flight-with-edge-servers": (FLIES, TOPOLOGY, _FLIGHT_OF_ROUNDS),
            "flight-of-asynchronous-clients": (FLIES, ASYNCHRONOUS, _FLIGHT_OF_ROUNDS),
        },
    ),
    *_rows(
        MISSING,
        "ns3-lte",
        {
            "ns3-lte-with-two-bandwidths": (
                fact(
                    "radio.downlink_bandwidth_hz",
                    "the bandwidths differ",
                    "must be that of the uplink",
                    lambda s: s.radio.downlink_bandwidth_hz != s.radio.uplink_bandwidth_hz,
                    "radio.uplink_bandwidth_hz",
                ),
                None,
                _NS3_LACKS,
            ),
            "ns3-lte-with-layers": (is_not("radio.lte.layers", 1), None, _NS3_LACKS),
            "ns3-lte-with-256qam": (
                is_not("radio.lte.highest_modulation", "64QAM"),
                None,
                _NS3_LACKS,
            ),
            "ns3-lte-with-margin": (
                is_not("radio.lte.implementation_margin_db", None),
                None,
                "ns-3's model of LTE has its own margin",
            ),
            "ns3-lte-with-highest-snr": (
                is_not("radio.lte.highest_snr_db", None),
                None,
                _NS3_LACKS,
            ),
        },
    ),
    *_rows(
        MISSING,
        "ns3-nr",
        {
            "ns3-nr-with-cells": (
                CELLS,
                None,
                "after a handover, the uplink of 5G-LENA NR-v4.0 carries nothing",
            ),
            "ns3-nr-with-uplink-at-a-half-frame": (
                fact(
                    "radio.nr.tdd_pattern",
                    "radio.nr.tdd_pattern has 'U' at a multiple of 5 ms",
                    "must have 'D' or 'S' at multiples of 5 ms",
                    lambda s: "U" in half_frame_slots(s.radio.nr),
                    "radio.nr.subcarrier_spacing_khz",
                ),
                is_value("radio.nr.duplex", "tdd", "fdd"),
                "5G-LENA sends system information in them, and fails in an uplink slot",
            ),
            "ns3-nr-with-block-size": (
                is_not("radio.nr.block_size", "lena"),
                None,
                "5G-LENA has a rule of its own for the size of transport blocks",
            ),
            "ns3-nr-with-background": (
                is_not("radio.nr.background.load", 0.0),
                None,
                "there are no background users in 5G-LENA's cell",
            ),
            "ns3-nr-with-limited-grants": (
                given("radio.nr.grants_per_tti"),
                None,
                "the scheduler in 5G-LENA has no limit of grants",
            ),
        },
    ),
    *_rows(
        CONTRADICTION,
        "run",
        {
            "contention-on-links": (
                ON_LINKS,
                CONTENDS,
                "emulated links have a rate each, and do not contend for one channel",
            ),
        },
    ),
    *_rows(
        MISSING,
        "run",
        {
            "cells-on-links": (ON_LINKS, CELLS, "the emulated links are those of one cell"),
            "guided-run-with-memory": (HAS_MEMORY, IS_GUIDED, _MADE_AGAIN),
        },
    ),
    *_rows(
        CONTRADICTION,
        "up",
        {
            "session-with-guided-flight": (
                IS_GUIDED,
                None,
                "a session has no rounds, for which a policy decides",
            ),
            "session-with-decisions": (
                DECIDES,
                None,
                "a session has no rounds, for which a policy decides",
            ),
        },
    ),
    *_rows(
        MISSING,
        "up",
        {
            "session-with-edge-servers": (TOPOLOGY, None, "a session has one base station"),
            "steered-uavs-with-dilation": (
                fact(
                    "emulation.dilation",
                    "emulation.dilation is not 1 and the clock is real",
                    "must be 1",
                    lambda s: s.emulation.dilation != 1 and not VIRTUAL(s),
                    "emulation.clock",
                ),
                STEERED,
                "programs that fly UAVs live in real time",
            ),
            "session-with-faults": (
                first("faults are given", "must be absent", EVENTS, RANDOM),
                None,
                "faults belong to rounds, and a session has none",
            ),
        },
    ),
    *_rows(
        CONTRADICTION,
        "--downlink",
        {
            "dedicated-downlink-of-a-shared-band": (
                Fact(
                    "`downlink` is 'dedicated'",
                    "must be 'shared'",
                    ("`downlink`",),
                    lambda s: Found("`downlink`", "dedicated"),
                ),
                DIVIDED,
                "such a downlink has no share of its own",
            ),
        },
    ),
    *_rows(
        MISSING,
        "--scheduler",
        {
            "hosts-with-docker": (DOCKER, None, "tunnels join network namespaces"),
            "hosts-with-automatic-dilation": (
                is_value("emulation.dilation", "auto", otherwise="must be a number"),
                None,
                "the computing speed is forecast for one machine",
            ),
            "hosts-over-ns3": (NS3, None, "the devices of ns-3 are in one network namespace"),
            "hosts-with-steered-uavs": (
                STEERED,
                None,
                "the files in which programs publish their flight must be on this machine",
            ),
            "hosts-with-contention": (
                CONTENDS,
                None,
                "each host shapes the links of its own nodes",
            ),
            "hosts-on-a-shared-band": (
                SHARED_CELL,
                None,
                "each host shapes the links of its own nodes",
            ),
        },
    ),
    *_rows(
        CONTRADICTION,
        "--scheduler",
        {
            "hosts-in-virtual-time": (VIRTUAL, None, "the clock of a guest is that of one machine"),
        },
    ),
    *_rows(
        MISSING,
        "run --scheduler",
        {
            "hosts-with-data": (
                is_not("workload.data.source", "synthetic"),
                is_value("workload.compute", "real", "none"),
                "data are not copied to the machines",
            ),
        },
    ),
    *_rows(
        MISSING,
        "up --scheduler",
        {
            "hosts-with-writable-files": (
                Fact("programs may write files", "must be empty", ("nodes",), writable_files),
                None,
                "files of programs are copied from their home to this machine",
            ),
        },
    ),
    *_rows(
        MISSING,
        "cross-check",
        {
            "guided-packets-with-memory": (HAS_MEMORY, IS_GUIDED, _MADE_AGAIN),
            "packets-of-another-transport": (
                is_not("emulation.transport", "tcp"),
                None,
                "the simulated nodes send frames over plain TCP",
            ),
            "packets-of-new-connections": (
                is_not("emulation.connection", "kept"),
                None,
                "the simulated nodes keep their connections",
            ),
            "packets-with-edge-servers": (TOPOLOGY, None, "ns-3 simulates one base station"),
            "packets-with-queue": (
                is_not("links.queue", "fifo"),
                None,
                "the simulated links have plain queues",
            ),
            "packets-with-ecn": (
                is_not("links.ecn", False),
                None,
                "the simulated links do not mark packets",
            ),
            "packets-of-another-congestion-control": (
                is_not("emulation.congestion_control", *CONGESTION_CONTROLS),
                None,
                "these are those that ns-3 has",
            ),
        },
    ),
    *_rows(
        CONTRADICTION,
        "cross-check",
        {
            "packets-with-payload-rates": (
                PAYLOAD_RATES,
                fact(
                    "radio.access",
                    "ns-3 simulates the radio",
                    "must be 'shannon'",
                    lambda s: s.packet_radio is not None,
                ),
                "ns-3's radio carries whole packets",
            ),
        },
    ),
    *_rows(
        CONTRADICTION,
        "--delay-ms",
        {
            "packets-of-varying-links": (
                fact(
                    "links",
                    "delay or loss differ from slot to slot",
                    "must not differ from slot to slot",
                    lambda s: s.links.vary_by_slot,
                    shows=False,
                ),
                None,
                "one delay replaces those of all slots",
            ),
        },
    ),
    *_rows(
        MISSING,
        "theory",
        {
            "forms-with-edge-servers": (TOPOLOGY, None, _ONE_STATION),
            "forms-of-sequential-uploads": (IN_TURN, None, _FORMS_PLAIN),
            "forms-with-an-adapter-gate": (GATED, None, _FORMS_PLAIN),
            "forms-of-aggregated-gradients": (AGGREGATED, None, _FORMS_PLAIN),
            "forms-with-own-iterations": (
                OWN_ITERATIONS,
                None,
                "the paper's equations have one number of iterations",
            ),
        },
    ),
    *_rows(
        CONTRADICTION,
        "constant",
        {
            "forms-on-a-shared-band": (
                DIVIDED,
                None,
                "closed forms need constant rates, which a link of a shared band does not have",
            ),
        },
    ),
    *_rows(
        MISSING,
        "validate",
        {
            "validation-of-asynchronous-clients": (
                ASYNCHRONOUS,
                None,
                "models are judged by the latency of a round",
            ),
            "validation-with-own-batches": (OWN_BATCHES, None, _EQUAL_COSTS),
            "validation-with-own-iterations": (OWN_ITERATIONS, None, _EQUAL_COSTS),
            "validation-with-epochs": (
                EPOCHS,
                None,
                "the number of iterations is one of the varied keys",
            ),
            "validation-with-own-ranks": (OWN_RANKS, None, _EQUAL_COSTS),
            "validation-with-edge-servers": (TOPOLOGY, None, _ONE_STATION),
            "validation-with-participation": (
                SOME_CLIENTS,
                None,
                "models are judged by rounds of all UAVs",
            ),
        },
    ),
    *_rows(
        MISSING,
        "bound_rounds",
        {
            "bound-of-asynchronous-clients": (ASYNCHRONOUS, None, _BOUND),
            "bound-of-sequential-uploads": (IN_TURN, None, _BOUND),
            "bound-with-an-adapter-gate": (GATED, None, _BOUND),
            "bound-of-aggregated-gradients": (AGGREGATED, None, _BOUND),
            "bound-of-another-radio": (
                fact(
                    "radio.access",
                    "radio.access is not 'shannon'",
                    "must be 'shannon'",
                    lambda s: not s.radio.kind.invertible,
                ),
                None,
                "the lower bound is that of Shannon's rates",
            ),
        },
    ),
    *_rows(
        MISSING,
        "times",
        {
            "times-of-smaller-batches": (
                KEEPS_LAST,
                None,
                "all batches of a client have the same modelled times and sizes",
            ),
        },
    ),
    *_rows(
        MISSING,
        "learn",
        {
            "trajectory-with-edge-servers": (TOPOLOGY, None, _ONE_STATION),
        },
    ),
    *_rows(
        CONTRADICTION,
        "learn",
        {
            "trajectory-of-the-channel": (
                NEEDS_TIMES,
                None,
                "times decide in which slots a round is",
            ),
            "trajectory-of-asynchronous-clients": (
                ASYNCHRONOUS,
                None,
                "times decide which updates are mixed",
            ),
            "trajectory-of-shared-adapters": (
                SHARED_SET,
                None,
                "the order of service decides what the common set learns",
            ),
            "trajectory-of-passes": (
                PASSES,
                None,
                "the last bits depend on which batches wait together",
            ),
            "trajectory-with-deadline": (
                DEADLINE,
                None,
                "times decide who is dropped from a round",
            ),
            "trajectory-of-chosen-clients": (
                fact(
                    "participation.rule",
                    "participation.rule is not 'random' or 'round-robin'",
                    "must be 'random' or 'round-robin'",
                    lambda s: not s.participation.is_blind,
                ),
                None,
                "other rules may choose clients by the channel or by times",
            ),
            "trajectory-with-faults": (
                fact(
                    "faults",
                    "faults lose data or nodes",
                    "must slow nodes only",
                    lambda s: any(kind != "slow-node" for kind in s.faults.kinds),
                    shows=False,
                ),
                None,
                "times decide what is lost",
            ),
            "trajectory-with-moving-splits": (
                DECIDES,
                fact(
                    "workload",
                    "the split point affects what is learned",
                    "must learn the same with any split point",
                    lambda s: s.workload.why_split_matters,
                    *("workload.dtype", "workload.wire_dtype", "workload.codecs"),
                    *(
                        "workload.gradient_aggregation",
                        "workload.clip_norm",
                        "workload.server_adapters",
                    ),
                    shows=False,
                ),
                "the policy may change split points by the channel",
            ),
        },
    ),
    *_rows(
        MISSING,
        "train",
        {
            "training-with-own-splits": (OWN_SPLITS, None, _AGENT_PLAIN),
            "training-of-asynchronous-clients": (ASYNCHRONOUS, None, _AGENT_PLAIN),
            "training-with-edge-servers": (TOPOLOGY, None, _AGENT_PLAIN),
            "training-with-participation": (
                SOME_CLIENTS,
                None,
                _AGENT_PLAIN,
            ),
        },
    ),
    *_rows(
        MISSING,
        "bound_rounds",
        {
            "bound-of-rates": (
                Fact(
                    "bound_rounds is given",
                    "must be absent",
                    ("bound_rounds",),
                    lambda s: Found("bound_rounds"),
                ),
                None,
                "the lower bound is that of Shannon's rates",
            ),
        },
        channels=RATES,
    ),
    *_rows(
        CONTRADICTION,
        "",
        {
            "radio-of-a-trace-of-rates": (
                is_not("radio.access", "shannon"),
                None,
                "other radios compute rates from gains",
            ),
            "snr-loss-of-a-trace-of-rates": (SNR_LOSS, None, _NO_GAINS),
            "fading-of-a-trace-of-rates": (
                is_not("radio.fading", "none"),
                None,
                "fading changes gains",
            ),
            "unequal-bands-of-a-trace-of-rates": (
                unequal("beta"),
                None,
                "no share of the band changes these rates",
            ),
        },
        channels=RATES,
    ),
    *_rows(
        CONTRADICTION,
        "",
        {
            "unequal-power-of-a-trace-of-rates": (
                unequal("rho"),
                None,
                "no share of power changes the rate of a link",
            ),
        },
        channels=("rates",),
    ),
    *_rows(
        CONTRADICTION,
        "",
        {
            "downlink-of-a-trace-of-gains": (
                is_not("radio.downlink_is", None),
                None,
                "it is the meaning of the rates of a trace",
            ),
        },
        channels=("gains",),
    ),
)
"""All rules, in the order in which they are applied."""


# --- the page ------------------------------------------------------------------------------------

HEAD = """# Combinations that are refused

This page lists all rules about values of keys that do not go together. `testbed combinations`
prints them, and `python -m orchestrator.scenario.combinations` generates this page from the same
table. A rule is applied when a scenario is loaded. A rule for a command or for a kind of trace is
applied before this command computes anything.

A *contradiction* follows from the meaning of the keys. All other rules are *not modelled*: the
testbed does not support the combination yet.

"""


def reference() -> str:
    """The page as Markdown: a row for each rule."""
    rows = (
        f"| {row.name} | {', '.join(f'`{key}`' for key in row.keys)} | {row.needs} | {row.because} "
        f"| {row.kind} |\n"
        for row in COMBINATIONS
    )
    return f"{HEAD}| rule | keys | the first key | because | class |\n|---|---|---|---|---|\n" + (
        "".join(rows).replace("``", "`")
    )


if __name__ == "__main__":
    print(reference(), end="")
