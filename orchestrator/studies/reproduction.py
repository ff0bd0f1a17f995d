# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Results of a reproduction of the paper: findings, figures and tables, as text and as a page."""

import base64
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from orchestrator.records.manifest import environment
from orchestrator.reporting.formatting import percent
from orchestrator.reporting.pages import render_page
from testbed.system.files import write_json, write_whole


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
            f"paper: {self.paper}; here: {self.ours}{deviation}",
            f"agrees if {self.criterion}",
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
    figures: Sequence[str] = ()
    """Stems of the figures' files in the output folder."""
    caption: str = ""
    """Explanation of the figures."""


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
            "| where | what | paper | here | deviation | agrees | if | note |",
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
        agree = sum(finding.agrees for finding in self.findings)
        return Group(
            *self.findings,
            f"{agree} of {len(self.findings)} findings agree with the paper ({self.settings})",
        )

    def write(self, folder: Path) -> None:
        """Write `summary.json`, `summary.md`, and `report.html` with embedded figures."""
        write_json(folder / "summary.json", self.to_json())
        markdown, page = self.markdown(), self._page(folder)
        write_whole(folder / "summary.md", lambda part: part.write_text(markdown, "utf-8"))
        write_whole(folder / "report.html", lambda part: part.write_text(page, "utf-8"))

    def _page(self, folder: Path) -> str:
        images = {
            stem: base64.b64encode((folder / f"{stem}.png").read_bytes()).decode()
            for section in self.sections
            for stem in section.figures
        }
        return render_page(
            "reproduction.html",
            ("charts", "frame", "plain"),
            {},
            sections=self.sections,
            images=images,
            findings=self.findings,
            agree=sum(finding.agrees for finding in self.findings),
            settings=self.settings,
            environment=environment(),
        )
