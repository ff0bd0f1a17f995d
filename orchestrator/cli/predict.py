"""`testbed trace`, `predict`: what rounds would take, without emulating them."""

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
    """Let ns-3 move the UAVs and write gains and positions of every slot."""
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
        assert made.position_m is not None
        replace(
            made,
            gain=made.gain[:, :slots],
            position_m=made.position_m[:, :slots],
            seed=parsed.seed,
            scenario=parsed.model_dump_json(),
        ).save(output)
    out.print(f"{output}: {parsed.uavs.count} UAVs, {slots} slots of {parsed.slot_s:g} s")


def predict(
    scenario: ScenarioFile,
    trace_file: TraceFile = None,
    rounds: Rounds = None,
    overrides: Overrides = None,
    json_file: JsonFile = None,
) -> None:
    """Predict rounds with the slot-level engine."""
    from orchestrator import api
    from orchestrator.cli.tables import rounds_table
    from testbed.system.files import check_writable, write_json

    parsed = api.load(scenario, [*(overrides or []), *rounds_of(rounds)])
    check_writable("json", json_file)
    with shown("rounds") as show:
        timeline = api.predict(parsed, trace_file, progress=show)
    if json_file is not None:
        write_json(
            json_file,
            {"scenario": parsed.model_dump(mode="json"), "rounds": timeline.to_json()},
        )
    out.print(rounds_table(timeline))
    if timeline.ended is not None:
        raise timeline.ended
