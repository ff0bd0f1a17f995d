# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Which of the paper's statements remain true with LTE or 5G NR in place of Shannon's rates.

The points of `campaigns/paper.yaml` are predicted with each radio of `radios`, on the same channels
with the same seeds. Every statement of `orchestrator.studies.radio_statements` gets one verdict per
radio. With a fit, LTE on the fitted channel is compared with Shannon's rates on the paper's one.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ns3_scenarios.trace import both_ways
from orchestrator.campaigning.cluster import POOL, Progress
from orchestrator.campaigning.spec import Campaign, Cell, cells, narrowed
from orchestrator.engine.lte import Cellular, assigned
from orchestrator.engine.lte_tables import MCS_OF_CQI
from orchestrator.engine.plan import fixed_allocation
from orchestrator.engine.radio import radio_access
from orchestrator.records.manifest import provenance
from orchestrator.reporting import plots
from orchestrator.reporting.charts import steps_of
from orchestrator.reporting.formatting import number
from orchestrator.reporting.index import save_page
from orchestrator.reporting.pages import render_page
from orchestrator.rounds.loop import LONGEST_OUTAGE_S, TOO_WEAK
from orchestrator.scenario.channel import channel_key, open_source
from orchestrator.scenario.loading import validate
from orchestrator.scenario.schema import Scenario
from orchestrator.studies.paper_figures import (
    REFERENCE,
    Outcomes,
    answers_of,
    comparison_charts,
    gantts_of,
    make_folder,
    named,
    place_of,
)
from orchestrator.studies.radio_statements import FIGURES, STATEMENTS, Statement, Verdict
from testbed.core.errors import InputError
from testbed.core.timeline import CA, CM, SG, SM, Round, Timeline
from testbed.host.dask_cluster import Cluster
from testbed.system.files import write_csv, write_json

SHANNON, LTE, NR, FITTED = "shannon", "lte", "nr", "fitted"
TITLES = {SHANNON: "Shannon", LTE: "LTE", NR: "5G NR", FITTED: "LTE, fitted"}
ACCESS: dict[str, dict[str, Any]] = {
    LTE: {"radio.access": "lte"},
    NR: {
        "radio.access": "nr",
        "radio.nr.duplex": "tdd",
        "radio.uplink_bandwidth_hz": 100e6,
        "radio.downlink_bandwidth_hz": 100e6,
    },
}
"""By radio that is compared with Shannon's rates: its scenario keys."""
VARIANTS: dict[str, dict[str, dict[str, Any]]] = {
    LTE: {"scheduler shares": ACCESS[LTE] | {"radio.lte.scheduler": "shares"}},
    NR: {
        "20 MHz FDD": {"radio.access": "nr"},
        "scheduler shares": ACCESS[NR] | {"radio.nr.scheduler": "shares"},
    },
}
"""By radio and name: scenario keys of further cells, at the paper's signal."""
ROUNDS = 40
"""Rounds per mean; fewer than for the figures alone, since there are many radios."""
SEEDS = (1, 2, 3)
LEAST_BPS = 1e5
"""Mean rate of a link below which a UAV counts as out of range on a fitted channel: the paper's
rounds would take hours."""
FACT_SLOTS = 600
"""Number of slots from the start of the flight that `_facts` looks at."""
FACTS = {
    "radio": "Radio",
    "slowest_uplink_mbps": "Slowest uplink (Mbit/s)",
    "fastest_uplink_mbps": "Fastest uplink (Mbit/s)",
    "highest_mcs_percent": "Uplink slots at MCS 28 (%)",
    "uplink_used_percent": "Uplink in use (%)",
    "downlink_used_percent": "Downlink in use (%)",
}
"""By column of `Verdicts.facts`: its title."""
MARKS: dict[Verdict, tuple[str, str]] = {
    "holds": ("✓", "good"),
    "weaker": ("≈", "unsure"),
    "fails": ("✕", "bad"),
    "not judged": ("–", "unsure"),
}
"""By verdict: its sign, and its colour on the page."""


def radios(noise_dbm_per_mhz: float, access: str = LTE) -> dict[str, dict[str, Any]]:
    """The compared radios: by name, the scenario keys that they set.

    Less signal is more noise for both radios. Fading is constant over a slot, not over a TTI, which
    takes a hundredth of the time.

    Args:
        noise_dbm_per_mhz: Noise without a loss of signal.
        access: The radio that is compared with Shannon's rates, a key of `ACCESS`.
    """

    def less(decibels: float) -> dict[str, Any]:
        return {"radio.noise_dbm_per_mhz": noise_dbm_per_mhz + decibels}

    fading = {"radio.fading": "rayleigh", "radio.fading_block": "slot"}
    conditions = {
        "": {},
        ", 10 dB less": less(10),
        ", 20 dB less": less(20),
        ", Rayleigh fading": fading,
        ", Rayleigh fading, 20 dB less": fading | less(20),
    }
    made = {
        name + condition: keys | more
        for name, keys in ((SHANNON, {}), (access, ACCESS[access]))
        for condition, more in conditions.items()
    }
    return made | {f"{access}, {name}": keys for name, keys in VARIANTS[access].items()}


def fitted_radios(fit: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Shannon's rates and LTE on a fitted channel: by name, the scenario keys that they set.

    Args:
        fit: The content of the file of the fit: `channel`, and optionally `link` with
            `implementation_margin_db` and `highest_snr_db`, each of which may be null.

    Raises:
        InputError: `link` is no object.
    """
    link = fit.get("link") or {}
    if not isinstance(link, Mapping):
        raise InputError("--fit: link: must be an object with implementation_margin_db and others")
    keys = ACCESS[LTE] | {"radio.channel": "fitted", "radio.fitted": fit["channel"]}
    for name in ("implementation_margin_db", "highest_snr_db"):
        if link.get(name) is not None:
            keys[f"radio.lte.{name}"] = link[name]
    return {SHANNON: {}, FITTED: keys}


def condition_of(radio: str) -> str:
    """The signal of a radio in words: its name without `shannon`, `lte` or `nr`."""
    if radio == FITTED:
        return "fitted channel"
    return radio.partition(", ")[2] or "paper's signal"


@dataclass(frozen=True)
class Judged:
    """A statement with its value and verdict for each radio."""

    statement: Statement
    values: dict[str, float]
    """By radio; NaN: there is none."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """By radio: a sentence about channels on which rounds do not end."""

    @property
    def rule(self) -> str:
        """The thresholds in words."""
        return self.statement.rule(self.values[SHANNON])

    def verdict(self, radio: str) -> Verdict:
        """The verdict for a radio."""
        return self.statement.judge(self.values[radio], self.values[SHANNON])

    def to_json(self) -> list[dict[str, Any]]:
        """One JSON object per radio."""
        return [
            {
                "figure": self.statement.figure,
                "statement": self.statement.text,
                "radio": radio,
                "verdict": self.verdict(radio),
                "value": None if np.isnan(value) else value,
                "paper": self.statement.paper,
                **({"note": self.notes[radio]} if radio in self.notes else {}),
            }
            for radio, value in self.values.items()
        ]

    def shown(self, radio: str) -> str:
        """The value for a radio, rounded."""
        return self.statement.shown(self.values[radio])

    def cell(self, radio: str) -> str:
        """Verdict and value, e.g. `✓ 31.5`."""
        return f"{MARKS[self.verdict(radio)][0]} {self.shown(radio)}".rstrip()

    def __rich__(self) -> RenderableType:
        said = self.statement
        lines = [
            f"paper: {said.paper}; here: {said.quantity}; {self.rule}",
            *(
                f"{TITLES[name]}: "
                + "; ".join(
                    f"{condition_of(radio)} {self.cell(radio)}"
                    for radio in self.values
                    if radio.startswith(name)
                )
                for name in titles_of(self.values)
            ),
        ]
        head = f"{said.figure}  {said.text}"
        return Group(
            Text(head, "bold"), *(Padding(Text(line), (0, 0, 0, 6), expand=False) for line in lines)
        )


def titles_of(radios: Iterable[str]) -> dict[str, str]:
    """The titles of those that are among the radios, by name."""
    return {name: title for name, title in TITLES.items() if name in radios}


@dataclass(frozen=True)
class Verdicts:
    """All statements with all radios."""

    judged: Sequence[Judged]
    facts: pd.DataFrame
    """One row per radio; see `_facts`."""
    settings: str
    """Numbers of rounds and seeds that means are over."""
    fitted: Scenario | None = None
    """The scenario of figure 3 on the fitted channel, if there is one."""

    @property
    def main(self) -> str:
        """The radio that is compared with Shannon's rates first."""
        return next(name for name in reversed(TITLES) if name in self.radios)

    @property
    def name(self) -> str:
        """The words for that radio, without its channel."""
        return "LTE" if self.fitted is not None else TITLES[self.main]

    @property
    def marks(self) -> dict[Verdict, tuple[str, str]]:
        """Signs and colours of the verdicts; `not judged` is among them only if it occurs."""
        found = {each.verdict(radio) for each in self.judged for radio in self.radios}
        return {v: mark for v, mark in MARKS.items() if v != "not judged" or v in found}

    @property
    def notes(self) -> list[str]:
        """Sentences about channels on which rounds do not end."""
        return list(dict.fromkeys(note for each in self.judged for note in each.notes.values()))

    @property
    def radios(self) -> list[str]:
        """The names of the radios."""
        return self.facts["radio"].to_list()

    def counts(self, radio: str) -> Counter[Verdict]:
        """Number of statements by verdict."""
        return Counter(each.verdict(radio) for each in self.judged)

    def headline(self) -> str:
        """What came out, in one sentence."""
        main, weak = self.main, f"{self.main}, 20 dB less"
        cell, shannon, total = self.counts(main), self.counts(SHANNON), len(self.judged)
        where = "" if self.fitted is None else " on the fitted channel"
        none = f", and {cell['not judged']} cannot be judged" if cell["not judged"] else ""
        said = (
            f"Under {self.name}{where}, {cell['holds']} of the paper's {total} statements hold, "
            f"{cell['weaker']} are weaker and {cell['fails']} fail{none}; with Shannon's rates, "
            f"{shannon['holds']} hold"
        )
        found = {e.statement.text: e for e in self.judged if e.statement.figure == "fig4"}
        if found and found[GAIN].verdict(main) != "not judged":
            gain, order = (found[text].shown for text in (GAIN, ORDER))
            with_less = f" and {gain(weak)} % with 20 dB less signal" if weak in self.radios else ""
            said += (
                f": CPSFL's latency is {gain(main)} % below PipeSFL's (Shannon: {gain(SHANNON)} %)"
                f"{with_less}, and priority scheduling saves {order(main)} % "
                f"(Shannon: {order(SHANNON)} %)"
            )
        return f"{said}."

    def table(self) -> pd.DataFrame:
        """One row per statement: verdict and value for each radio."""
        return pd.DataFrame(
            {
                "figure": each.statement.figure,
                "statement": each.statement.text,
                "paper": each.statement.paper,
                "quantity": each.statement.quantity,
                "thresholds": each.rule,
                **{radio: each.cell(radio) for radio in self.radios},
            }
            for each in self.judged
        )

    def to_json(self) -> list[dict[str, Any]]:
        """One JSON object per statement and radio."""
        return [row for each in self.judged for row in each.to_json()]

    def __rich__(self) -> RenderableType:
        facts = Table(box=None, pad_edge=False)
        for column in FACTS.values():
            facts.add_column(column, justify="left" if column == FACTS["radio"] else "right")
        for row in self.facts.to_dict("records"):
            facts.add_row(row["radio"], *(number(row[name]) for name in list(FACTS)[1:]))
        signs = ", ".join(f"{mark} {verdict}" for verdict, (mark, _) in self.marks.items())
        said = f"{signs}. {self.headline()} ({self.settings})"
        return Group(*self.judged, "", facts, "", *self.notes, said)


GAIN = "CPSFL's latency is more than 30 % below PipeSFL's at u = 2"
ORDER = "Priority scheduling lowers CPSFL's latency"
"""The statements on figure 4 whose values are in the sentence on top of the page."""


def run(
    names: Sequence[str],
    out: Path,
    paper: Campaign,
    *,
    seeds: Sequence[int] = SEEDS,
    rounds: int = ROUNDS,
    access: str = LTE,
    fit: Mapping[str, Any] | None = None,
    cluster: Cluster = POOL,
    progress: Progress = lambda done, total: None,
) -> Verdicts:
    """Judge the paper's statements with each radio, and write the page.

    Writes `verdicts.json`, `verdicts.csv`, `radios.csv`, `report.html`, and for each figure a CSV,
    and a PNG and a PDF with Shannon's rates and with the other radio. A channel on which a UAV is
    out of range with a radio is omitted from the means of a figure, and a sentence on the page
    reports it.

    Args:
        names: Names from `FIGURES`, or `all`.
        out: Output folder, created if missing.
        paper: The campaign `campaigns/paper.yaml`.
        seeds: Seeds of the channel.
        rounds: Number of rounds per mean.
        access: The radio that is compared with Shannon's rates, a key of `ACCESS`.
        fit: The content of the file of a fitted channel, for `fitted_radios`; None: `radios`.
        cluster: Workers.
        progress: Called with the number of finished points and of all points.

    Raises:
        InputError: A name is unknown, the fit is not valid, or the folder cannot be created.
        RunError: A point failed.
    """
    asked = [figure for figure in FIGURES if figure in named(names, FIGURES)]
    base = validate(cast("dict[str, Any]", paper.scenario), paper.name)
    compared = fitted_radios(fit) if fit is not None else None
    compared = compared or radios(base.radio.noise_dbm_per_mhz, access)
    placed = {r: _cells(paper, keys, asked, seeds, rounds) for r, keys in compared.items()}
    make_folder(out)
    too_weak = {} if fit is None else _too_slow(placed[FITTED])
    lost = {radio: _lost(of_radio, too_weak) for radio, of_radio in placed.items()}
    every_cell = [
        cell
        for radio, of_radio in placed.items()
        for cell in of_radio
        if cell.seed not in lost[radio].get(cell.study, ())
    ]
    answers = answers_of(every_cell, paper.seed, cluster, progress, too_weak)
    lost = {radio: _lost(of_radio, too_weak) for radio, of_radio in placed.items()}
    rows = pd.DataFrame(
        answers[cell.point.id].row | place_of(paper.studies[cell.study], cell) | {"radio": radio}
        for radio, of_radio in placed.items()
        for cell in of_radio
        if cell.study != "fig3" and cell.seed not in lost[radio].get(cell.study, ())
    )
    round_cells = {r: [c for c in of_radio if c.study == "fig3"] for r, of_radio in placed.items()}
    played = {
        radio: [answers[cell.point.id].first_round() for cell in of_radio]
        for radio, of_radio in round_cells.items()
        if "fig3" not in lost[radio]
    }
    seen: dict[str, dict[str, Any]] = {"fig3": played}
    for figure in asked:
        if figure != "fig3":
            study = paper.studies[figure]
            seen[figure] = {
                radio: Outcomes(figure, study, rows[rows["radio"] == radio])
                for radio in placed
                if len(lost[radio].get(figure, ())) < len(seeds)
            }
    judged = [
        Judged(
            s,
            {r: s.measure(seen[s.figure][r]) if r in seen[s.figure] else np.nan for r in placed},
            {
                radio: _note(paper, s.figure, radio, lost[radio][s.figure], len(seeds))
                for radio in placed
                if s.figure in lost[radio]
            },
        )
        for s in STATEMENTS
        if s.figure in asked
    ]
    facts = pd.DataFrame(
        {"radio": radio} | _facts(round_cells[radio][0].point.scenario, played.get(radio, ()))
        for radio in placed
    )
    how_many = f"{rounds:,} rounds for each of {len(seeds)} channels; figure 3: one round"
    how_many = how_many if asked != ["fig3"] else "one round of one channel"
    fitted = None if fit is None else round_cells[FITTED][0].point.scenario
    made = Verdicts(judged, facts, how_many, fitted)
    write_json(out / "verdicts.json", made.to_json())
    write_csv(out / "verdicts.csv", made.table())
    write_csv(out / "radios.csv", facts)
    sections = [_section(out, paper, figure, seen[figure], made) for figure in asked]
    write_page(out, made, sections)
    return made


def _too_slow(of_radio: Sequence[Cell]) -> dict[str, str]:
    """By point ID: the reason why rounds of a point would take hours, if they would."""
    found: dict[Hashable, str | None] = {}
    reasons = {}
    for cell in of_radio:
        scenario = cell.point.scenario
        key = channel_key(scenario), tuple(scenario.fleet.tx_power_w)
        if key not in found:
            found[key] = _slow_link(scenario)
        reasons[cell.point.id] = found[key]
    return {point: reason for point, reason in reasons.items() if reason is not None}


def _slow_link(scenario: Scenario) -> str | None:
    """In words: the UAVs whose links carry less than `LEAST_BPS`; None: there are none."""
    slots = round(LONGEST_OUTAGE_S / scenario.slot_s)
    with open_source(scenario, None) as source:
        trace = source.trace(slots).first(slots)
    radio = radio_access(scenario, trace)
    rates = radio.link_rates(fixed_allocation(scenario), trace.values, in_turns=True, active=1)
    for name, bps in (("uplink", rates.uplink), ("downlink", rates.gradient)):
        if (slow := np.flatnonzero(bps.mean(axis=1) < LEAST_BPS) + 1).size:
            return (
                f"the {name} of UAV {', '.join(map(str, slow))} carries less than "
                f"{LEAST_BPS / 1e6:g} Mbit/s on average in the first {LONGEST_OUTAGE_S:g} s"
            )
    return None


def _lost(of_radio: Sequence[Cell], too_weak: Mapping[str, str]) -> dict[str, dict[int, str]]:
    """By study and seed: why rounds do not end on this channel."""
    lost: dict[str, dict[int, str]] = {}
    for cell in of_radio:
        if cell.point.id in too_weak:
            lost.setdefault(cell.study, {}).setdefault(cell.seed, too_weak[cell.point.id])
    return lost


def _note(paper: Campaign, figure: str, radio: str, lost: Mapping[int, str], channels: int) -> str:
    """A sentence about the channels on which rounds of a figure do not end."""
    channels = 1 if figure == "fig3" else channels
    reason = next(iter(lost.values())).removeprefix("radio: ").removesuffix(f": {TOO_WEAK}")
    left = channels - len(lost)
    rest = f"the means are over the other {left}" if left else "its statements cannot be judged"
    return (
        f"Figure {figure[-1]}, {TITLES.get(radio, radio)}: on {len(lost)} of {channels} channels "
        f"a UAV is out of range, so that rounds would take hours or never end (e.g. {reason}); "
        f"{rest}."
    )


def _cells(
    paper: Campaign, keys: dict[str, Any], figures: Sequence[str], seeds: Sequence[int], rounds: int
) -> list[Cell]:
    """The cells of some figures with a radio, and those of figure 3 in any case."""
    campaign = paper.model_copy(update={"set": paper.set | keys})
    single = cells(narrowed(campaign, studies=["fig3"], seeds=seeds))
    no_steps = campaign.model_copy(update={"steps_rounds": 0})
    others = [figure for figure in figures if figure != "fig3"]
    return single + cells(narrowed(no_steps, studies=others, seeds=seeds, rounds=rounds))


def _facts(scenario: Scenario, rounds: Sequence[Round]) -> dict[str, float]:
    """What explains the verdicts of a radio.

    Rates are means over the first minute of the flight while all UAVs send. Parts of the round are
    those of CPSFL in figure 3 in which at least one UAV has a transfer in that direction.

    Args:
        scenario: The scenario of figure 3.
        rounds: Its rounds.
    """
    with open_source(scenario, None) as source:
        trace = source.trace(FACT_SLOTS).first(FACT_SLOTS)
    radio = radio_access(scenario, trace)
    rates = radio.link_rates(fixed_allocation(scenario), trace.values, in_turns=True)
    mbps = rates.uplink.mean(axis=1) / 1e6
    top = np.nan
    if isinstance(radio, Cellular):
        up, _ = both_ways(trace.values)
        if (fading := getattr(trace.values, "fading", None)) is not None:
            up = up * fading[0, ..., 0]  # one block per slot
        clients = np.arange(trace.uavs)
        blocks = assigned(fixed_allocation(scenario).beta, radio.blocks[0])
        if radio.is_shared:
            blocks = np.full(trace.uavs, radio.divided(0, trace.uavs)[0][0])
        schemes = radio.steps[0].mcs[radio.use(0, clients, blocks, up)[1]]
        top = 100 * float((schemes == MCS_OF_CQI["64QAM"][-1]).mean())
    cpsfl = next((round_ for round_ in rounds if round_.paradigm == "cpsfl"), None)
    return {
        "slowest_uplink_mbps": float(mbps.min()),
        "fastest_uplink_mbps": float(mbps.max()),
        "highest_mcs_percent": top,
        "uplink_used_percent": 100 * _used(cpsfl, (CA, CM)),
        "downlink_used_percent": 100 * _used(cpsfl, (SM, SG)),
    }


def _used(round_: Round | None, steps: Sequence[int]) -> float:
    """The part of a round in which one of these steps is under way; NaN without a round."""
    if round_ is None:
        return np.nan
    spans = np.sort(round_.spans[np.isin(round_.spans["step"], steps)], order="start_s")
    ends = np.maximum.accumulate(spans["end_s"])
    begins = np.maximum(spans["start_s"], np.concatenate([[round_.start_s], ends[:-1]]))
    return float((ends - np.minimum(begins, ends)).sum() / round_.latency_s)


# --- the page ------------------------------------------------------------------------------------


def _section(
    out: Path, paper: Campaign, figure: str, seen: dict[str, Any], made: Verdicts
) -> dict[str, Any]:
    """A figure's files, and what the page says of it."""
    study = paper.studies[figure]
    charts: dict[str, Any] = {}
    gantts: list[dict[str, Any]] = []
    if figure == "fig3":
        timelines = {radio: Timeline(rounds) for radio, rounds in seen.items()}
        tables = {
            radio: timeline.frame().drop(columns="round") for radio, timeline in timelines.items()
        }
        for radio, title in titles_of(seen).items():
            draw = partial(plots.timelines, timelines[radio])
            plots.write_plot(out / f"{figure}_{radio}", draw)
            gantts += gantts_of(seen[radio], f", {title}")
        savings = None
    else:
        tables = {radio: outcomes.table() for radio, outcomes in seen.items()}
        label = study.axes[study.plot[0].x].label
        for radio in titles_of(seen):
            draw = partial(plots.comparison, tables[radio], label, REFERENCE)
            plots.write_plot(out / f"{figure}_{radio}", draw)
            charts[radio] = comparison_charts(f"{figure}-{radio}", tables[radio], label)
        savings = {
            "x_label": label,
            "ticks": seen[SHANNON].ticks,
            "rows": {r: 100 * o.savings("pipesfl").mean(axis=1) for r, o in seen.items()},
        }
    table = pd.concat([t.assign(radio=radio) for radio, t in tables.items()])
    write_csv(out / f"{figure}.csv", table[["radio", *table.columns.drop("radio")]])
    return {
        "name": figure,
        "title": f"Figure {figure[-1]}: {study.title}",
        "charts": charts,
        "timelines": gantts,
        "radios": list(titles_of(seen)),
        "judged": [each for each in made.judged if each.statement.figure == figure],
        "savings": savings,
    }


def write_page(out: Path, made: Verdicts, sections: Sequence[dict[str, Any]]) -> None:
    """Write `report.html`.

    Args:
        out: The folder.
        made: Statements and facts.
        sections: One per figure: `name`, `title`, `radios` (those with files), `charts` (by radio),
            `timelines` (as in `reproduction.Section`), `judged` and `savings` (None, or `x_label`,
            `ticks` and, by radio, `rows`).
    """
    facts = {row["radio"]: row for row in made.facts.to_dict("records")}
    groups: dict[str, list[str]] = {}
    for radio in made.radios:
        groups.setdefault(condition_of(radio), []).append(radio)
    page = render_page(
        "radio.html",
        ("charts", "frame", "xy", "gantts", "tables", "plain"),
        {
            "steps": steps_of(),
            "timelines": [one for section in sections for one in section["timelines"]],
            "charts": {
                name: chart
                for section in sections
                for of_radio in section["charts"].values()
                for name, chart in of_radio.items()
            },
        },
        made=made,
        sections=sections,
        titles=titles_of(made.radios),
        groups=groups,
        fact_titles=FACTS,
        facts=facts,
        ratio=lambda radio: (
            facts[radio]["fastest_uplink_mbps"] / facts[radio]["slowest_uplink_mbps"]
        ),
        counts={radio: made.counts(radio) for radio in made.radios},
        marks=made.marks,
        environment=provenance(),
    )
    save_page(out / "report.html", page)
