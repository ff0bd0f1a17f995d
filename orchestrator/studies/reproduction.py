# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Results of a reproduction of the paper: findings, figures and tables, as text and as a page."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from orchestrator.records.manifest import provenance
from orchestrator.reporting.charts import steps_of
from orchestrator.reporting.formatting import percent
from orchestrator.reporting.index import save_page
from orchestrator.reporting.pages import render_page
from orchestrator.reporting.plots import write_plot
from testbed.system.files import write_json, write_whole

PAPER = {
    "title": "Communication-Pipelined Split Federated Learning for Foundation Model Fine-Tuning in "
    "UAV Networks",
    "authors": "Zizhen Zhou, Ying-Chang Liang, Yanyu Cheng and Wei Yang Bryan Lim",
}
"""The reproduced paper."""


@dataclass(frozen=True)
class Finding:
    """A claim of the paper, our result, and whether it agrees."""

    where: str
    statement: str
    paper: str
    ours: str
    criterion: str
    """Condition for agreement."""
    agrees: bool
    deviation: float | None = None
    """(ours - paper) / paper if both are numbers."""
    note: str = ""

    @property
    def verdict(self) -> str:
        """Whether the result agrees, as a word."""
        return "yes" if self.agrees else "NO"

    @property
    def deviation_text(self) -> str:
        """The deviation in per cent; empty if there is none."""
        return "" if self.deviation is None else percent(self.deviation)

    def __rich__(self) -> RenderableType:
        deviation = f" ({self.deviation_text})" if self.deviation is not None else ""
        lines = [
            f"paper's claim: {self.paper}; our result: {self.ours}{deviation}",
            f"acceptance criterion: {self.criterion}",
            *([self.note] if self.note else []),
        ]
        head = Text.assemble(
            f"{self.where:7} ",
            (f"{self.verdict:4}", "green" if self.agrees else "bold red"),
            self.statement,
        )
        return Group(head, *(Padding(Text(line), (0, 0, 0, 12), expand=False) for line in lines))


@dataclass(frozen=True)
class Section:
    """A table or figure of the paper, reproduced."""

    name: str
    title: str
    findings: Sequence[Finding]
    table: pd.DataFrame
    """The drawn values, or all values."""
    figures: Mapping[str, Callable[[], Figure]] = field(default_factory=dict)
    """By stem of the figure's files: a function that draws it."""
    caption: str = ""
    """Explanation of the charts."""
    charts: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    """By name: the charts of the page, see `orchestrator.reporting.xy`."""
    timelines: Sequence[dict[str, Any]] = ()
    """The Gantt charts of the page, see `orchestrator.reporting.charts.gantt_of`; at most one
    section has them."""

    @property
    def short_title(self) -> str:
        """The title's words before its colon, e.g. `Figure 4`."""
        return self.title.partition(":")[0]


@dataclass(frozen=True)
class Reproduction:
    """All reproduced tables and figures, in the paper's order."""

    sections: Sequence[Section]
    settings: str
    """Numbers of rounds and seeds that means are over."""

    @property
    def findings(self) -> list[Finding]:
        """The findings of all sections."""
        return [finding for section in self.sections for finding in section.findings]

    def to_json(self) -> list[dict[str, Any]]:
        """One JSON object per finding."""
        return [asdict(finding) for finding in self.findings]

    def markdown(self) -> str:
        """The findings as a markdown table."""
        lines = [
            "| where | statement | paper's claim | our result | deviation | holds "
            "| acceptance criterion | note |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for finding in self.findings:
            cells = (
                finding.where,
                finding.statement,
                finding.paper,
                finding.ours,
                finding.deviation_text,
                finding.verdict,
                finding.criterion,
                finding.note,
            )
            lines.append(f"| {' | '.join(cells)} |")
        return "\n".join(lines) + "\n"

    def __rich__(self) -> RenderableType:
        return Group(*self.findings, f"{self.verdict()} ({self.settings})")

    def verdict(self) -> str:
        """The number of statements that hold, and the others, in one sentence."""
        failed = [f"{f.where}: {f.statement}" for f in self.findings if not f.agrees]
        holding, total = len(self.findings) - len(failed), len(self.findings)
        exceptions = f" The others do not: {'; '.join(failed)}." if failed else ""
        return f"{holding} of {total} statements of the paper hold here.{exceptions}"

    def write(self, folder: Path) -> None:
        """Write the figures, `summary.json`, `summary.md`, and `report.html`."""
        for section in self.sections:
            for stem, draw in section.figures.items():
                write_plot(folder / stem, draw)
        write_json(folder / "summary.json", self.to_json())
        markdown, page = self.markdown(), self._page()
        write_whole(folder / "summary.md", lambda part: part.write_text(markdown, "utf-8"))
        save_page(folder / "report.html", page)

    def _page(self) -> str:
        findings = self.findings
        return render_page(
            "reproduction.html",
            ("charts", "frame", "xy", "gantts", "tables", "plain"),
            {
                "steps": steps_of(),
                "timelines": [one for section in self.sections for one in section.timelines],
                "charts": {
                    name: chart
                    for section in self.sections
                    for name, chart in section.charts.items()
                },
            },
            paper=PAPER,
            sections=self.sections,
            short_titles={section.name: section.short_title for section in self.sections},
            findings=findings,
            agree=sum(finding.agrees for finding in findings),
            settings=self.settings,
            environment=provenance(),
        )
