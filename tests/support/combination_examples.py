# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""By row of the table of combinations: a scenario that breaks this row."""

from typing import Any

from testbed.core.registry import AGGREGATORS
from workloads.aggregation.rules import Algorithm, Update

AGGREGATORS.add({"by-channel": lambda: Algorithm(Update.mean, needs_times=True)})

TREE: dict[str, Any] = {"uavs": {"tx_power_w": [0.1, 0.2, 0.4]}}
"""The scenario whose keys an example changes."""

ASYNCHRONOUS = {"paradigm": "asfl-ps"}
IN_TURN = {"uploads.sharing": "sequential"}
GATED = {"uploads.adapters_wait_for_all": True}
AGGREGATED = {"paradigm": "sfl-sp", "workload.gradient_aggregation": 0.5}
LTE = {"radio.access": "lte"}
LTE_SHARES = LTE | {"radio.lte.scheduler": "shares"}
NR = {"radio.access": "nr"}
WIFI = {"radio.access": "wifi"}
CELLS = LTE | {"radio.cells": [{"position_m": [800, 0, 30]}]}
SNR = {"links.loss": {"model": "snr", "threshold_db": 3}}
NS3 = LTE | {"emulation.air": "ns3"}
NS3_WIFI = WIFI | {"emulation.air": "ns3"}
PLANNER = {"allocation.policy": "planner"}
AGENT = {"allocation.policy": "agent", "allocation.agent": "agent.pt"}
OWN_SPLITS = {"workload.split": [1, 2, 3]}
OWN_BATCHES = {"workload.batch_size": [4, 8, 8]}
OWN_ITERATIONS = {"workload.local_iterations": [1, 2, 3]}
EPOCHS = {"workload.sampling": "epochs"}
KEEPS_LAST = EPOCHS | {"workload.last_batch": "keep"}
OWN_RANKS = {"workload.lora_rank": [4, 8, 8]}
PASSES = {"workload.clients_per_pass": 2}
SHARED = {"workload.server_adapters": "shared"}
AVERAGED = {"paradigm": "sfl-sp", "workload.server_adapters": "averaged"}
SCAFFOLD = {
    "workload.aggregation": "scaffold",
    "workload.optimiser": "sgd",
    "workload.momentum": 0.0,
}
PRIVATE = {
    "workload.local_step": "private",
    "workload.local_step_parameters": {"clip": 1.0, "noise": 1.0},
}
LOCAL = {"workload.batch_norm": "local"}
VIRTUAL = {"emulation.clock": "virtual"}
MEASURED = {"workload.compute_time": "measured"}
DOCKER = {"emulation.runtime": "docker"}
PAYLOAD = {"emulation.rate_counts": "payload"}
CRASH = {"kind": "uav-crash", "nodes": ["uav1"], "at_s": 1.0}
SLOW = {"kind": "slow-node", "nodes": ["uav1"], "at_s": 1.0, "duration_s": 2.0}
FAULTS = {"faults.events": [CRASH], "faults.on_loss": "abort"}
SOME = {"participation.clients": 2}
DEADLINE = {"participation.deadline_s": 100, "faults.on_loss": "drop"}
AUTO = {"emulation.dilation": "auto"}
TOPOLOGY = {
    "topology": {
        "edges": [{"uavs": [1, 2]}, {"uavs": [3], "position_m": [100, 0, 30]}],
        "backhaul": {"uplink_bps": 1e9, "downlink_bps": 1e9},
    }
}
UNEQUAL = [0.5, 0.3, 0.2]
PROFILE = {
    "client_forward_flops": [1e9, 2e9, 3e9],
    "server_forward_flops": [3e9, 2e9, 1e9],
    "adapter_bytes": [1000, 2000, 3000],
    "smashed_bytes": [1000, 0, 1000],
}
MAC = {"radio.lte.downlink_order": "mac"}

GUIDED = {"mobility.model": "guided"}
EXAMPLES: dict[str, dict[str, Any]] = {
    # Policies, shares and split points.
    "shares-of-another-policy": {"allocation.policy": "equal", "allocation.rho": UNEQUAL},
    "agent-without-folder": {"allocation.policy": "agent"},
    "agent-with-own-splits": AGENT | OWN_SPLITS,
    "split-per-client-with-common-adapters": SHARED | {"allocation.policy": "per-client-planner"},
    "unequal-bands-on-a-shared-band": LTE | {"allocation.beta": UNEQUAL},
    "unequal-power-without-effect": LTE_SHARES | {"allocation.rho": UNEQUAL},
    # Training.
    "new-head-not-trained": {"workload.head": "new", "workload.train_head": False},
    "nothing-trained": {"workload.adapters": "none", "workload.train_head": False},
    "head-of-no-file": {"workload.head": "file"},
    "dora-with-dropout": {"workload.adapters": "dora", "workload.lora_dropout": 0.1},
    "passes-of-whole-models": PASSES | {"workload.adapters": "full"},
    "svd-without-adapters": {"workload.adapters": "full", "workload.aggregation": "svd"},
    "common-adapters-with-own-splits": SHARED | OWN_SPLITS,
    "common-adapters-with-own-ranks": AVERAGED | OWN_RANKS,
    "shared-adapters-with-own-learning-rates": SHARED | {"workload.learning_rate": [0.1, 0.2, 0.3]},
    "passes-with-own-batches": PASSES | OWN_BATCHES,
    "passes-with-own-ranks": PASSES | OWN_RANKS,
    "passes-with-shared-adapters": PASSES | SHARED,
    "own-ranks-of-a-given-profile": OWN_RANKS | {"workload.profile": PROFILE},
    "own-ranks-without-lora": OWN_RANKS | {"workload.adapters": "dora"},
    "averaged-adapters-without-gate": {"workload.server_adapters": "averaged"},
    "own-statistics-with-shared-adapters": LOCAL | SHARED,
    "own-statistics-with-moving-splits": LOCAL | PLANNER,
    "own-statistics-of-asynchronous-clients": LOCAL | ASYNCHRONOUS,
    "own-statistics-of-lost-clients": LOCAL | {"faults.on_loss": "drop"},
    "steps-of-another-optimiser": {"workload.aggregation": "fednova"},
    "steps-with-momentum": SCAFFOLD | {"workload.momentum": 0.9},
    "own-state-with-common-adapters": SCAFFOLD | SHARED,
    "privacy-with-common-adapters": PRIVATE | SHARED,
    "privacy-with-vectors": PRIVATE | SCAFFOLD,
    "own-state-with-moving-splits": SCAFFOLD | PLANNER,
    "own-state-of-lost-clients": {"workload.aggregation": "feddyn", "faults.on_loss": "drop"},
    "own-vectors-with-codecs": SCAFFOLD | {"workload.codecs": {"adapters_up": "int8"}},
    # Asynchronous paradigms.
    "asynchronous-rounds-of-faults": ASYNCHRONOUS | {"faults.events": [CRASH | {"round": 1}]},
    "asynchronous-with-decisions": ASYNCHRONOUS | PLANNER,
    "asynchronous-with-server-momentum": ASYNCHRONOUS | {"workload.aggregation": "fedavgm"},
    "own-state-of-asynchronous-clients": ASYNCHRONOUS | {"workload.local_step": "personal"},
    "asynchronous-with-common-adapters": ASYNCHRONOUS | SHARED,
    "asynchronous-with-schedule": ASYNCHRONOUS | {"workload.learning_rate_schedule": "cosine"},
    "asynchronous-with-warmup": ASYNCHRONOUS | {"workload.learning_rate_warmup": 1},
    "asynchronous-with-deadline": ASYNCHRONOUS | DEADLINE,
    "asynchronous-with-an-adapter-gate": ASYNCHRONOUS | GATED,
    # Protocols.
    "scheduled-rule-without-turns": {
        "participation.rule": "fedcs",
        "participation.parameters": {"round_s": 100.0},
    },
    "scheduled-order-without-turns": {"uploads.order": "scheduled"},
    "aggregated-gradients-without-gate": {"workload.gradient_aggregation": 0.5},
    "aggregated-gradients-with-own-splits": AGGREGATED | OWN_SPLITS,
    "aggregated-gradients-with-split-per-client": AGGREGATED
    | {"allocation.policy": "per-client-planner"},
    "aggregated-gradients-with-own-batches": AGGREGATED | OWN_BATCHES,
    "epochs-of-draws": {"workload.local_epochs": 1},
    "smaller-batches-of-aggregated-gradients": AGGREGATED | KEEPS_LAST,
    "aggregated-gradients-with-own-iterations": AGGREGATED | OWN_ITERATIONS,
    "aggregated-gradients-of-measured-time": AGGREGATED | MEASURED,
    "aggregated-gradients-without-split": AGGREGATED | {"workload.profile": PROFILE},
    # Radio and links.
    "cells-of-another-radio": CELLS | {"radio.access": "shannon"},
    "cells-with-fading": CELLS | {"radio.fading": "rayleigh"},
    "limited-grants-of-own-blocks": LTE
    | {"radio.lte.scheduler": "shares", "radio.lte.grants_per_tti": 2},
    "limited-nr-grants-of-own-blocks": NR
    | {"radio.nr.scheduler": "shares", "radio.nr.grants_per_tti": 2},
    "background-users-of-own-blocks": LTE
    | {"radio.lte.scheduler": "shares", "radio.lte.background": {"load": 0.2, "users": 3}},
    "jitter-without-delay": {"links.jitter_s": 0.1},
    "reordering-without-jitter": {"links.one_way_delay_s": 0.1, "links.reordering": True},
    "tdd-with-two-bandwidths": NR | {"radio.nr.duplex": "tdd", "radio.downlink_bandwidth_hz": 40e6},
    "mac-order-without-lte": MAC | NS3_WIFI,
    "mac-order-on-links": MAC | LTE,
    "mac-order-without-marks": MAC | NS3 | {"emulation.transport": "grpc"},
    "loss-on-a-shared-band": LTE | {"links.loss": 0.01},
    # Emulation.
    "keys-of-the-transport": {"emulation.transport": "quic", "emulation.nagle": True},
    "mtu-of-the-transport": {"emulation.transport": "quic", "emulation.mtu": 1227},
    "slow-nodes-of-measured-time": MEASURED | {"faults.events": [SLOW]},
    "measured-time-in-virtual-time": MEASURED | VIRTUAL,
    "passes-in-virtual-time": PASSES | VIRTUAL,
    "docker-in-virtual-time": DOCKER | VIRTUAL,
    "date-of-the-real-clock": {"emulation.virtual_date": "2027-01-01"},
    "memory-of-the-real-clock": {"emulation.memory_bytes": 1 << 31},
    # ns-3's radio.
    "ns3-of-another-radio": {"emulation.air": "ns3"},
    "ns3-nr-with-cells": NR | {"radio.cells": CELLS["radio.cells"], "emulation.air": "ns3"},
    "ns3-nr-with-uplink-at-a-half-frame": NR
    | {
        "radio.nr.duplex": "tdd",
        "radio.nr.subcarrier_spacing_khz": 15,
        "emulation.air": "ns3",
    },
    "ns3-nr-with-background": NR | {"radio.nr.background": {"load": 0.2}, "emulation.air": "ns3"},
    "ns3-nr-with-limited-grants": NR | {"radio.nr.grants_per_tti": 2, "emulation.air": "ns3"},
    "ns3-nr-with-block-size": NR | {"radio.nr.block_size": "3gpp", "emulation.air": "ns3"},
    "ns3-with-docker": NS3 | DOCKER,
    "ns3-on-several-machines": NS3 | {"emulation.placement": "spread"},
    "ns3-with-payload-rates": NS3 | PAYLOAD,
    "ns3-with-delay": NS3 | {"links.one_way_delay_s": 0.1},
    "ns3-with-loss": NS3 | {"links.loss": 0.1},
    "ns3-with-queue": NS3 | {"links.queue": "fq_codel"},
    "ns3-with-ecn": NS3 | {"links.ecn": True},
    "ns3-shares-with-decisions": AGENT | LTE_SHARES | NS3,
    "mtu-of-ns3-wifi": NS3_WIFI | {"emulation.mtu": 2305},
    "ns3-lte-with-two-bandwidths": NS3 | {"radio.downlink_bandwidth_hz": 10e6},
    "ns3-lte-with-layers": NS3 | {"radio.lte.layers": 2},
    "ns3-lte-with-256qam": NS3 | {"radio.lte.highest_modulation": "256QAM"},
    "ns3-lte-with-margin": NS3 | {"radio.lte.implementation_margin_db": 3.0},
    "ns3-lte-with-highest-snr": NS3 | {"radio.lte.highest_snr_db": 30.0},
    # Edge servers.
    "edge-servers-of-asynchronous-clients": TOPOLOGY | ASYNCHRONOUS,
    "privacy-of-asynchronous-clients": PRIVATE | ASYNCHRONOUS,
    "own-state-at-edge-servers": TOPOLOGY | {"workload.aggregation": "q-fedavg"},
    "edge-servers-with-cells": TOPOLOGY | CELLS,
    "edge-servers-of-own-power-over-ns3": NS3
    | {"topology": TOPOLOGY["topology"] | {"edges": [{"uavs": [1, 2, 3], "tx_power_w": 1.0}]}},
    "edge-servers-with-programs": TOPOLOGY | {"nodes": {"bs": {"command": "true"}}},
    "edge-servers-with-an-agent": TOPOLOGY | AGENT,
    "guided-flight-with-edge-servers": TOPOLOGY | GUIDED,
    "session-with-guided-flight": GUIDED,
    "guided-run-with-memory": GUIDED | {"radio.shadow_fading": True},
    "guided-packets-with-memory": GUIDED | {"radio.fading": "rayleigh"},
    "flight-with-edge-servers": TOPOLOGY | {"propulsion.model": "rotary-wing"},
    "flight-of-asynchronous-clients": {
        "paradigm": "asfl-pp",
        "propulsion.model": "rotary-wing",
    },
    "weight-of-a-flight-without-model": {"objective.flight_energy_weight": 0.1},
    # Participation and faults.
    "deadline-without-drop": {"participation.deadline_s": 100},
    # Runs and sessions.
    "contention-on-links": WIFI,
    "cells-on-links": CELLS,
    "session-with-decisions": PLANNER,
    "session-with-edge-servers": TOPOLOGY,
    "steered-uavs-with-dilation": {"mobility.model": "steered", "emulation.dilation": 2},
    "session-with-faults": FAULTS,
    "dedicated-downlink-of-a-shared-band": LTE,
    "hosts-with-docker": DOCKER,
    "hosts-in-virtual-time": VIRTUAL,
    "hosts-with-automatic-dilation": AUTO,
    "hosts-over-ns3": NS3,
    "hosts-with-steered-uavs": {"mobility.model": "steered"},
    "hosts-with-contention": WIFI,
    "hosts-on-a-shared-band": LTE,
    "hosts-with-data": {"workload.data.source": "photos"},
    "hosts-with-writable-files": {"nodes": {"bs": {"command": "true", "writable": ["a"]}}},
    # ns-3's packets.
    "packets-of-another-transport": {"emulation.transport": "tls"},
    "packets-of-new-connections": {"emulation.connection": "per-transfer"},
    "packets-with-edge-servers": TOPOLOGY,
    "packets-with-queue": {"links.queue": "fq_codel"},
    "packets-with-ecn": {"links.ecn": True},
    "packets-of-another-congestion-control": {"emulation.congestion_control": "vegas"},
    "packets-with-payload-rates": PAYLOAD | LTE,
    "packets-of-varying-links": {"links.one_way_delay_s": {"model": "distance"}},
    # Closed forms, validation and bounds.
    "forms-with-edge-servers": TOPOLOGY,
    "forms-of-sequential-uploads": IN_TURN,
    "forms-with-an-adapter-gate": GATED,
    "forms-of-aggregated-gradients": AGGREGATED,
    "forms-with-own-iterations": OWN_ITERATIONS,
    "forms-on-a-shared-band": LTE,
    "validation-of-asynchronous-clients": ASYNCHRONOUS,
    "validation-with-own-batches": OWN_BATCHES,
    "validation-with-own-iterations": OWN_ITERATIONS,
    "validation-with-epochs": EPOCHS | {"workload.local_epochs": 1},
    "times-of-smaller-batches": KEEPS_LAST,
    "validation-with-own-ranks": OWN_RANKS,
    "validation-with-edge-servers": TOPOLOGY,
    "validation-with-participation": SOME,
    "bound-of-asynchronous-clients": ASYNCHRONOUS,
    "bound-of-sequential-uploads": IN_TURN,
    "bound-with-an-adapter-gate": GATED,
    "bound-of-aggregated-gradients": AGGREGATED,
    "bound-of-another-radio": LTE_SHARES,
    "bound-of-rates": {},
    # Learning without times.
    "trajectory-with-edge-servers": TOPOLOGY,
    "trajectory-of-the-channel": {"workload.aggregation": "by-channel"},
    "trajectory-of-asynchronous-clients": ASYNCHRONOUS,
    "trajectory-of-shared-adapters": SHARED,
    "trajectory-of-passes": PASSES,
    "trajectory-with-deadline": DEADLINE,
    "trajectory-of-chosen-clients": SOME | {"participation.rule": "by-channel"},
    "trajectory-with-faults": FAULTS,
    "trajectory-with-moving-splits": PLANNER | {"workload.wire_dtype": "int8"},
    # Training of agents.
    "training-with-own-splits": OWN_SPLITS,
    "training-of-asynchronous-clients": ASYNCHRONOUS,
    "training-with-edge-servers": TOPOLOGY,
    "training-with-participation": SOME,
    # Traces.
    "radio-of-a-trace-of-rates": LTE,
    "snr-loss-of-a-trace-of-rates": SNR,
    "fading-of-a-trace-of-rates": {"radio.fading": "rayleigh"},
    "unequal-bands-of-a-trace-of-rates": {"allocation.beta": UNEQUAL},
    "unequal-power-of-a-trace-of-rates": {"allocation.rho": UNEQUAL},
    "downlink-of-a-trace-of-gains": {"radio.downlink_is": "cell"},
}
"""The keys that are set in `TREE`. The example of a row that is applied at load breaks only this
row."""

IGNORED: dict[str, tuple[str, ...]] = {
    "shares-of-another-policy": ("allocation.rho",),
    "asynchronous-rounds-of-faults": ("faults.events",),
    "asynchronous-with-an-adapter-gate": ("uploads.adapters_wait_for_all",),
    "asynchronous-with-deadline": ("participation.deadline_s", "faults.on_loss"),
    "scheduled-rule-without-turns": ("participation.rule", "participation.parameters"),
    "scheduled-order-without-turns": ("uploads.order",),
    "jitter-without-delay": ("links.jitter_s",),
    "deadline-without-drop": ("participation.deadline_s",),
}
"""By row: keys of its example that have no effect on the prediction if the row is left out,
although a user expects one."""


def tree_of(example: dict[str, Any]) -> dict[str, Any]:
    """The scenario of an example as plain values."""
    tree: dict[str, Any] = {"uavs": dict(TREE["uavs"])}
    for key, value in example.items():
        *path, last = key.split(".")
        node = tree
        for part in path:
            node = node.setdefault(part, {})
        node[last] = value
    return tree
