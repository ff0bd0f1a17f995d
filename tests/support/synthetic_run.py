# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Run directories for tests of the report: rounds of the engine, and a perturbed copy as measured.

What is 'measured' here comes from the engine once more, with jittered computing, late slot edges
and noise, one after another, so that the error budget adds up exactly as in a real run.
``python tests/support/synthetic_run.py DIR --uavs 10`` leaves one with its report, to look at.
"""

import argparse
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import small_scenario

from ns3_scenarios.trace import ChannelTrace
from orchestrator.analysis.error_budget import KEYS, Budget, error_budget
from orchestrator.analysis.resource_blocks import resource_blocks
from orchestrator.engine.lte import Lte
from orchestrator.engine.plan import RoundPlan, fixed_allocation, link_bytes, plan_round
from orchestrator.engine.radio import radio_access
from orchestrator.records.timelines import decision_table, energy_table
from orchestrator.rounds.loop import Decision
from orchestrator.rounds.simulation import round_of, simulate
from orchestrator.scenario.loading import validate
from orchestrator.scenario.schema import Scenario
from testbed.core.timeline import Round, Timeline
from workloads.costs.profile import PAPER


def make_run(
    run_dir: Path,
    *,
    uavs: int = 3,
    rounds: int = 2,
    name: str = "synthetic",
    seed: int = 1,
    lte: Mapping[str, Any] | None = None,
) -> Path:
    """Fill a directory as `testbed run --out` does; all files are there.

    With `lte`, the radio is LTE with these keys of `radio.lte`.
    """
    rng = np.random.default_rng(seed)
    scenario = validate(
        {
            "name": "synthetic",
            "rounds": rounds,
            "uavs": {"tx_power_w": rng.choice([1, 0.4, 0.1], uavs).tolist()},
            "radio": {} if lte is None else {"access": "lte", "lte": dict(lte)},
        },
        "test",
    )
    longer = 1 if lte is None else 8
    trace = _trace(scenario, rng, slots=int(rounds * (150 + 45 * uavs)) * longer)
    kinds, budgets = _rounds(scenario, trace, rng)

    run_dir.mkdir(parents=True, exist_ok=True)
    for kind, timeline in kinds.items():
        timeline.frame().to_parquet(run_dir / f"{kind}.parquet")
    summaries = [timeline.summary().assign(kind=kind) for kind, timeline in kinds.items()]
    pd.concat(summaries).to_parquet(run_dir / "rounds.parquet")
    energy_table(kinds).to_parquet(run_dir / "energy.parquet")
    shares = fixed_allocation(scenario)
    decisions = [Decision(round_.index, round_.start_s, shares) for round_ in kinds["measured"]]
    tables = [decision_table(decision) for decision in decisions]
    pd.concat(tables).to_parquet(run_dir / "decisions.parquet")
    pd.DataFrame(
        [
            {"round": budget.round, "part": part, "seconds": value}
            for budget in budgets
            for part, value in budget.seconds.items()
        ]
    ).to_parquet(run_dir / "budget.parquet")
    pd.concat(
        [budget.steps.melt(KEYS, var_name="part", value_name="seconds") for budget in budgets]
    ).to_parquet(run_dir / "budget_steps.parquet")

    last = kinds["measured"].rounds[-1]
    slots = int(np.ceil((last.start_s + last.latency_s) / scenario.slot_s))
    _rates(scenario, trace, slots).to_parquet(run_dir / "rates.parquet")
    if isinstance(radio := radio_access(scenario, trace), Lte):
        in_turns = scenario.scheme.gradient_transmission == "sequential"
        at = radio, trace.gain, trace.slot_s, shares
        used = [resource_blocks(round_, *at, in_turns=in_turns) for round_ in kinds["measured"]]
        pd.concat(used).to_parquet(run_dir / "resource_blocks.parquet")
    boundary_s = np.arange(slots) * scenario.slot_s
    pd.DataFrame(
        {
            "slot": np.arange(slots),
            "boundary_s": boundary_s,
            "lateness_s": rng.lognormal(np.log(8e-5), 0.6, slots),
        }
    ).to_parquet(run_dir / "injector.parquet")
    _learning(kinds["measured"], rng).to_parquet(run_dir / "learning.parquet")
    _calibration(scenario, rng).to_parquet(run_dir / "calibration.parquet")
    _accounts(kinds["measured"]).to_parquet(run_dir / "accounts.parquet")
    pd.DataFrame(
        [
            (budget.round, part, seconds)
            for budget in budgets
            for part, seconds in {"payload": budget.predicted_s, **budget.seconds}.items()
        ],
        columns=["round", "part", "seconds"],
    ).to_parquet(run_dir / "waterfall.parquet")
    trace.save(run_dir / "trace.npz")

    tree = scenario.model_dump(mode="json") | {"name": name}
    (run_dir / "scenario.json").write_text(json.dumps(tree))
    (run_dir / "manifest.json").write_text(json.dumps(manifest()))
    return run_dir


def make_session(folder: Path, carried_bytes: int = 50_000, slots: int = 5) -> Path:
    """Fill a folder as `testbed up --out` does: three links, of which uplinks carry that a slot."""
    folder.mkdir()
    tree = validate(small_scenario.TREE, "test").model_dump(mode="json")
    (folder / "scenario.json").write_text(json.dumps(tree))
    check = {"check": "calibration_error", "limit": 0.03, "value": 0.001, "ok": True, "detail": ""}
    program = {"node": "uav1", "argv": ["true"], "given": True, "start_s": -0.1, "end_s": 0.2}
    level = {"direction": "uplink", "level": "lowest", "rate_bps": 8e6}
    link = {"client": 1, "direction": "up", "offered_bytes": 5e5, "carried_bytes": carried_bytes}
    about = {
        "kind": "session",
        "status": "complete",
        "valid": True,
        "validity": [check],
        "downlink": "dedicated",
        "ended": "commands",
        "slots": slots,
        "programs": [program | {"status": 0, "stopped": False}],
        "calibration": [level | {"error_p50": 0.001, "error_max": 0.002}],
        "links": [link | {"dropped_frames": 0}],
        "slot_0_unix_ns": 1_795_000_000_000_000_000,
        "captured": {"frames": 10, "missed_packets": 0},
        "started": "2026-11-21T08:00:00+00:00",
    }
    (folder / "manifest.json").write_text(json.dumps(about))
    rows = [
        (slot, client, direction, 8e6, 1e5, carried_bytes * (direction == "up"), 70 * client)
        for slot in range(slots)
        for client in (1, 2, 3)
        for direction in ("up", "down")
    ]
    names = ["slot", "client", "direction", "rate_bps", "offered_bytes", "carried_bytes"]
    pd.DataFrame(rows, columns=[*names, "queued_bytes"]).to_parquet(folder / "session.parquet")
    return folder


def manifest(**changes: Any) -> dict[str, Any]:
    """A manifest of a valid, complete run."""
    return {
        "testbed_version": "0.1.0",
        "revision": "0123456789abcdef0123456789abcdef01234567",
        "dirty": False,
        "command": "testbed run scenarios/quickstart.yaml --out 'runs/my demo'",
        "argv": ["testbed", "run", "scenarios/quickstart.yaml", "--out", "runs/my demo"],
        "started": "2026-11-21T08:00:00+00:00",
        "finished": "2026-11-21T08:01:23+00:00",
        "seed": 1,
        "python": "3.11.99",
        "packages": {"numpy": "2.4.6", "torch": "2.12.1", "ns3": "3.44"},
        "kernel": "6.1.0",
        "cpu": "Some CPU @ 2.0 GHz",
        "cores": 2,
        "memory_bytes": 25769803776,
        "runtime": "namespace",
        "congestion_control": "cubic",
        "mtu": 1500,
        "dilation": 1.0,
        "valid": True,
        "validity": [
            {"check": "injector lateness p99", "limit": "0.5 ms", "value": "0.31 ms", "ok": True},
            {"check": "packets dropped", "limit": 0, "value": 0, "ok": True},
            {"check": "CPU steal", "limit": "2 %", "value": "0.4 %", "ok": True},
        ],
        "status": "complete",
        "failure": None,
        "data": "synthetic images, seed 1",
    } | changes


def _trace(scenario: Scenario, rng: np.random.Generator, slots: int) -> ChannelTrace:
    inner, outer = np.array(scenario.uavs.ring_m).T
    angle = rng.uniform(0, 2 * np.pi, scenario.uavs.count)
    turn = rng.normal(0, 1.2e-3, (slots, scenario.uavs.count)).cumsum(axis=0)
    angle = angle + (turn * scenario.slot_s).cumsum(axis=0) * 0.25
    middle, reach = (inner + outer) / 2, (outer - inner) / 2
    phase = rng.uniform(0, 2 * np.pi, scenario.uavs.count)
    radius = middle + 0.9 * reach * np.sin(
        phase + np.arange(slots)[:, None] * scenario.slot_s * 2 / reach
    )
    height = np.full_like(angle, scenario.uavs.height_m)
    position = np.stack([radius * np.cos(angle), radius * np.sin(angle), height], axis=-1)
    distance = np.linalg.norm(position - scenario.base_station.position_m, axis=-1)
    loss_db = 28 + 22 * np.log10(distance) + 20 * np.log10(scenario.radio.carrier_hz / 1e9)
    return ChannelTrace(
        gain=np.ascontiguousarray(10 ** (-loss_db.T / 10)),
        slot_s=scenario.slot_s,
        position_m=np.ascontiguousarray(position.transpose(1, 0, 2)),
        seed=scenario.seed,
    )


def _rounds(
    scenario: Scenario, trace: ChannelTrace, rng: np.random.Generator
) -> tuple[dict[str, Timeline], list[Budget]]:
    radio, allocation = radio_access(scenario, trace), fixed_allocation(scenario)
    payload = plan_round(scenario, PAPER, allocation)
    wire = plan_round(scenario, PAPER, allocation, link_bytes)
    on_time = np.arange(trace.slots + 1) * trace.slot_s
    late = on_time + rng.lognormal(np.log(8e-5), 0.6, on_time.size)
    late[0] = 0.0
    kinds: dict[str, list[Round]] = {"predicted": [], "predicted_wire": [], "measured": []}
    start_s = dict.fromkeys(kinds, 0.0)
    budgets = []
    for index in range(scenario.rounds):

        def run(plan: RoundPlan, kind: str, edges: Any = None, index: int = index) -> Round:
            times = simulate(
                plan, radio, trace.gain, trace.slot_s, start_s[kind], slot_edges_s=edges
            )
            return round_of(index, plan, times)

        real = replace(
            wire,
            cf_s=wire.cf_s * rng.lognormal(0.004, 0.01, wire.cf_s.shape),
            cb_s=wire.cb_s * rng.lognormal(0.004, 0.01, wire.cb_s.shape),
            s_s=wire.s_s * rng.lognormal(0.004, 0.01, wire.s_s.shape),
        )
        predicted = run(payload, "predicted")
        measured = _stretched(run(real, "measured", late), 1 + abs(rng.normal(0, 4e-4)))
        measured.spans["bytes"] = predicted.spans["bytes"]  # programs count what they carry
        budgets.append(
            error_budget(predicted, measured, payload, wire, radio, trace.gain, trace.slot_s, late)
        )
        for kind, entry in (
            ("predicted", predicted),
            ("predicted_wire", run(wire, "predicted_wire")),
            ("measured", measured),
        ):
            kinds[kind].append(entry)
            start_s[kind] = entry.start_s + entry.latency_s
    return {kind: Timeline(entries) for kind, entries in kinds.items()}, budgets


def _stretched(round_: Round, factor: float) -> Round:
    spans = round_.spans.copy()
    for field in ("start_s", "end_s"):
        spans[field] = round_.start_s + (spans[field] - round_.start_s) * factor
    latency_s = float(spans["end_s"].max() - round_.start_s)
    return replace(
        round_,
        spans=spans,
        latency_s=latency_s,
        objective=round_.objective - round_.latency_s + latency_s,
    )


def _rates(scenario: Scenario, trace: ChannelTrace, slots: int) -> pd.DataFrame:
    radio, count = radio_access(scenario, trace), scenario.uavs.count
    gain = trace.gain[:, :slots]
    rates = radio.link_rates(fixed_allocation(scenario), gain, in_turns=True)
    return pd.DataFrame(
        {
            "slot": np.repeat(np.arange(slots), count),
            "time_s": np.repeat(np.arange(slots) * trace.slot_s, count),
            "client": np.tile(np.arange(1, count + 1), slots),
            "uplink_bps": rates.uplink.T.ravel(),
            "downlink_bps": rates.gradient.T.ravel(),
        }
    )


def _calibration(scenario: Scenario, rng: np.random.Generator) -> pd.DataFrame:
    return pd.DataFrame(
        [
            (client, direction, level, rate_bps, rng.normal(0, 2e-3))
            for client in range(1, scenario.uavs.count + 1)
            for direction in ("uplink", "downlink")
            for level, rate_bps in (("lowest", 1e6), ("middle", 2e6), ("highest", 4e6))
        ],
        columns=["client", "direction", "level", "rate_bps", "error"],
    )


def _accounts(measured: Timeline) -> pd.DataFrame:
    """By transfer: its payload, and frames' headers; a greeting before the first round."""
    steps = measured.frame().query("bytes > 0")
    direction = np.where(steps["step"].isin(["SM", "SG"]), "down", "up")
    table = pd.DataFrame(
        {
            "round": steps["round"],
            "client": steps["client"],
            "direction": direction,
            "kind": steps["step"].astype(str),
            "iteration": steps["iteration"],
            "payload_bytes": steps["bytes"],
            "tls_bytes": 0,
            "header_bytes": steps["bytes"] * 66 // 1448,
        }
    )
    greeting = table.head(1).assign(round=-1, payload_bytes=10**12)
    return pd.concat([greeting, table])


def _learning(measured: Timeline, rng: np.random.Generator) -> pd.DataFrame:
    table = measured.frame().query("step == 'S'")[["round", "client", "iteration", "end_s"]]
    progress = table["end_s"] / measured.frame()["end_s"].max()
    return pd.DataFrame(
        {
            "round": table["round"],
            "client": table["client"],
            "iteration": table["iteration"],
            "time_s": table["end_s"],
            "loss": 4.6 * np.exp(-0.8 * progress) + rng.normal(0, 0.08, len(table)),
            "accuracy": np.clip(0.5 * progress + rng.normal(0, 0.02, len(table)), 0, 1),
        }
    )


if __name__ == "__main__":
    from orchestrator.reporting.report import write_report

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--uavs", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=2)
    asked = parser.parse_args()
    make_run(asked.run_dir, uavs=asked.uavs, rounds=asked.rounds)
    print(write_report(asked.run_dir))
