# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What the functions of the Python interface return: sentences, tables and figures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.reporting.formatting import markdown_table, plain
from testbed.core.errors import InputError
from testbed.core.words import not_one_of

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

MOST_ROWS = 20
"""Most rows of a table in a notebook."""


@dataclass(frozen=True, repr=False)
class StudyResult:
    """The result of a study: its verdict in sentences, its tables, and its figures.

    A notebook shows the sentences and the tables.
    """

    title: str
    """What was studied, for example `cross-check of quickstart`."""
    sentences: Sequence[str]
    """The verdict, as the page and the command state it."""
    tables: "Mapping[str, pd.DataFrame]"
    """Tidy tables by name; the first one is the main table."""
    figures: "Mapping[str, Callable[[], Figure | None]]" = field(default_factory=dict)
    """Functions that draw the figures of `plot`, by name."""
    found: Any = None
    """The object from which sentences and tables were made; its class depends on the study."""
    folder: Path | None = None
    """The output folder; None: nothing was written."""
    to_markdown: "Callable[[], str] | None" = field(default=None, repr=False)
    """Writes `markdown`; None: it contains the main table."""

    def frame(self, name: str | None = None) -> "pd.DataFrame":
        """A table.

        Args:
            name: One of the names in `tables`. Default: the main table.

        Raises:
            InputError: There is no such table.
        """
        return self.tables[chosen(name, self.tables, "table")]

    def plot(self, name: str | None = None) -> "Figure | None":
        """Draw a figure for a publication, with matplotlib.

        Args:
            name: One of the names in `figures`. Default: the main figure.

        Returns:
            The figure; None if its data are empty.

        Raises:
            InputError: There is no such figure.
        """
        return shown(self.figures[chosen(name, self.figures, "figure")]())

    def markdown(self) -> str:
        """The main results as tables in Markdown; those of a campaign with confidence intervals."""
        if self.to_markdown is not None:
            return self.to_markdown()
        table = self.frame()
        return markdown_table(
            [str(name) for name in table],
            [[plain(value) for value in row] for row in table.itertuples(index=False)],
        )

    def __repr__(self) -> str:
        return "\n".join([f"<{self.title}>", *self.sentences])

    def _repr_html_(self) -> str:
        """The sentences and the tables, for a notebook."""
        parts = [f"<p>{escape(sentence)}</p>" for sentence in self.sentences]
        for name, table in self.tables.items():
            if len(table):
                shown = table.to_html(index=False, max_rows=MOST_ROWS)
                parts.append(f"<h4>{escape(name)}</h4>{shown}")
        return "".join(parts)


def shown(figure: "Figure | None") -> "Figure | None":
    """The figure, which a notebook also displays without `%matplotlib inline`."""
    if figure is not None:

        def png() -> bytes:
            with BytesIO() as file:
                figure.savefig(file, format="png")
                return file.getvalue()

        figure._repr_png_ = png  # type: ignore[attr-defined]
    return figure


def figures_of(charts: Mapping[str, Any]) -> "dict[str, Callable[[], Figure | None]]":
    """The functions that draw the charts of a page, see `orchestrator.reporting.xy`."""

    def draw(chart: Mapping[str, Any]) -> "Figure":
        from orchestrator.reporting.xy_plots import figure  # imports matplotlib

        return figure(chart)

    return {name: partial(draw, chart) for name, chart in charts.items()}


def chosen(name: str | None, known: Mapping[str, Any], what: str) -> str:
    """The name, or the first of the known ones.

    Raises:
        InputError: There is no such name.
    """
    if not known:
        raise InputError(f"`name`: this result has no {what}")
    if name is None:
        return next(iter(known))
    if name not in known:
        raise InputError(f"`name`: {not_one_of(str(name), list(known))}")
    return name
