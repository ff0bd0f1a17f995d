# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Renders self-contained HTML pages: template, style, scripts and data in one file.

The content security policy forbids all requests, and all scripts except the page's own.
"""

# No chart library is embedded: it would add 52 KB (uPlot) to 754 KB (Vega) to each page of 67 KB,
# and none draws timelines. uPlot's labels on a canvas cannot be read by screen readers or tests.
# Observable Plot (478 KB) cannot hide a series with a click and ignores the dark theme. For charts
# that the scripts here do not draw, such as heat maps, consider Observable Plot first.

import base64
import contextlib
import functools
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemBytecodeCache, FunctionLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup, escape

from orchestrator.records.manifest import command_of
from orchestrator.reporting import formatting
from orchestrator.reporting.glossary import terms_on
from testbed.system.files import sha256_of
from testbed.system.folders import cache_folder

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
"""Functions of `formatting` that are filters in templates."""


def render_page(template: str, scripts: Iterable[str], chart_data: Any, **context: Any) -> str:
    """Render a template.

    Args:
        template: Name of a file in `templates/`.
        scripts: Names of scripts there without suffix, in the order of execution.
        chart_data: Data for the scripts, as JSON values without NaN and infinity.
        context: Variables of the template.
    """
    script = "".join(_source(f"{name}.js") for name in scripts)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    parts = {
        "style": Markup(_source("report.css")),
        "script": Markup(script),
        "script_hash": digest,
        "made_by": version("uav-sfl-testbed"),
        "template": template.removesuffix(".html"),
        "data": Markup(_embedded(chart_data)),
        # The page is rendered twice, but iterators can be used only once.
        **{name: list(v) if isinstance(v, Iterator) else v for name, v in context.items()},
    }
    page = _environment().get_template(template)
    # The text of the page determines which terms its glossary explains.
    return page.render(glossary=terms_on(page.render(glossary=[], **parts)), **parts)


def breakable(name: object) -> Markup:
    """A name that browsers may break after underscores."""
    return escape(name).replace("_", Markup("_<wbr>"))


def _command(manifest: Mapping[str, Any]) -> Markup:
    """The command of a manifest; browsers would read a carriage return as a line feed."""
    return escape(command_of(manifest)).replace("\r", Markup("&#13;"))


@functools.cache
def _environment() -> Environment:
    """The environment for all pages. Compiled templates are kept for later processes, because
    compiling takes long."""
    environment = Environment(
        loader=FunctionLoader(_source),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        bytecode_cache=_Compiled(),
    )
    environment.filters |= {name: getattr(formatting, name) for name in FILTERS}
    environment.filters |= {"breakable": breakable, "command": _command}
    return environment


class _Compiled(FileSystemBytecodeCache):
    """Compiled templates in the user's cache; they depend on the options of `_environment`, too."""

    def __init__(self) -> None:
        made_by = f"{version('jinja2')} {sha256_of(Path(__file__))}"
        digest = hashlib.sha256(made_by.encode()).hexdigest()[:16]
        super().__init__(str(cache_folder() / "templates" / digest))

    def load_bytecode(self, bucket: Bucket) -> None:
        """Read a template; a broken file is written again."""
        try:
            super().load_bytecode(bucket)
        except Exception:
            bucket.reset()

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Write a template; a cache that cannot be written only costs time."""
        with contextlib.suppress(OSError):
            Path(self.directory).mkdir(parents=True, exist_ok=True)
            super().dump_bytecode(bucket)


def _source(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _embedded(value: Any) -> str:
    """JSON that cannot end the script element around it."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", r"\u003c").replace(">", r"\u003e").replace("&", r"\u0026")
