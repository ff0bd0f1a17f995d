# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The page of a validation, one file that needs nothing but itself; and all its files."""

from pathlib import Path
from typing import Any

import numpy as np
import yaml

from orchestrator.engine.plan import Array
from orchestrator.records.manifest import environment
from orchestrator.reporting.pages import render_page
from orchestrator.studies.validation.outcome import Validation
from orchestrator.studies.validation.shrink import plain
from orchestrator.studies.validation.worker import PARTS
from orchestrator.theory.models import model
from testbed.system.files import write_json, write_whole

BINS = 40
TITLES = {
    "engine": "engine, payload",
    "frames": "engine, frames",
    "packets": "ns-3 packets",
    "kernel": "kernel",
}
PART_TITLES = {
    "channel": "the channel changes during the round",
    "adapters": "SM and CM, the adapters' transfers",
    "differences": "UAVs' channels and shares differ",
    "form": "the form itself, without these causes",
}


def page(found: Validation) -> str:
    """The page as HTML."""
    request = found.request
    errors = found.errors("engine")
    text = None
    if found.counterexample is not None:
        text = yaml.safe_dump(plain(found.counterexample), sort_keys=False, width=100)
    return render_page(
        "validation.html",
        ("charts", "frame", "plain"),
        {},
        title=f"{request.model} on {request.scenario.name}",
        model_title=model(request.model, request.scenario).title,
        asked=request,
        metric=found.metric,
        unit=" s" if found.metric.endswith("_s") else " J" if found.metric.endswith("_j") else "",
        worst_keys={key: _in_words(value) for key, value in found.worst["keys"].items()},
        is_interval=found.is_interval,
        bounds_alone=found.is_interval and found.region.tolerance == 0,
        silent=int(sum(result is None for result in found.results)),
        rows=[{"name": TITLES[name], **found.distribution(name)} for name in found.values],
        bars=_histogram(errors[np.isfinite(errors)]),
        region=found.region,
        rules=found.region.texts(),
        sensitivity=found.sensitivity,
        worst=found.worst,
        parts=[(part, PART_TITLES[part]) for part in PARTS],
        counterexample=text,
        kernel_runs=found.kernel_runs,
        space={key: _range(value) for key, value in _keys(found).items()},
    )


def _keys(found: Validation) -> dict[str, dict[str, Any]]:
    keys: dict[str, dict[str, Any]] = found.request.space.model_dump(
        mode="json", exclude_none=True
    )["keys"]
    return keys


def _range(value: dict[str, Any]) -> str:
    ((kind, of),) = value.items()
    between = ", " if kind in ("choice", "normal") else " to "
    return f"{kind.replace('_', ' ')}: {between.join(map(_in_words, of))}"


def _in_words(value: Any) -> str:
    """Format a value of a space, a list of values, or a distribution."""
    if isinstance(value, dict):
        return _range(value)
    if isinstance(value, list):
        return ", ".join(map(_in_words, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _histogram(errors: Array) -> dict[str, Any]:
    """Bars of an SVG histogram, 600 units wide and 120 high."""
    low, high = float(errors.min()), float(errors.max())
    if high - low < 1e-12:
        low, high = low - 0.01, high + 0.01
    counts, edges = np.histogram(errors, BINS, (low, high))
    width = 600 / BINS
    bars = [
        {
            "x": round(width * n, 2),
            "height": round(120 * count / counts.max(), 2),
            "count": int(count),
            "low": float(edges[n]),
            "high": float(edges[n + 1]),
        }
        for n, count in enumerate(counts)
    ]
    return {"bars": bars, "low": low, "high": high, "width": width - 1, "most": int(counts.max())}


def write(found: Validation, folder: Path) -> None:
    """Write validation.json, validation.html, space.yaml, counterexample.yaml into the folder."""
    write_json(folder / "validation.json", found.to_json())
    write_json(folder / "environment.json", environment())
    text = found.request.space.to_yaml()
    write_whole(folder / "space.yaml", lambda part: part.write_text(text, "utf-8"))
    if found.counterexample is not None:
        simple = yaml.safe_dump(plain(found.counterexample), sort_keys=False, width=100)
        write_whole(folder / "counterexample.yaml", lambda part: part.write_text(simple, "utf-8"))
    html = page(found)
    write_whole(folder / "validation.html", lambda part: part.write_text(html, "utf-8"))
