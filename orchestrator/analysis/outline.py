# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Overview of a scenario without a run: its splits, current links, UAVs and first round."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from ns3_scenarios.trace import ChannelSource, ChannelTrace
from orchestrator.engine.plan import Split
from orchestrator.engine.radio import WHILE_ALL_SEND, describe_radio, radio_access
from orchestrator.rounds.hierarchy import rates_at_edges
from orchestrator.rounds.loop import Decide, predict
from orchestrator.scenario.channel import Channel
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario


@dataclass(frozen=True)
class Outline:
    """Tables of a scenario's overview, and the first round's predicted latency."""

    splits: pd.DataFrame
    """One row per split u: bytes of adapters and of one sample's smashed data, GFLOP of its forward
    pass on the client and on the server."""
    links: pd.DataFrame
    """One row per UAV: distance from the base station, gain, and rates of its links in the first
    slot with the scenario's shares."""
    fleet: pd.DataFrame
    """One row per UAV: ring, height, transmit power, computing speed and power, mean speed."""
    steps: pd.DataFrame
    """One row per kind of step of the first round: count, mean duration, first start, last end."""
    split: Split
    """Split point of the first round."""
    latency_s: float
    """Predicted latency of the first round, s."""
    radio: str
    """The radio in a few words, see `orchestrator.engine.radio.describe_radio`."""
    links_note: str
    """Under which condition the rates in `links` hold; empty if under each."""


def outline(scenario: Scenario, source: ChannelSource, decide: Decide | None = None) -> Outline:
    """Predict one round, and collect its parameters in tables.

    Args:
        scenario: The scenario.
        source: The channel.
        decide: Policy (default: the scenario's split and shares).

    Raises:
        InputError: The source does not have the scenario's UAVs, or its trace is too short.
        RunEnds: A planned fault ends the first round.
    """
    channel, profile = Channel.of(source), profile_of(scenario)
    timeline = predict(scenario, channel, profile, rounds=1, decide=decide)
    if timeline.ended is not None:
        raise timeline.ended
    splits = pd.DataFrame(
        {
            "u": range(1, len(profile.smashed_bytes) + 1),
            "adapter_bytes": profile.adapter_bytes,
            "smashed_bytes": profile.smashed_bytes,
            "client_gflop": np.array(profile.client_forward_flops) / 1e9,
            "server_gflop": np.array(profile.server_forward_flops) / 1e9,
        }
    )
    trace = channel.now
    radio = radio_access(scenario, trace)
    in_turns = scenario.scheme.gradient_transmission == "sequential"
    rates = rates_at_edges(
        scenario,
        trace,
        lambda at, shares: at.link_rates(shares, trace.values[:, :1], in_turns=in_turns),
    )
    links = pd.DataFrame({"uav": range(1, scenario.uavs.count + 1)})
    if trace.position_m is not None:
        stations = zip(scenario.at_edges, scenario.members, strict=True)
        at_m = {k: there.base_station.position_m for there, own in stations for k in own}
        away_m = trace.position_m[:, 0] - np.array([at_m[k] for k in sorted(at_m)])
        links["distance_m"] = np.linalg.norm(away_m, axis=1)
    if isinstance(trace, ChannelTrace):
        links["gain_db"] = 10 * np.log10(trace.gain[:, 0].clip(min=1e-40))
        if trace.gain_down is not None:
            links["gain_down_db"] = 10 * np.log10(trace.gain_down[:, 0].clip(min=1e-40))
    links["uplink_mbps"] = rates.uplink[:, 0] / 1e6
    links["broadcast_mbps"] = rates.broadcast[:, 0] / 1e6
    links["gradient_mbps"] = rates.gradient[:, 0] / 1e6
    spans = timeline.frame().assign(duration_s=lambda t: t["end_s"] - t["start_s"])
    steps = spans.groupby("step", observed=True, sort=False).agg(
        times=("step", "size"),
        mean_s=("duration_s", "mean"),
        begins_s=("start_s", "min"),
        ends_s=("end_s", "max"),
    )
    return Outline(
        splits,
        links,
        _fleet(scenario),
        steps.reset_index(),
        timeline[0].split,
        timeline[0].latency_s,
        describe_radio(scenario, trace),
        WHILE_ALL_SEND if radio.is_shared else "",
    )


def _fleet(scenario: Scenario) -> pd.DataFrame:
    uavs, fleet = scenario.uavs, scenario.fleet
    return pd.DataFrame(
        {
            "uav": range(1, uavs.count + 1),
            "ring": [1 + uavs.rings_m.index(ring) for ring in uavs.ring_m],
            "height_m": fleet.height_m,
            "tx_power_w": fleet.tx_power_w,
            "compute_gflops": fleet.compute_flops / 1e9,
            "compute_power_w": fleet.compute_power_w,
            "mean_speed_m_s": fleet.mean_speed_m_s,
        }
    )
