# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`testbed init`, `show`, `trace`, `predict`: predict rounds without emulating them."""

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli import completion
from orchestrator.cli.console import out, shown
from orchestrator.cli.options import (
    JsonFile,
    Learned,
    Overrides,
    Rounds,
    ScenarioFile,
    TraceFile,
    rounds_of,
)
from testbed.core.errors import InputError

_RADIO = "Options for rates of an ns-3 radio"
RADIOS = ("ns3-lte", "ns3-nr", "ns3-wifi")
TRACES = completion.files(".npz")
NO_STEPS = Path("none")


def trace(
    scenario: ScenarioFile,
    slots: Annotated[
        int,
        typer.Option(
            min=1,
            metavar="N",
            help="Number of slots in the trace. Each slot lasts `slot_s` seconds.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--out", metavar="T.npz", help="Trace file to write.", autocompletion=TRACES),
    ],
    overrides: Overrides = None,
    radio: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(RADIOS),
            help="Write the rates that LTE, NR or Wi-Fi of ns-3 delivers, instead of gains.",
            autocompletion=completion.words(*RADIOS),
            rich_help_panel=_RADIO,
        ),
    ] = None,
    trace_file: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            metavar="T.npz",
            help="Trace whose gains are used instead of generated ones.",
            autocompletion=TRACES,
            rich_help_panel=_RADIO,
        ),
    ] = None,
    wifi_standard: Annotated[
        str | None,
        typer.Option(
            metavar="n|ac|ax",
            help="Wi-Fi standard: 802.11n, 802.11ac or 802.11ax.",
            show_default="radio.wifi.standard",
            autocompletion=completion.words("n", "ac", "ax"),
            rich_help_panel=_RADIO,
        ),
    ] = None,
    wifi_width_mhz: Annotated[
        int | None,
        typer.Option(
            metavar="MHZ",
            help="Width of the Wi-Fi channel, in MHz.",
            show_default="radio.wifi.width_mhz",
            rich_help_panel=_RADIO,
        ),
    ] = None,
    rts: Annotated[
        bool,
        typer.Option(
            "--rts",
            help="Exchange RTS and CTS before each frame, even if radio.wifi.rts is false.",
            rich_help_panel=_RADIO,
        ),
    ] = False,
    wifi_ap_w: Annotated[
        float | None,
        typer.Option(
            metavar="W",
            help="Transmit power of the Wi-Fi access point, in W.",
            show_default="radio.wifi.access_point_power_w",
            rich_help_panel=_RADIO,
        ),
    ] = None,
) -> None:
    """Generate a channel trace with ns-3.

    The trace contains the position of each UAV and the channel gains in each slot. With `--radio`,
    it contains the rates of a radio instead of gains.

    Examples:
        testbed trace paper --slots 1000 --out paper.npz
        testbed trace quickstart --slots 100 --radio ns3-lte --out lte.npz
    """
    from ns3_scenarios.trace import TraceExhausted, save_pieces
    from orchestrator.scenario.channel import ns3_source, open_source, pieces
    from orchestrator.scenario.loading import load
    from testbed.system.files import check_writable

    parsed = load(scenario, overrides or [])
    of_radios = (radio, wifi_standard, wifi_width_mhz, wifi_ap_w)
    if not rts and all(given is None for given in of_radios):
        if trace_file is not None:
            raise InputError("`trace`: needs `radio`; a trace of gains is there already")
        check_writable("out", output, ".npz")
        with ns3_source(parsed) as own, shown("slots") as show:
            made = pieces(parsed, own, slots, lambda have: show("ns-3", have, slots))
            save_pieces(output, made, slots)
        said = f"{parsed.uavs.count} UAVs, {slots} slots of {parsed.slot_s:g} s"
    else:
        from orchestrator.rounds.ns3_radio import described, rate_trace, settings_of

        access = settings_of(
            parsed, radio, wifi_standard, wifi_width_mhz, rts=rts, access_point_w=wifi_ap_w
        )
        assert access is not None  # without `radio`, the other options are refused
        check_writable("out", output, ".npz")
        with open_source(parsed, trace_file) as source, shown("slots") as show:
            try:
                channel = source.trace(slots).first(slots)
            except TraceExhausted as end:
                raise InputError(f"`slots`: {trace_file} has {end.available} slots") from None
            rates, _ = rate_trace(
                parsed, channel, access, wifi_ap_w, lambda done: show(f"{radio}", done, slots)
            )
        rates.save(output)
        said = described(rates)
    out.print(f"{output}: {said}", markup=False, highlight=False, soft_wrap=True)


def predict(
    scenario: ScenarioFile,
    trace_file: TraceFile = None,
    rounds: Rounds = None,
    overrides: Overrides = None,
    wire: Annotated[
        bool,
        typer.Option(
            "--wire",
            help="Take headers, one-way delay and packet loss into account. By default, only "
            "payload bits count.",
        ),
    ] = False,
    learned: Learned = None,
    json_file: JsonFile = None,
    steps: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.parquet|none",
            help="Write the steps of all rounds to this Parquet file, a row per step, instead of "
            "to the JSON file. With none, do not write them at all.",
            autocompletion=completion.files(".parquet"),
        ),
    ] = None,
) -> None:
    """Predict the latency and energy of rounds without emulating them.

    Examples:
        testbed predict paper --rounds 10000 --json rounds.json --steps steps.parquet
        testbed predict paper --rounds 10 --set paradigm=pipesfl --json predicted.json
        testbed predict paper --trace paper.npz --wire
    """
    from orchestrator import api
    from orchestrator.cli.printed_tables import plain_table, rounds_table
    from testbed.system.files import check_writable, write_json

    parsed = api.load(scenario, [*(overrides or []), *rounds_of(rounds)])
    check_writable("json", json_file)
    steps_file = None if steps == NO_STEPS else steps
    if steps_file is not None and steps_file.suffix != ".parquet":
        raise InputError(f"`steps`: must be a file *.parquet, or none, not {steps_file}")
    check_writable("steps", steps_file)
    trajectory = learning = None
    if learned:  # Importing what reads learned values takes longer than predicting 100 rounds.
        from orchestrator.analysis.learned import curve_of
        from orchestrator.records.comparison import plain_rows
        from orchestrator.records.learned import read_trajectories, trajectory_for

        given = [each for folder in learned for each in read_trajectories(folder)]
        trajectory = trajectory_for(parsed, given)
    with shown("rounds") as show:
        timeline = api.predict(parsed, trace_file, wire=wire, progress=show)
    if trajectory is not None:
        learning = trajectory.timed(parsed, timeline)
    if json_file is not None:
        write_json(
            json_file,
            {
                "scenario": parsed.model_dump(mode="json"),
                "rounds": (round_.to_json(steps=steps is None) for round_ in timeline),
                **({"downlink_is_open": True} if timeline.downlink_is_open else {}),
                **({"trace_has_rates": True} if timeline.trace_has_rates else {}),
                **({} if learning is None else {"learning": plain_rows(learning)}),
            },
        )
    if steps_file is not None:
        from orchestrator.records.timelines import write_steps

        write_steps(steps_file, timeline)
    out.print(rounds_table(timeline))
    if learning is not None:
        out.print(plain_table(curve_of(learning, timeline)))
    if timeline.ended is not None:
        raise timeline.ended


def init(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="Scenario file to write.", autocompletion=completion.files(".yaml")
        ),
    ] = Path("scenario.yaml"),
) -> None:
    """Write a scenario file with every key, its default and its meaning.

    Examples:
        testbed init my-scenario.yaml
    """
    from orchestrator.scenario.reference import template
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
    """Show the splits, UAVs, link rates and first round of a scenario.

    Examples:
        testbed show paper
        testbed show paper --set radio.access=lte
    """
    from orchestrator.analysis.outline import outline
    from orchestrator.api import say_left_out
    from orchestrator.cli.printed_tables import plain_table
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
