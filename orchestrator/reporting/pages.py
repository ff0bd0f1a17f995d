# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A page that needs nothing but itself: template, style, scripts and data in one file.

Its content security policy forbids it to ask for anything else, and allows no script but its own.
"""

import base64
import functools
import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from orchestrator.reporting import formatting
from orchestrator.reporting.glossary import terms_on

TEMPLATES = Path(__file__).parent / "templates"
FILTERS = (
    "seconds",
    "milliseconds",
    "in_ms",
    "percent",
    "number",
    "plain",
    "observed",
    "sentence",
)
"""The functions of `formatting` that templates may use."""


def render_page(template: str, scripts: Iterable[str], chart_data: Any, **context: Any) -> str:
    """The page of a template.

    Args:
        template: Its file in `templates/`.
        scripts: Stems of the scripts there, in the order in which the page runs them.
        chart_data: What they draw, as JSON has it; no NaN, no infinity.
        context: What the template names.
    """
    script = "".join(_source(f"{name}.js") for name in scripts)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    parts = {
        "style": Markup(_source("report.css")),
        "script": Markup(script),
        "script_hash": digest,
        "data": Markup(_embedded(chart_data)),
        # It is rendered twice.
        **{name: list(v) if isinstance(v, Iterator) else v for name, v in context.items()},
    }
    page = _environment().get_template(template)
    # What stands on the page decides what is to be explained on it.
    return page.render(glossary=terms_on(page.render(glossary=[], **parts)), **parts)


def breakable(name: object) -> Markup:
    """A name that may be broken behind its underscores."""
    return escape(name).replace("_", Markup("_<wbr>"))


@functools.cache
def _environment() -> Environment:
    """One for all pages: to compile templates takes longer than to fill them."""
    environment = Environment(
        loader=FunctionLoader(_source),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {name: getattr(formatting, name) for name in FILTERS}
    environment.filters["breakable"] = breakable
    return environment


def _source(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _embedded(value: Any) -> str:
    """JSON that cannot leave the script element in which it stands."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")
