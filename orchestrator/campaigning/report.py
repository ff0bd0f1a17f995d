# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The report of a campaign: a self-contained HTML page, and charts for publication.

Its numbers are calculated from the tables in `results/`, see `orchestrator.campaigning.summary`.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from orchestrator.analysis.learned import X_TITLES, improvements
from orchestrator.campaigning.claims import judge
from orchestrator.campaigning.folder import CampaignFolder, manifest_of
from orchestrator.campaigning.results import study_counts
from orchestrator.campaigning.spec import COLUMNS, Campaign, Plot, Study, cells
from orchestrator.campaigning.summary import (
    against_predictions,
    axis_columns,
    axis_label,
    differences,
    means,
    notes,
    of_study,
    titles,
)
from orchestrator.campaigning.verdict import conclusions, problems, study_conclusions
from orchestrator.campaigning.verify import environment_differences
from orchestrator.emulated.validity import CHECKS, Tenant, remedy
from orchestrator.records.manifest import command_of, environment, provenance
from orchestrator.records.tables import read_own
from orchestrator.reporting.formatting import listed, percent
from orchestrator.reporting.index import save_page
from orchestrator.reporting.learning_charts import learning_chart
from orchestrator.reporting.legend import line_style
from orchestrator.reporting.pages import render_page
from orchestrator.reporting.report import write_report
from orchestrator.reporting.session_report import write_session_report
from testbed.core.paradigm import title_of

SCRIPTS = ("charts", "frame", "xy", "tables", "campaign")
MAX_POINT_ROWS = 2000


def write_campaign_report(folder: CampaignFolder, campaign: Campaign) -> Path:
    """Write `report.html`, `figures/` and the reports of emulated points; returns the page's path.

    The tables must have been written, see `results.write_results`.
    """
    from orchestrator.campaigning.plots import curve_plots, draw

    results = folder.path / "results"
    points = read_own(results / "points.parquet")
    validity = read_own(results / "validity.parquet")
    curves = read_own(results / "curves.parquet")
    drawn = draw(folder.path / "figures", campaign, points, curves)
    here = folder.finished([cell.point for cell in cells(campaign)])
    points["folder"] = points["point"].map({id_: path.name for id_, path in here.items()})
    found = points[points["status"] == "finished"].drop_duplicates("point")
    counts, failures = study_counts(folder, campaign)
    charts: dict[str, Any] = {}
    titles_of: dict[str, list[tuple[str, str]]] = {name: [] for name in campaign.studies}
    for name, study in campaign.studies.items():
        for shown in curve_plots(name, study, curves[curves["study"] == name]):
            over = (shown.plot.x, *(x for x in X_TITLES if x != shown.plot.x))
            if made := learning_chart(shown.groups, shown.styles, shown.plot.y, over):
                charts[shown.stem] = made
                titles_of[name].append((shown.stem, shown.title))
    judged = judge(campaign, points)
    rows = list(_point_rows(points.head(MAX_POINT_ROWS), campaign, curves))
    page = render_page(
        "campaign.html",
        SCRIPTS,
        {
            "studies": [_chart(campaign, name, points) for name in campaign.studies],
            "charts": charts,
            "reached": [row["reached"] for row in rows],
        },
        campaign=campaign,
        title=campaign.title or campaign.name,
        counts=counts.to_dict("records"),
        failures=failures,
        conclusions=conclusions(campaign, points, curves),
        problems=problems(points, validity),
        notes=notes(campaign, points),
        overview=_overview(found, failures),
        studies=[
            _study(campaign, name, points, drawn)
            | {"curves": titles_of[name], "claims": [one for one in judged if one.study == name]}
            for name in campaign.studies
        ],
        measured=against_predictions(points),
        checks=_checks(validity, here),
        check_titles={name: check.title for name, check in CHECKS.items()},
        paradigms={v: title_of(v) for v in points["paradigm"].dropna().unique()},
        points=rows,
        evaluated=any(row["reached"] for row in rows),
        target=_shown_target(campaign),
        total=len(points),
        **_made([manifest_of(here[id_]) for id_ in found["point"]]),
        text=(folder.path / "campaign.yaml").read_text(encoding="utf-8"),
        max_rows=MAX_POINT_ROWS,
    )
    path = folder.path / "report.html"
    save_page(path, page)
    # After the campaign's page, to which they have a link.
    for id_ in found.loc[found["mode"] == "run", "point"]:
        write_report(here[id_])
    for id_ in found.loc[found["mode"] == "up", "point"]:
        write_session_report(here[id_])
    return path


# --- data of the page ----------------------------------------------------------------------------


def _overview(found: pd.DataFrame, failures: dict[str, Any]) -> dict[str, Any]:
    emulated = found[found["mode"] == "run"]
    error = emulated["latency_s"] / emulated["predicted_wire_latency_s"] - 1
    valid = emulated["valid"].eq(True)
    sessions = int((found["mode"] == "up").sum())
    predicted = len(found) - len(emulated) - sessions
    kinds = {"predicted": predicted, "emulated": len(emulated), "sessions": sessions}
    sentence = f"{len(found):,} points are finished: " + listed(
        f"{count:,} {kind}" for kind, count in kinds.items() if count
    )
    sentence += "."
    if len(emulated):
        worst = error.iloc[int(error.abs().argmax())]
        sentence += (
            f" The measured latency differs from the prediction (with frames) by "
            f"{percent(float(error.median()))} (median), at most {percent(float(worst))}."
        )
    return {
        "finished": len(found),
        "predicted": predicted,
        "sessions": sessions,
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


def _study(
    campaign: Campaign,
    name: str,
    points: pd.DataFrame,
    drawn: dict[str, list[str]],
) -> dict[str, Any]:
    study, own = campaign.studies[name], of_study(name, points)
    columns = axis_columns(study)
    table = means(own, ["mode", *columns], study.requested_metrics)
    compared = None if study.compare is None else differences(own, study, columns)
    return {
        "name": name,
        "title": study.title or name,
        "conclusions": study_conclusions(study, own),
        "columns": [(column, axis_label(study, column)) for column in columns],
        "means": table.to_dict("records"),
        "metrics": [
            m
            for m in titles(study)
            if m in _metrics(study) or (m == "latency_s" and own[m].notna().any())
        ],
        "metric_titles": titles(study),
        "compare": study.compare,
        "differences": [] if compared is None else compared.to_dict("records"),
        "figures": drawn.get(name, []),
        "titles": {v: title_of(v) for v in own["paradigm"].unique()},
    }


def _metrics(study: Study) -> set[str]:
    return {*study.shown.values(), *study.reads}


def _checks(validity: pd.DataFrame, folders: dict[str, Path]) -> list[dict[str, Any]]:
    """By check: the number of points that passed, the worst value, and advice if a point failed.

    Checks that failed come first.
    """
    rows = []
    for name, part in validity.drop_duplicates(["point", "check"]).groupby("check", sort=False):
        worst = part.sort_values("value").iloc[-1]
        kept, text = int(part["ok"].sum()), ""
        if kept < len(part):
            about = manifest_of(folders[worst["point"]])
            values = (worst["value"], worst["limit"], about.get("dilation"))
            tenant: Tenant = "session" if about.get("kind") == "session" else "run"
            text = remedy(str(name), *values, about.get("clock"), tenant, worst["detail"])
        rows.append(
            {
                "check": name,
                "limit": worst["limit"],
                "worst": worst["value"],
                "point": worst["point"],
                "detail": worst["detail"],
                "kept": kept,
                "of": len(part),
                "remedy": text,
            }
        )
    return sorted(rows, key=lambda row: row["kept"] == row["of"])


def _point_rows(
    points: pd.DataFrame, campaign: Campaign, curves: pd.DataFrame
) -> Iterator[dict[str, Any]]:
    """The rows of the table of points, with the last and best accuracy of each, and `reached`, see
    `improvements`."""
    columns = {name: axis_columns(study) for name, study in campaign.studies.items()}
    by_point = {
        str(point): own.drop_duplicates(["round", "time_s"])
        for point, own in curves.groupby("point", sort=False)
    }
    for row in points.to_dict("records"):
        place = {c: row[c] for c in columns[row["study"]]}
        own = by_point.get(row["point"], curves.iloc[:0])
        better = improvements(own)
        yield {
            **{str(k): v for k, v in row.items()},
            "place": ", ".join(f"{k} = {short(v)}" for k, v in place.items()),
            "last": own["accuracy"].iloc[-1] if len(own) else None,
            "best": better[-1][1] if better else None,
            "reached": better,
        }


def _shown_target(campaign: Campaign) -> float:
    """The first accuracy that a study asks for, in per cent; 50 if none does."""
    targets = [study.target for study in campaign.studies.values() if study.target]
    return next((100 * t.value for t in targets if t.measure == "accuracy"), 50.0)


def short(value: Any) -> str:
    """Format an axis value."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def _made(manifests: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What has made the points, for the page: `environment` is that of the first point, `others`
    are the distinct ones of the others, and `commands` are manifests, one per distinct command."""
    first, *others = _environments(manifests) or [provenance() | {"points": 0}]
    times = {
        "started": min((str(m["started"]) for m in manifests if m.get("started")), default=None),
        "finished": max((str(m["finished"]) for m in manifests if m.get("finished")), default=None),
        "argv": all(m.get("argv") for m in manifests),
        "command": "",
        "clock": manifests[0].get("clock") if manifests else None,
    }
    commands = list({command_of(m): m for m in manifests}.values())
    return {"environment": first | times, "others": others, "commands": commands}


def _environments(manifests: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The distinct environments of points, each with its differences from the first."""
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
            "machines": ", ".join(sorted(set(hosts))),
            "differences": environment_differences(kinds[0][0], own),
        }
        for own, hosts in kinds
    ]


# --- data of the charts --------------------------------------------------------------------------


def _chart(campaign: Campaign, name: str, points: pd.DataFrame) -> dict[str, Any]:
    study = campaign.studies[name]
    own, columns = of_study(name, points), axis_columns(study)
    table = means(own, ["mode", *columns], study.requested_metrics)
    default = Plot(
        x=columns[0] if columns else "seed", y=next(iter(study.shown.values()), COLUMNS[0])
    )
    plot = next((plot for plot in study.plot if not plot.is_curve), default)
    values = own[plot.lines].drop_duplicates() if plot.lines else [""]
    return {
        "name": name,
        "x": plot.x,
        "lines": plot.lines,
        "y": plot.y,
        "titles": titles(study),
        "axes": [
            {
                "name": column,
                "label": axis_label(study, column),
                "values": [_plain(v) for v in own[column].drop_duplicates()],
            }
            for column in columns
        ],
        "styles": {
            str(value): {
                "title": title_of(str(value)) if plot.lines == "paradigm" else str(value),
                **_style(plot.lines, str(value), number),
            }
            for number, value in enumerate(values)
        },
        "rows": [{str(k): _plain(v) for k, v in row.items()} for row in table.to_dict("records")],
    }


def _style(axis: str | None, value: str, number: int) -> dict[str, Any]:
    colour, line, marker = line_style(axis, value, number)
    return {"colour": colour, "dash": {"-": "", "--": "6 4", ":": "2 3"}[line], "marker": marker}


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value
