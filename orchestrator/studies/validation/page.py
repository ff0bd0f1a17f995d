# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The page of a validation, one file that needs nothing but itself; and all its files."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from orchestrator.analytical.models import model
from orchestrator.records.manifest import provenance
from orchestrator.reporting import xy
from orchestrator.reporting.formatting import listed
from orchestrator.reporting.index import save_page
from orchestrator.reporting.pages import render_page
from orchestrator.scenario.yaml_text import dump
from orchestrator.studies.validation.outcome import Validation
from orchestrator.studies.validation.shrink import plain
from orchestrator.studies.validation.space import tree_at
from orchestrator.studies.validation.verdict import checked, verdict, worst_error
from orchestrator.studies.validation.worker import PARTS, margin
from testbed.system.files import write_json, write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BINS = 40
"""Number of bars of the histogram, approximately."""
TITLES = {
    "engine": "Engine, payload only",
    "frames": "Engine, with frames",
    "packets": "ns-3 packets",
    "kernel": "Kernel (emulated)",
}
PART_TITLES = {
    "channel": "changes of the channel during the round",
    "adapters": "transfers of the adapters (SM and CM)",
    "differences": "differences between the channels and shares of UAVs",
    "form": "the equation itself, without these causes",
}


def page(found: Validation) -> str:
    """The page as HTML."""
    request = found.request
    text = None
    drawn = _histogram(found)
    if found.counterexample is not None:
        text = dump(plain(found.counterexample))
    return render_page(
        "validation.html",
        ("charts", "frame", *(["xy"] if drawn else []), "tables", "plain"),
        {"charts": {"errors": drawn}} if drawn else {},
        title=f"{request.model} on {request.scenario.name}",
        model_title=model(request.model, request.scenario).title,
        asked=request,
        metric=found.metric,
        unit=_unit(found),
        verdict=verdict(found),
        environment=provenance(),
        worst_keys=_worst_keys(found),
        is_interval=found.is_interval,
        bounds_alone=found.is_interval and found.region.tolerance == 0,
        silent=int(sum(result is None for result in found.results)),
        rows=[{"name": TITLES[name], **found.distribution(name)} for name in found.values],
        is_drawn=drawn is not None,
        region=found.region,
        rules=found.region.texts(),
        checked=checked(found.region),
        worst_is_known=abs(found.worst["error"] or 0.0) >= abs(worst_error(found)),
        base_samples=request.base_samples,
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


def _unit(found: Validation) -> str:
    return " s" if found.metric.endswith("_s") else " J" if found.metric.endswith("_j") else ""


def _range(value: dict[str, Any]) -> str:
    ((kind, of),) = value.items()
    if kind == "choice":
        return f"one of {'; '.join(map(_in_words, of))}"
    first, last = map(_in_words, of)
    if kind == "normal":
        return f"normal, mean {first}, standard deviation {last}"
    return f"{kind.replace('_', '-')} from {first} to {last}"


def _in_words(value: Any) -> str:
    """Format a value of a space, a list of values, or a distribution."""
    if isinstance(value, dict):
        return f"per UAV, {_range(value)}"
    if isinstance(value, list):
        return ", ".join(map(_in_words, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _worst_keys(found: Validation) -> dict[str, str]:
    """The values of the worst case; those that are drawn for each UAV as numbers."""
    keys = found.worst["keys"]
    scenario = tree_at(found.request.scenario.model_dump(mode="json"), keys, "space")
    words = {}
    for key, value in keys.items():
        own = getattr(scenario.fleet, key.rpartition(".")[2], None)
        if isinstance(value, dict) and own is not None:
            numbers = listed(f"{number:.3g}" for number in np.ravel(own))
            words[key] = f"{numbers} (drawn {_in_words(value)})"
        else:
            words[key] = _in_words(value)
    return words


def _histogram(found: Validation) -> dict[str, Any] | None:
    """A histogram of the errors, or of the distances to the nearer bound; None if all are equal."""
    engine = found.values["engine"]
    values = (
        np.array([margin(result, v) for result, v in zip(found.results, engine, strict=True)])
        if found.is_interval
        else found.errors("engine")
    )
    values = 100 * values[np.isfinite(values)]
    low, high = float(values.min()), float(values.max())
    if high - low < 1e-9:
        return None
    width = (high - low) / BINS
    # Zero is an edge, so that no bar contains values of both signs.
    edges = width * np.arange(np.floor(low / width), np.floor(high / width) + 2)
    counts = np.histogram(values, edges)[0].astype(float)
    outside = edges[1:] <= 1e-9 * width
    what = "Distance from the bound (%)" if found.is_interval else "Error of the model (%)"
    if not found.is_interval:
        parts = [xy.bars("scenarios", edges, counts, "accent")]
    else:
        parts = [
            xy.bars(label, edges, np.where(mask, counts, 0.0), colour)
            for label, mask, colour in (
                ("bound holds", ~outside, "accent"),
                ("bound is violated", outside, "bad"),
            )
            if counts[mask].any()
        ]
    label = f"Histogram of {len(values)} scenarios: {what}"
    return xy.chart(label, what, "Scenarios", parts, from_zero=True, digits=(2, 0))


def figure(found: Validation) -> "Callable[[], Figure] | None":
    """Draws the histogram of the page with matplotlib; None if all errors are equal."""
    if (drawn := _histogram(found)) is None:
        return None

    def draw() -> "Figure":
        from orchestrator.reporting import xy_plots  # imports matplotlib

        return xy_plots.figure(drawn)

    return draw


def write(found: Validation, folder: Path) -> None:
    """Write validation.json, validation.html, space.yaml, counterexample.yaml into the folder."""
    write_json(folder / "validation.json", found.to_json())
    write_json(folder / "environment.json", provenance())
    text = found.request.space.to_yaml()
    write_whole(folder / "space.yaml", lambda part: part.write_text(text, "utf-8"))
    if found.counterexample is not None:
        simple = dump(plain(found.counterexample))
        write_whole(folder / "counterexample.yaml", lambda part: part.write_text(simple, "utf-8"))
    html = page(found)
    save_page(folder / "validation.html", html)
