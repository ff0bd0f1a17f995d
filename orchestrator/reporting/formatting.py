# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Formats numbers and texts for pages and plots."""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

NOTHING = "–"
PLACE_OF_LINKS = "<!-- pages above -->"
"""Where a page has its links to the pages above it."""
LEAST_PERCENT = 1e-4
"""Smallest percentage that is printed as a number."""


def _known(value: float | None) -> bool:
    return value is not None and bool(np.isfinite(value))


def seconds(value: float | None) -> str:
    """Format seconds: `12.345 s`."""
    return _signed(f"{value:,.3f} s") if _known(value) else NOTHING


def milliseconds(value: float | None) -> str:
    """Seconds as signed milliseconds: `+1.2 ms`, with a true minus; three decimals below 1 ms."""
    if value is None or not _known(value):
        return NOTHING
    ms = value * 1e3
    return _signed(f"{ms:+,.{3 if abs(ms) < 1 else 2 if abs(ms) < 10 else 1}f} ms")


def in_ms(value: float | None) -> str:
    """Format seconds as signed milliseconds without the unit, for columns with a unit."""
    return milliseconds(value).removesuffix(" ms")


def rounded(value: float) -> str:
    """Format a positive number for a sentence, with two or more digits: `0.12`, `1.0`, `12`."""
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def listed(items: Iterable[str]) -> str:
    """Join words: `a, b and c`."""
    *most, last = [*items]
    return f"{', '.join(most)} and {last}" if most else last


def equal_curves(groups: Iterable[Iterable[str]], within: float) -> str:
    """A sentence on curves that cannot be distinguished, by name; empty if there are none."""
    lists = [", ".join(names) for names in groups]
    return f"Curves within {100 * within:g} % of each other: {'; '.join(lists)}." if lists else ""


def sentence(text: str) -> str:
    """Add a full stop, and a capital letter unless the text begins with the name of a key."""
    if not text:
        return ""
    is_key = re.match(r"[a-z_]+[._][a-z]", text)
    return f"{text if is_key else text[:1].upper() + text[1:]}."


def percent(value: float | None, sign: bool = True) -> str:
    """A fraction as per cent with two significant digits: `+0.12 %`, with a true minus.

    Percentages from 100 keep all digits before the point; less than 0.0001 % is not resolved.
    """
    if value is None or not _known(value):
        return NOTHING
    per_cent = float(f"{100 * value:.1e}")
    if abs(per_cent) < LEAST_PERCENT:
        return "0 %" if not value else f"< {LEAST_PERCENT:.4f} %"
    digits = max(0, 1 - math.floor(math.log10(abs(per_cent))))
    return _signed(f"{100 * value:{'+' if sign else ''},.{digits}f} %")


def _signed(text: str) -> str:
    if not re.search("[1-9]", text):
        text = text.lstrip("+-")
    return text.replace("-", "−")


def number(value: float | None, digits: int = 2) -> str:
    """Format a number: `1,234.50`, with a true minus."""
    return _signed(f"{value:,.{digits}f}") if _known(value) else NOTHING


def plus_minus(half: float, digits: int = 2) -> str:
    """The half width of an interval after its value: ` ± 0.21`; empty if there is no interval."""
    return f" ± {half:.{digits}f}" if _known(half) else ""


def plain(value: Any) -> str:
    """Format a value of the manifest."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    return NOTHING if value is None else str(value)


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(line)} |" for line in (heads, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(heads), *lines[1:]])


def observed(value: Any, check: str) -> str:
    """Format the value of a validity check, in the unit that the check's name ends with."""
    if isinstance(value, (bool, str)) or value is None:
        return plain(value)
    if check.endswith("_s"):
        return f"{value * 1e3:,.3g} ms"
    if check.endswith("_ppm"):
        return f"{value:,.3g} ppm"
    if check.endswith("_bytes"):
        return f"{value:,.0f} B"
    if check.endswith(("_share", "_error", "_frames")) or check.startswith("cpu_"):
        return percent(value, sign=False)
    return plain(value)


def without_links(page: str) -> str:
    """A page without its links to the pages above it, which differ from place to place."""
    return re.sub('<p class="up">.*?</p>', PLACE_OF_LINKS, page, count=1)
