"""The report of a campaign: one HTML page that needs nothing but itself, and figures for a paper.

All of it is reckoned from the tables in `results/`. Means are over the points of one place in a
study, one a seed; intervals are Student's, 95 %.
"""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from orchestrator.analysis.statistics import half_width
from orchestrator.campaign.folder import CampaignFolder, manifest_of
from orchestrator.campaign.results import MEANS, study_counts
from orchestrator.campaign.spec import Campaign, Label, Plot, Study, cells
from orchestrator.campaign.verify import environment_differences
from orchestrator.reporting import figures
from orchestrator.reporting.report import paradigm_title, percent, render_page, write_report
from orchestrator.runs.manifest import environment
from testbed.system.files import write_figure, write_whole

SCRIPTS = ("charts", "frame", "campaign")
METRIC_TITLES = {
    "latency_s": "Average per-round latency (s)",
    "max_energy_j": "Largest energy of a UAV (J)",
    "objective": "Objective",
}
MAX_POINT_ROWS = 2000
MOST_FIGURES = 24
"""Of one plot, which draws one for each value of the axes that it does not show."""


def write_campaign_report(folder: CampaignFolder, campaign: Campaign) -> Path:
    """Write `report.html`, `figures/`, and the reports of emulated points; answer the page's path.

    The data set must be there; see `results.write_results`.
    """
    results = folder.path / "results"
    points = pd.read_parquet(results / "points.parquet")
    validity = pd.read_parquet(results / "validity.parquet")
    drawn = _draw(folder.path / "figures", campaign, points)
    here = folder.finished([cell.point for cell in cells(campaign)])
    points["folder"] = points["point"].map({id_: path.name for id_, path in here.items()})
    found = points[points["status"] == "finished"].drop_duplicates("point")
    for id_ in found.loc[found["mode"] == "run", "point"]:
        write_report(here[id_])
    counts, failures = study_counts(folder, campaign)
    page = render_page(
        "campaign.html",
        SCRIPTS,
        {"studies": [_chart(campaign, name, points) for name in campaign.studies]},
        campaign=campaign,
        title=campaign.title or campaign.name,
        counts=counts.to_dict("records"),
        failures=failures,
        overview=_overview(found, failures),
        studies=[_study(campaign, name, points, drawn) for name in campaign.studies],
        measured=_measured(points),
        checks=_checks(validity),
        points=_point_rows(points.head(MAX_POINT_ROWS), campaign),
        total=len(points),
        environments=_environments([manifest_of(here[id_]) for id_ in found["point"]]),
        text=(folder.path / "campaign.yaml").read_text(encoding="utf-8"),
        max_rows=MAX_POINT_ROWS,
        metric_titles=METRIC_TITLES,
    )
    path = folder.path / "report.html"
    write_whole(path, lambda part: part.write_text(page, encoding="utf-8"))
    return path


# --- what the page says --------------------------------------------------------------------------


def _overview(found: pd.DataFrame, failures: dict[str, Any]) -> dict[str, Any]:
    emulated = found[found["mode"] == "run"]
    error = emulated["latency_s"] / emulated["predicted_wire_latency_s"] - 1
    valid = emulated["valid"].eq(True)
    sentence = (
        f"{len(found):,} points are finished: {len(found) - len(emulated):,} predicted, "
        f"{len(emulated):,} emulated."
    )
    if len(emulated):
        worst = error.iloc[int(error.abs().argmax())]
        sentence += (
            f" Measured latencies are {percent(float(error.median()))} from what the engine "
            f"predicts for the frames on the link (median), {percent(float(worst))} at most."
        )
    return {
        "finished": len(found),
        "predicted": len(found) - len(emulated),
        "emulated": len(emulated),
        "invalid": int((~valid).sum()),
        "failed": len(failures),
        "work_s": float(found["wall_s"].sum()),
        "hosts": int(found["host"].nunique()),
        "rounds": int(found["rounds"].sum()),
        "median_error": float(error.median()) if len(emulated) else None,
        "worst_error": float(error.iloc[int(error.abs().argmax())]) if len(emulated) else None,
        "sentence": sentence,
    }


def means(points: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Means over seeds with half the width of their 95 % intervals.

    Returns:
        One row a group: `by`, n, and for each of `MEANS` its mean and `<name>_ci95`.
    """
    rows = []
    for labels, part in points.groupby(list(by), sort=False, dropna=False):
        row: dict[str, Any] = dict(zip(by, labels, strict=True)) | {"n": len(part)}
        for name in MEANS:
            row |= {name: part[name].mean(), f"{name}_ci95": half_width(part[name].to_numpy())}
        rows.append(row)
    return pd.DataFrame(rows, columns=[*by, "n", *(c for m in MEANS for c in (m, f"{m}_ci95"))])


def differences(points: pd.DataFrame, study: Study, columns: Sequence[str]) -> pd.DataFrame:
    """What each value of the compared axis does against the baseline, seed by seed.

    Returns:
        One row a place and value: mode, the other axes, the compared one, n, and for each compared
        column its mean relative difference `<name>` and half of that's interval `<name>_ci95`.
    """
    assert study.compare is not None
    over, metrics = study.compare.over, study.compare.of
    others = ["mode", *(name for name in columns if name != over)]
    base = points[points[over] == study.compare.baseline]
    pairs = points.merge(
        base[[*others, "seed", *metrics]], on=[*others, "seed"], suffixes=("", "_0")
    )
    rows = []
    for labels, part in pairs.groupby([*others, over], sort=False):
        if labels[-1] == study.compare.baseline:
            continue
        row: dict[str, Any] = dict(zip([*others, over], labels, strict=True)) | {"n": len(part)}
        for name in metrics:
            apart = (part[name] / part[f"{name}_0"] - 1).to_numpy()
            row |= {name: apart.mean(), f"{name}_ci95": half_width(apart)}
        rows.append(row)
    return pd.DataFrame(rows)


def _of_study(name: str, points: pd.DataFrame) -> pd.DataFrame:
    return points[(points["study"] == name) & (points["status"] == "finished")]


def _columns(study: Study) -> list[str]:
    """Columns of the study's axes; of a random one, what it drew."""
    return [
        c for name, axis in study.axes.items() for c in ([name] if axis.of is None else axis.of)
    ]


def _study(
    campaign: Campaign, name: str, points: pd.DataFrame, drawn: dict[str, list[str]]
) -> dict[str, Any]:
    study, own = campaign.studies[name], _of_study(name, points)
    columns = _columns(study)
    table = means(own, ["mode", *columns])
    compared = None if study.compare is None else differences(own, study, columns)
    return {
        "name": name,
        "title": study.title or name,
        "columns": [(column, _label(study, column)) for column in columns],
        "means": table.to_dict("records"),
        "metrics": [m for m in MEANS if m == "latency_s" or m in _metrics(study)],
        "compare": study.compare,
        "differences": [] if compared is None else compared.to_dict("records"),
        "figures": drawn.get(name, []),
        "titles": {v: paradigm_title(v) for v in own["paradigm"].unique()},
    }


def _metrics(study: Study) -> set[str]:
    compared = set() if study.compare is None else set(study.compare.of)
    return compared | {plot.y for plot in study.plot}


def _label(study: Study, column: str) -> str:
    axis = study.axes.get(column)
    if axis is not None and axis.label:
        return axis.label
    return "Paradigm" if column == "paradigm" else column


def _measured(points: pd.DataFrame) -> list[dict[str, Any]]:
    """Emulated points against their own predictions, the furthest off first."""
    rows = points[(points["mode"] == "run") & (points["status"] == "finished")].copy()
    rows = rows.drop_duplicates("point")
    for kind in ("predicted", "predicted_wire"):
        rows[f"{kind}_error"] = rows["latency_s"] / rows[f"{kind}_latency_s"] - 1
    order = rows["predicted_wire_error"].abs().sort_values(ascending=False).index
    return [{str(k): v for k, v in row.items()} for row in rows.loc[order].to_dict("records")]


def _checks(validity: pd.DataFrame) -> list[dict[str, Any]]:
    """By check: how many points kept it, and the worst value."""
    rows = []
    for name, part in validity.drop_duplicates(["point", "check"]).groupby("check", sort=False):
        worst = part.sort_values("value").iloc[-1]
        rows.append(
            {
                "check": name,
                "limit": worst["limit"],
                "worst": worst["value"],
                "point": worst["point"],
                "detail": worst["detail"],
                "kept": int(part["ok"].sum()),
                "of": len(part),
            }
        )
    return rows


def _point_rows(points: pd.DataFrame, campaign: Campaign) -> Iterator[dict[str, Any]]:
    columns = {name: _columns(study) for name, study in campaign.studies.items()}
    for row in points.to_dict("records"):
        place = {c: row[c] for c in columns[row["study"]]}
        yield {
            **{str(k): v for k, v in row.items()},
            "place": ", ".join(f"{k} = {_short(v)}" for k, v in place.items()),
        }


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _environments(manifests: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The different environments in which points were made, and what sets each apart."""
    names = list(environment())
    kinds: list[tuple[dict[str, Any], list[str]]] = []
    for manifest in manifests:
        own = {name: manifest.get(name) for name in names}
        for known, hosts in kinds:
            if known == own:
                hosts.append(str(manifest.get("host")))
                break
        else:
            kinds.append((own, [str(manifest.get("host"))]))
    return [
        {
            **own,
            "points": len(hosts),
            "hosts": sorted(set(hosts)),
            "differences": environment_differences(kinds[0][0], own),
        }
        for own, hosts in kinds
    ]


# --- what the page draws -------------------------------------------------------------------------


def _chart(campaign: Campaign, name: str, points: pd.DataFrame) -> dict[str, Any]:
    study = campaign.studies[name]
    own, columns = _of_study(name, points), _columns(study)
    table = means(own, ["mode", *columns])
    plot = study.plot[0] if study.plot else Plot(x=columns[0] if columns else "seed")
    values = own[plot.lines].drop_duplicates() if plot.lines else [""]
    return {
        "name": name,
        "x": plot.x,
        "lines": plot.lines,
        "y": plot.y,
        "titles": METRIC_TITLES,
        "axes": [
            {
                "name": column,
                "label": _label(study, column),
                "values": [_plain(v) for v in own[column].drop_duplicates()],
            }
            for column in columns
        ],
        "styles": {
            str(value): {
                "title": paradigm_title(str(value)) if plot.lines == "paradigm" else str(value),
                **_style(plot.lines, str(value), number),
            }
            for number, value in enumerate(values)
        },
        "rows": [{str(k): _plain(v) for k, v in row.items()} for row in table.to_dict("records")],
    }


def _style(axis: str | None, value: str, number: int) -> dict[str, Any]:
    colour, line, marker = figures.style(axis, value, number)
    return {"colour": colour, "dash": {"-": "", "--": "6 4", ":": "2 3"}[line], "marker": marker}


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value


# --- figures for a paper -------------------------------------------------------------------------


def _draw(out: Path, campaign: Campaign, points: pd.DataFrame) -> dict[str, list[str]]:
    """Draw every plot of every study, as PNG and PDF; answers the stems by study."""
    out.mkdir(exist_ok=True)
    drawn: dict[str, list[str]] = {}
    with mpl.rc_context(figures.STYLE):
        for name, study in campaign.studies.items():
            own = _of_study(name, points)
            for plot in study.plot:
                for stem, figure in _figures(name, study, plot, own):
                    write_figure(out / stem, figure)
                    drawn.setdefault(name, []).append(stem)
        emulated = _measured(points)
        if emulated:
            write_figure(out / "measured", figures.errors(pd.DataFrame(emulated)))
    return drawn


def _figures(
    name: str, study: Study, plot: Plot, own: pd.DataFrame
) -> Iterator[tuple[str, Figure]]:
    """One figure for each combination of the axes that the plot does not show."""
    shown = [column for column in (plot.x, plot.lines) if column is not None]
    others = [column for column in _columns(study) if column not in shown]
    # Emulated cells are fewer and have fewer rounds: they are drawn where nothing is predicted.
    mode = "predict" if (own["mode"] == "predict").any() else "run"
    table = means(own[own["mode"] == mode], [*_columns(study)])
    values: list[list[Label]] = [table[column].drop_duplicates().tolist() for column in others]
    for combination in itertools.islice(itertools.product(*values), MOST_FIGURES):
        part = table
        for column, value in zip(others, combination, strict=True):
            part = part[part[column] == value]
        if part.empty:
            continue
        stem = "-".join([name, plot.y.rpartition("_")[0] or plot.y, *map(_file_name, combination)])
        yield (
            stem,
            figures.lines(
                part.rename(columns={plot.y: "y", f"{plot.y}_ci95": "y_ci95"}),
                x=plot.x,
                lines=plot.lines,
                x_label=_label(study, plot.x),
                y_label=METRIC_TITLES[plot.y],
            ),
        )


def _file_name(label: Label) -> str:
    return "".join(c if c.isalnum() or c in ".-" else "_" for c in str(label))
