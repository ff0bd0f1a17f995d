# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The pictures of docs/round.md, drawn from the first round of `scenarios/quickstart.yaml`.

    python benchmarks/round_pictures.py [--folder docs]

`round-sfl-pp.svg`, `round-pipesfl.svg`, `round-cpsfl.svg` and `round-iteration.svg` are
predictions. `round-compared.svg` also needs a run in virtual time.
"""

import argparse
import io
import re
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from common import ROOT
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

import orchestrator as tb
from orchestrator.reporting.legend import CAUSE_TITLES, STEP_COLOURS
from orchestrator.reporting.plots import STYLE, gantts
from testbed.core.paradigm import title_of
from testbed.core.timeline import STEPS, Round

WIDTH_IN = 4.1
AXIS_S = 5.5
"""End of the time axis of all paradigms, so that the pictures can be compared."""
WAITING = "#b8bec6"
ON_BAR = "#111111"
THEMES = (
    "<style>svg{color:#1c2128;background:#fff}text{fill:currentColor}"
    "@media(prefers-color-scheme:dark){svg{color:#dde2ea;background:#1e2129}}</style>"
)
SHARED = "The server computes for all UAVs\nat once. S takes three times\nas long as in PipeSFL."
NOTES = {
    "sfl-pp": {
        "S": SHARED,
        "SG": "Gradients are sent at once:\neach has a third of the band.",
    },
    "pipesfl": {
        "S": "The server computes for one\nUAV at a time.\nUAV 2 waits for UAV 3.",
        "SG": "Gradients are sent at once:\neach has a third of the band.",
    },
    "cpsfl": {
        "S": SHARED,
        "SG": "One gradient at a time has\nthe whole band.\nUAVs 2 and 3 wait a little.",
    },
}
"""What to see in the picture of a paradigm, by the step at which a note points."""
TRAVELS = {
    "SM": "SM: adapters",
    "CA": "CA: smashed data",
    "SG": "SG: gradient",
}
COMPUTES = {"CF": "CF\nforward", "S": "S\nforward and\nbackward", "CB": "CB\nbackward"}


def steps_of(round_: Round) -> pd.DataFrame:
    """The steps of a round with their names; times count from its start."""
    table = pd.DataFrame(round_.spans)
    table["step"] = [STEPS[step] for step in table["step"]]
    table[["start_s", "end_s"]] -= round_.start_s
    return table


def predicted(paradigm: str, *, wire: bool = False) -> Round:
    """The first round of the quick start under a paradigm."""
    scenario = tb.load(ROOT / "scenarios" / "quickstart.yaml", {"paradigm": paradigm})
    return tb.predict(scenario, rounds=1, wire=wire).rounds[0]


def name_bars(axes: Axes, rows: pd.DataFrame, row_of: dict[int, int], narrow_s: float) -> None:
    """Write the names of steps on their bars, or above bars that are too narrow."""
    for step in rows.to_dict("records"):
        wide = step["end_s"] - step["start_s"] >= narrow_s * len(step["step"])
        axes.text(
            step["start_s"] if step["step"] == "SM" else (step["start_s"] + step["end_s"]) / 2,
            row_of[step["client"]] - (0 if wide else 0.46),
            step["step"],
            ha="left" if step["step"] == "SM" else "center",
            va="center_baseline" if wide else "bottom",
            fontsize=6,
            color=("white" if step["step"] == "CB" else ON_BAR) if wide else "black",
        )


def waiting(rows: pd.DataFrame) -> Iterator[tuple[int, float, float]]:
    """Client, start and end of the times in which nothing is done for a client, s."""
    for client in sorted(set(rows["client"])):
        own = rows[rows["client"] == client]
        later = own.iloc[2:]  # SM and CF are separated by the slowest broadcast, not by a queue
        for start_s, end_s in zip(own["end_s"].iloc[1:-1], later["start_s"], strict=True):
            if end_s - start_s > 1e-3:
                yield client, start_s, end_s


def of_paradigm(name: str) -> Figure:
    """One round of three UAVs, with the names of its steps and two notes."""
    round_ = predicted(name)
    rows = steps_of(round_)
    figure = gantts([(f"{title_of(name)}: {round_.latency_s:.3f} s", round_)], WIDTH_IN)
    figure.set_size_inches(WIDTH_IN, 3.3)
    (axes,) = figure.axes
    row_of = {client: row for row, client in enumerate(sorted(set(rows["client"])))}
    waits = list(waiting(rows))
    for client, start_s, end_s in waits:
        axes.barh(row_of[client], end_s - start_s, left=start_s, color=WAITING, height=0.3)
    name_bars(axes, rows, row_of, 0.09)
    axes.set_xlim(0, AXIS_S)
    axes.set_ylim(2.6, -2.2)
    axes.tick_params(axis="y", labelsize=7)
    for (step, note), left_s in zip(NOTES[name].items(), (0.1, 2.9), strict=True):
        of_step = rows[(rows["step"] == step) & (rows["client"] == 1)]
        at = of_step.iloc[0 if left_s < 1 else 1]
        axes.annotate(
            note,
            ((at["start_s"] + at["end_s"]) / 2, -0.42 if step == "S" else -0.7),
            (left_s, -1.25),
            fontsize=6.5,
            va="bottom",
            arrowprops={"arrowstyle": "->", "linewidth": 0.7, "relpos": (0.25, 0)},
        )
    if waits:
        (legend,) = figure.legends
        handles = [handle for handle in legend.legend_handles if handle is not None]
        legend.remove()
        figure.legend(
            handles=[*handles, Patch(color=WAITING, label="waiting")],
            loc="outside lower center",
            ncols=5,
            frameon=False,
            handlelength=0.9,
        )
    return figure


def iteration() -> Figure:
    """The first local iteration of UAV 3 under SFL-PP: what computes, and what travels."""
    rows = steps_of(predicted("sfl-pp"))
    rows = rows[(rows["client"] == 3) & (rows["iteration"] == 1)]
    figure = Figure(figsize=(WIDTH_IN, 2.3), layout="constrained")
    axes = figure.add_subplot()
    edge = 0.3  # half the height of a lane
    for step in rows.to_dict("records"):
        middle_s = (step["start_s"] + step["end_s"]) / 2
        if step["step"] in COMPUTES:
            lane, colour = (0 if step["step"] == "S" else 1), STEP_COLOURS[step["step"]]
            axes.barh(
                lane,
                step["end_s"] - step["start_s"],
                left=step["start_s"],
                color=colour,
                height=2 * edge,
            )
            text = f"{COMPUTES[step['step']]}\n{step['end_s'] - step['start_s']:.2f} s"
            ink = "white" if step["step"] == "CB" else ON_BAR
            axes.text(middle_s, lane, text, ha="center", va="center", fontsize=6.5, color=ink)
            continue
        ends = (1 - edge, edge) if step["step"] == "CA" else (edge, 1 - edge)
        axes.annotate(
            "",
            (step["end_s"], ends[1]),
            (step["start_s"], ends[0]),
            arrowprops={
                "arrowstyle": "-|>",
                "linewidth": 2,
                "color": STEP_COLOURS[step["step"]],
                "shrinkA": 0,
                "shrinkB": 0,
            },
        )
        length_s = step["end_s"] - step["start_s"]
        text = f"{TRAVELS[step['step']]}\n{step['bytes'] / 1e3:.0f} kB, {length_s:.2f} s"
        left_s = {"SM": step["end_s"], "CA": step["end_s"], "SG": middle_s}[step["step"]] + 0.05
        axes.text(left_s, 0.5, text, va="center", fontsize=6.5)
    axes.set_yticks([0, 1], ["base\nstation", "UAV 3"])
    axes.set_ylim(1.45, -0.45)
    axes.set_xlim(0, 1.02 * rows["end_s"].max())
    axes.set_xlabel("Time since the start of the round (s)")
    return figure


def compared(run: tb.Run) -> Figure:
    """The last UAV of a round: payload, with frames, measured; and the causes of the difference."""
    rounds = {
        "predicted": run.predicted.rounds[0],
        "predicted_wire": run.predicted_wire.rounds[0],
        "measured": run.measured.rounds[0],
    }
    figure = Figure(figsize=(WIDTH_IN, 3.9), layout="constrained")
    whole, end, causes = figure.subplots(3, 1, height_ratios=(3, 3, 2))
    last_s = max(round_.latency_s for round_ in rounds.values())
    for row, round_ in enumerate(rounds.values()):
        rows = steps_of(round_)
        rows = rows[rows["client"] == 3]
        for axes in (whole, end):
            axes.barh(
                row,
                rows["end_s"] - rows["start_s"],
                left=rows["start_s"],
                color=rows["step"].map(STEP_COLOURS),
                height=0.7,
            )
            axes.plot([round_.latency_s] * 2, [row - 0.42, row + 0.42], color="black")
        name_bars(whole, rows[rows["end_s"] - rows["start_s"] > 0.15], {3: row}, 0)
        name_bars(end, rows.iloc[[-1]], {3: row}, 0)
        end.text(
            round_.latency_s + 0.003,
            row,
            f"{round_.latency_s:.4f} s",
            va="center",
            fontsize=7,
        )
    for axes, text in (
        (whole, f"UAV 3 in the round, {title_of(rounds['measured'].paradigm)}"),
        (end, "The end of the same round, enlarged"),
    ):
        axes.set_yticks(range(3), list(rounds))
        axes.set_ylim(2.6, -0.6)
        axes.set_title(text)
    whole.set_xlim(0, 1.02 * last_s)
    end.set_xlim(last_s - 0.3, last_s + 0.08)
    parts = run.tables["waterfall"].set_index("part")["seconds"] * 1e3
    parts = parts.drop(["payload", "computing"])
    parts = parts[parts.abs() >= 0.05]
    causes.barh(range(len(parts)), parts, color=WAITING, height=0.7)
    for row, (part, value_ms) in enumerate(parts.items()):
        causes.text(value_ms + 0.6, row, f"{value_ms:.1f} ms", va="center", fontsize=7)
        assert part in CAUSE_TITLES
    causes.set_yticks(range(len(parts)), [CAUSE_TITLES[str(part)] for part in parts.index])
    causes.set_ylim(len(parts) - 0.4, -0.6)
    causes.set_xlim(0, 1.15 * parts.max())
    causes.set_title("Causes of the difference (ms)")
    for axes in (whole, end):
        axes.set_xlabel("Time since the start of the round (s)", fontsize=7)
    return figure


def measured(folder: Path) -> tb.Run:
    """A run of the quick start in virtual time, where repeated runs measure the same times."""
    keys = {"workload.compute": "none", "emulation.clock": "virtual", "emulation.dilation": 1}
    return tb.run(tb.load(ROOT / "scenarios" / "quickstart.yaml", keys), out=folder, rounds=1)


PREDICTED: dict[str, Callable[[], Figure]] = {
    **{f"round-{name}": partial(of_paradigm, name) for name in NOTES},
    "round-iteration": iteration,
}


def write(path: Path, draw: Callable[[], Figure]) -> None:
    """Draw an SVG file that can be read with a light and with a dark theme."""
    fonts = {"svg.fonttype": "none", "font.family": "DejaVu Sans", "svg.hashsalt": path.stem}
    with mpl.rc_context(STYLE | fonts):
        file = io.StringIO()
        draw().savefig(file, format="svg", transparent=True, metadata={"Date": None})
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :].replace("#000000", "currentColor")
    svg = re.sub(r"<metadata>.*?</metadata>\s*|<!--.*?-->\s*", "", svg, flags=re.S)
    svg = svg.replace("'DejaVu Sans'", "Helvetica, Arial, 'DejaVu Sans', sans-serif")
    # Wider than a phone, so that it fills the column of a page.
    svg = re.sub(r' width="[^"]*" height="[^"]*"', ' width="760"', svg, count=1)
    svg = svg.replace(">", f">\n{THEMES}", 1)
    path.write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n", encoding="utf-8")
    print(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=ROOT / "docs")
    folder = parser.parse_args().folder
    for name, draw in PREDICTED.items():
        write(folder / f"{name}.svg", draw)
    with tempfile.TemporaryDirectory(prefix="round-") as out:
        run = measured(Path(out) / "run")
        write(folder / "round-compared.svg", partial(compared, run))


if __name__ == "__main__":
    main()
