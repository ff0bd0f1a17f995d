# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`testbed init`, `show`, `trace`, `predict`: predict rounds without emulating them."""

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.console import out, shown
from orchestrator.cli.options import JsonFile, Overrides, Rounds, ScenarioFile, TraceFile, rounds_of


def trace(
    scenario: ScenarioFile,
    slots: Annotated[int, typer.Option(min=1, help="Slots to generate.")],
    output: Annotated[Path, typer.Option("--out", metavar="T.npz", help="The file to write.")],
    overrides: Overrides = None,
) -> None:
    """Generate a channel trace with ns-3: gains and positions in every slot."""
    from dataclasses import replace

    from orchestrator.scenario.channel import ns3_source
    from orchestrator.scenario.loading import load
    from testbed.system.files import check_writable

    parsed = load(scenario, overrides or [])
    check_writable("out", output)
    with ns3_source(parsed) as source, shown("slots") as show:
        step, have = max(slots // 100, 1000), 0
        while have < slots:
            made = source.trace(min(have + step, slots))
            have = min(made.slots, slots)
            show("ns-3", have, slots)
        replace(
            made.first(slots),
            seed=parsed.seed,
            scenario=parsed.model_dump_json(),
        ).save(output)
    out.print(f"{output}: {parsed.uavs.count} UAVs, {slots} slots of {parsed.slot_s:g} s")


def predict(
    scenario: ScenarioFile,
    trace_file: TraceFile = None,
    rounds: Rounds = None,
    overrides: Overrides = None,
    wire: Annotated[
        bool,
        typer.Option("--wire", help="Include headers, delay and loss, not only payload bits."),
    ] = False,
    json_file: JsonFile = None,
) -> None:
    """Predict rounds with the slot-level engine."""
    from orchestrator import api
    from orchestrator.cli.tables import rounds_table
    from testbed.system.files import check_writable, write_json

    parsed = api.load(scenario, [*(overrides or []), *rounds_of(rounds)])
    check_writable("json", json_file)
    with shown("rounds") as show:
        timeline = api.predict(parsed, trace_file, wire=wire, progress=show)
    if json_file is not None:
        write_json(
            json_file,
            {
                "scenario": parsed.model_dump(mode="json"),
                "rounds": timeline.to_json(),
                **({"downlink_is_open": True} if timeline.downlink_is_open else {}),
                **({"trace_has_rates": True} if timeline.trace_has_rates else {}),
            },
        )
    out.print(rounds_table(timeline))
    if timeline.ended is not None:
        raise timeline.ended


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")] = Path(
        "scenario.yaml"
    ),
) -> None:
    """Write a scenario to edit, with every key, its default and its meaning."""
    from orchestrator.scenario.reference import template
    from testbed.core.errors import InputError
    from testbed.system.files import check_writable, write_whole

    check_writable("FILE", file)
    if file.exists():
        raise InputError(f"FILE: {file} exists already")
    text = template(file.stem)
    write_whole(file, lambda part: part.write_text(text, encoding="utf-8"))
    out.print(f"{file}: edit it, then: testbed predict {file}", markup=False, soft_wrap=True)


def show(
    scenario: ScenarioFile,
    trace_file: TraceFile = None,
    overrides: Overrides = None,
    json_file: JsonFile = None,
) -> None:
    """Print a scenario's splits, UAVs, current link rates and first round."""
    from orchestrator.analysis.outline import outline
    from orchestrator.api import say_left_out
    from orchestrator.cli.tables import plain_table
    from orchestrator.policies.registry import decider
    from orchestrator.scenario.channel import open_source
    from orchestrator.scenario.loading import load
    from testbed.system.files import check_writable, write_json

    parsed = load(scenario, overrides or [])
    say_left_out(parsed)
    check_writable("json", json_file)
    with open_source(parsed, trace_file) as source:
        found = outline(parsed, source, decider(parsed, source))
    tables = {
        "splits": found.splits,
        "fleet": found.fleet,
        "links": found.links,
        "steps": found.steps,
    }
    if json_file is not None:
        made = {name: table.to_dict(orient="records") for name, table in tables.items()}
        first = {"split": found.split, "latency_s": found.latency_s}
        write_json(json_file, {"scenario": parsed.model_dump(mode="json"), **first, **made})
    out.print(
        f"{parsed.name}: {parsed.scheme.title}, {parsed.uavs.count} UAVs, rounds: {parsed.rounds}, "
        f"{parsed.workload.model}, policy {parsed.allocation.policy}",
        markup=False,
        highlight=False,
    )
    out.print(f"radio: {found.radio}", markup=False, highlight=False)
    for name, table in tables.items():
        out.print(f"\n{name}", markup=False)
        out.print(plain_table(table))
        if name == "links" and found.links_note:
            out.print(found.links_note, markup=False, highlight=False)
    out.print(f"\nround 0: u = {found.split}, {found.latency_s:.3f} s predicted", highlight=False)
