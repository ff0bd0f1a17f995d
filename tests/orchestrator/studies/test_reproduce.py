"""The paper's figures made anew: what is averaged, what is claimed, what is written."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from orchestrator.analysis.statistics import half_width
from orchestrator.prediction.rounds import predict
from orchestrator.scenario.channel import ns3_source
from orchestrator.scenario.loading import load
from orchestrator.scenario.profiles import profile_of
from orchestrator.studies import paper_figures as reproduce
from orchestrator.studies.paper_figures import PARADIGMS, STUDIES, Outcomes
from orchestrator.studies.sweep import Cell, run_cells, varied
from testbed.core.errors import InputError

PAPER = load(Path(__file__).parents[3] / "scenarios" / "paper.yaml")
BY_NAME = {study.name: study for study in STUDIES}


def test_varied_sets_nested_keys_and_validates():
    other = varied(PAPER, paradigm="pipesfl", workload__split=3, uavs__tx_power_w=[1, 2])
    assert (other.scheme.name, other.workload.split, other.uavs.count) == ("pipesfl", 3, 2)
    assert PAPER.scheme.name == "cpsfl"
    with pytest.raises(InputError, match=r"workload\.split"):
        varied(PAPER, workload__split=9)


def test_cells_are_means_of_predicted_rounds():
    cells = [
        Cell("x", n, varied(PAPER, rounds=4, **values))
        for n, values in enumerate(
            [
                {"paradigm": "pipesfl", "seed": 2},
                {"paradigm": "cpsfl", "seed": 1, "workload__split": 3},
                {"paradigm": "cpsfl", "seed": 2, "uavs__tx_power_w": [0.4, 0.2, 0.1]},
            ]
        )
    ]
    steps = []
    rows = run_cells(cells, workers=2, progress=steps.append)
    assert sum(steps) == 3
    assert rows["x"].tolist() == [0, 1, 2]
    for cell, row in zip(cells, rows.itertuples(), strict=True):
        with ns3_source(cell.scenario) as source:
            rounds = list(predict(cell.scenario, source, profile_of(cell.scenario)))
        assert row.paradigm == cell.scenario.paradigm
        assert row.latency_s == pytest.approx(np.mean([r.latency_s for r in rounds]), abs=1e-9)
        assert row.objective == pytest.approx(np.mean([r.objective for r in rounds]), abs=1e-9)
        assert row.max_energy_j == pytest.approx(np.mean([r.energy_j.max() for r in rounds]))
        uploads = [r.spans[np.isin(r.spans["step"], (2, 6))] for r in rounds]
        on_air_s = sum((u["end_s"] - u["start_s"]).sum() for u in uploads) / len(rounds)
        powers = np.array(cell.scenario.uavs.tx_power_w)
        assert (row.sending_j / powers).sum() == pytest.approx(on_air_s)


def test_interval_is_students():
    # Standard deviation 1, t of 0.975 with 2 degrees of freedom 4.302653.
    assert half_width(np.array([1.0, 2.0, 3.0])) == pytest.approx(4.302653 / np.sqrt(3), rel=1e-6)
    assert np.isnan(half_width(np.array([1.0])))


def outcomes(name, latency_s, objective=None):
    """A study whose latencies, and objectives, are made up: functions of paradigm and tick."""
    study = BY_NAME[name]
    rows = [
        {
            "study": name,
            "x": x,
            "paradigm": paradigm,
            "seed": seed,
            "rounds": 1,
            "latency_s": latency_s(paradigm, x) * (1 + 0.001 * seed),
            "objective": (objective or latency_s)(paradigm, x),
            "sending_j": np.array(values.get("uavs__tx_power_w", [1.0])) * 2.0,
        }
        for x, values in study.variants.items()
        for paradigm in PARADIGMS
        for seed in (1, 2)
    ]
    return Outcomes(study, pd.DataFrame(rows))


def verdicts(o):
    return {finding.statement: finding.agrees for finding in o.study.findings(o)}


def slower(paradigm):
    return 1.0 if paradigm == "cpsfl" else 1.5


def test_findings_agree_with_latencies_as_the_paper_tells_them():
    good = {
        "fig4": outcomes(
            "fig4",
            lambda paradigm, x: (8 - x) * (1 if paradigm == "cpsfl" else 1.6 - 0.05 * x),
            lambda paradigm, x: abs(x - 2),
        ),
        "fig6": outcomes(
            "fig6",
            lambda paradigm, x: x * slower(paradigm) + (paradigm == "cpsfl") * 0.1,
            lambda paradigm, x: 122.0,
        ),
        "fig7": outcomes("fig7", lambda paradigm, x: x * slower(paradigm) - (paradigm == "cpsfl")),
    }
    # CPSFL's offset makes its saving grow in figure 6 and shrink in figure 7.
    assert all(verdicts(good["fig4"]).values())
    assert all(verdicts(good["fig6"]).values())
    assert [s for s, agrees in verdicts(good["fig7"]).items() if not agrees] == [
        "saving over PipeSFL, K = 6 to 18"
    ]


def test_findings_disagree_with_anything_else():
    bad = verdicts(outcomes("fig4", lambda paradigm, x: 1.0 + x, lambda paradigm, x: x))
    assert not any(bad.values())
    bad = verdicts(outcomes("fig6", lambda paradigm, x: 1.0 + (x == 3), lambda *_: 123.0))
    assert not any(bad.values())
    bad = verdicts(outcomes("fig7", lambda paradigm, x: 1.0))
    assert not any(bad.values())
    bad = verdicts(outcomes("fig5", lambda paradigm, x: 1.0))
    # All uploads are made equal here, which is what the paper says of cluster 1.
    assert [statement for statement, agrees in bad.items() if agrees] == [
        "uploads of cluster 1, longest over shortest"
    ]


def test_run_writes_figures_and_summary(tmp_path):
    done = []
    summary = reproduce.run(
        ["fig3", "fig5"],
        tmp_path / "out",
        PAPER,
        seeds=(1, 2),
        rounds=3,
        progress=lambda now, total: done.append((now, total)),
    )
    assert done[-1] == (70, 70)
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    figures = [f"{name}.{kind}" for name in ("fig3", "fig5") for kind in ("csv", "pdf", "png")]
    assert written == sorted([*figures, "summary.json", "summary.md"])
    assert (tmp_path / "out" / "fig5.pdf").read_bytes().startswith(b"%PDF")
    table = pd.read_csv(tmp_path / "out" / "fig5.csv")
    assert len(table) == 5 * 7
    assert (table["latency_ci95_s"] > 0).all()
    spans = pd.read_csv(tmp_path / "out" / "fig3.csv")
    assert spans.groupby("paradigm").size().to_dict() == dict.fromkeys(
        ("sfl-pp", "pipesfl", "cpsfl"), 10 * 12
    )
    findings = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert len(findings) == len(summary.findings) == 6
    assert len((tmp_path / "out" / "summary.md").read_text().splitlines()) == 2 + 6


def test_unknown_name_writes_nothing(tmp_path):
    with pytest.raises(InputError, match="'fig9' is not one of table2, fig3"):
        reproduce.run(["fig4", "fig9"], tmp_path / "out", PAPER)
    assert not (tmp_path / "out").exists()


@pytest.mark.full
def test_the_paper_is_reproduced(tmp_path):
    summary = reproduce.run(["all"], tmp_path, PAPER)
    assert [f.statement for f in summary.findings if not f.agrees] == []
    (objective,) = (f for f in summary.findings if f.paper == "122.3")
    assert abs(122.3 * objective.deviation) < 0.5
