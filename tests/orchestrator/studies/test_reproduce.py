# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The paper's figures made anew: what is averaged, what is claimed, what is written."""

import io
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from markupsafe import escape
from rich.console import Console

from orchestrator.analysis.statistics import half_width
from orchestrator.campaigning.spec import cells, load_campaign, narrowed
from orchestrator.rounds.loop import predict
from orchestrator.scenario.channel import ns3_source
from orchestrator.scenario.profiles import profile_of
from orchestrator.studies import paper_figures as reproduce
from orchestrator.studies import reproduction
from orchestrator.studies.paper_figures import VERDICTS, Outcomes, trend_of
from orchestrator.studies.reproduction import Finding, Reproduction, Section
from testbed.core.errors import InputError, RunError
from testbed.host.dask_cluster import Cluster

PAPER = load_campaign(Path(__file__).parents[3] / "campaigns" / "paper.yaml")
ALONE = Cluster(workers=0)


def test_answers_are_means_of_predicted_rounds():
    campaign = narrowed(PAPER, studies=["fig4", "fig7"], seeds=[2], rounds=4)
    placed = cells(campaign)[::17]
    assert len({len(cell.point.scenario.uavs.tx_power_w) for cell in placed}) > 2
    done = []
    answers = reproduce.answers_of(placed, 1, ALONE, lambda *now: done.append(now))
    assert done[-1] == (len(placed), len(placed))
    for cell in placed:
        scenario, row = cell.point.scenario, answers[cell.point.id].row
        with ns3_source(scenario) as source:
            rounds = list(predict(scenario, source, profile_of(scenario)))
        assert row["rounds"] == 4
        assert row["latency_s"] == np.mean([r.latency_s for r in rounds])
        assert row["objective"] == np.mean([r.objective for r in rounds])
        assert row["max_energy_j"] == np.mean([r.energy_j.max() for r in rounds])
        uploads = [r.spans[np.isin(r.spans["step"], (2, 6))] for r in rounds]
        on_air_s = sum((u["end_s"] - u["start_s"]).sum() for u in uploads) / len(rounds)
        assert (row["sending_j"] / row["tx_power_w"]).sum() == pytest.approx(on_air_s)


def test_a_point_that_fails_ends_the_reproduction(tmp_path):
    broken = PAPER.model_copy(
        update={"set": PAPER.set | {"allocation.policy": "agent", "allocation.agent": "gone.pt"}}
    )
    with pytest.raises(InputError, match=r"gone\.pt"):
        reproduce.run(["fig3"], tmp_path, broken, cluster=ALONE)
    (tmp_path / "broken.pt").write_bytes(b"no agent")
    agent = {"allocation.policy": "agent", "allocation.agent": str(tmp_path / "broken.pt")}
    broken = PAPER.model_copy(update={"set": PAPER.set | agent})
    with pytest.raises(RunError, match=r"reproduce: .*broken\.pt: not a trained agent"):
        reproduce.run(["fig3"], tmp_path / "out", broken, cluster=ALONE)


def test_interval_is_students():
    # Standard deviation 1, t of 0.975 with 2 degrees of freedom 4.302653.
    assert half_width(np.array([1.0, 2.0, 3.0])) == pytest.approx(4.302653 / np.sqrt(3), rel=1e-6)
    assert np.isnan(half_width(np.array([1.0])))


def outcomes(name, latency_s, objective=None):
    """A study whose latencies, and objectives, are made up: functions of paradigm and tick."""
    study = PAPER.studies[name]
    placed = cells(narrowed(PAPER, studies=[name], seeds=[1, 2]))
    x = study.plot[0].x
    rows = [
        {
            "study": name,
            "x": cell.axes[x],
            "paradigm": cell.axes["paradigm"],
            "seed": cell.seed,
            "rounds": 1,
            "latency_s": latency_s(cell.axes["paradigm"], cell.axes[x]) * (1 + 0.001 * cell.seed),
            "objective": (objective or latency_s)(cell.axes["paradigm"], cell.axes[x]),
            "max_energy_j": 1.0,
            "sending_j": np.array(cell.point.scenario.uavs.tx_power_w) * 2.0,
            "tx_power_w": np.array(cell.point.scenario.uavs.tx_power_w),
        }
        for cell in placed
    ]
    return Outcomes(name, study, pd.DataFrame(rows))


def verdicts(o):
    return {finding.statement: finding.agrees for finding in VERDICTS[o.name](o)}


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


@pytest.mark.parametrize(
    ("savings", "grows", "shrinks"),
    [
        ((10, 12, 15, 20, 21), True, False),
        ((21, 20, 15, 12, 10), False, True),
        ((29.1, 30.6, 33.0, 32.2, 32.1), True, False),  # up and then hardly down
        ((30, 10, 5, 1, 30.01), False, False),  # the last above the first, and nothing else
        ((10, 12, 14, 16, 5), False, False),
        ((10, 14, 12, 16, 11), False, False),  # a rank correlation of 0.3
        ((7, 7, 7, 7, 7), False, False),
    ],
)
def test_a_trend_is_judged_by_all_its_points(savings, grows, shrinks):
    """CPSFL's latency is 1; what it saves over PipeSFL is as given, at each cluster."""

    def latency_s(paradigm, x):
        return 1 / (1 - savings[x - 1] / 100) if paradigm == "pipesfl" else 1.0

    o = outcomes("fig5", latency_s)
    for sign, agrees in ((1, grows), (-1, shrinks)):
        assert reproduce._savings(o, "pipesfl", "", sign, "").agrees == agrees


def test_a_trend_that_seeds_disagree_on_is_none():
    ticks = [1, 2, 3]
    up, down = np.array([1.0, 2.0, 3.0]), np.array([3.0, 2.0, 1.0])
    trend, ci95 = trend_of(ticks, np.stack([up, up], axis=1))
    assert (trend, np.isnan(ci95)) == (1.0, True), "the seeds agree: there is no interval"
    trend, ci95 = trend_of(ticks, np.stack([up, up, up, down], axis=1))
    assert trend == 0.5
    assert ci95 > 0.5
    o = outcomes("fig5", lambda *_: 1.0)
    grows, hardly = np.array([1.0, 2, 3, 4, 5]), np.array([1.0, 5, 2, 4, 3])
    for seeds, agrees in (([grows, grows, grows], True), ([grows, grows, hardly], False)):
        o.savings = lambda than, seeds=seeds: np.stack(seeds, axis=1)
        finding = reproduce._savings(o, "pipesfl", "", 1, "")
        assert finding.agrees == agrees, finding.note


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
    assert done[-1] == (73, 73)
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    figures = [f"{name}.{kind}" for name in ("fig3", "fig5") for kind in ("csv", "pdf", "png")]
    assert written == sorted([*figures, "report.html", "summary.json", "summary.md"])
    page = (tmp_path / "out" / "report.html").read_text()
    assert escape(reproduction.PAPER["title"]) in page
    assert "6 of 6 statements" in page or "statements of the paper hold here; the following" in page
    for title in ("Figure 3", "Figure 5"):
        assert f">{title}</a>" in page
    data = json.loads(re.findall(r'id="data">(.*?)</script>', page)[0])
    assert [one["label"] for one in data["timelines"]] == ["SFL-PP", "PipeSFL", "CPSFL"]
    latency = data["charts"]["fig5-latency"]
    assert len(latency["series"]) == 7
    assert (tmp_path / "out" / "fig5.pdf").read_bytes().startswith(b"%PDF")
    table = pd.read_csv(tmp_path / "out" / "fig5.csv")
    assert len(table) == 5 * 7
    assert (table["latency_ci95_s"] > 0).all()
    cpsfl = table[table["paradigm"] == "cpsfl"]
    (drawn,) = (each for each in latency["series"] if each["label"] == "CPSFL")
    assert drawn["y"] == pytest.approx(cpsfl["latency_s"].to_list(), abs=1e-4)
    widths = [high - low for high, low in zip(drawn["high"], drawn["low"], strict=True)]
    assert widths == pytest.approx((2 * cpsfl["latency_ci95_s"]).to_list(), abs=2e-4)
    spans = pd.read_csv(tmp_path / "out" / "fig3.csv")
    assert spans.groupby("paradigm").size().to_dict() == dict.fromkeys(
        ("sfl-pp", "pipesfl", "cpsfl"), 10 * 12
    )
    findings = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert len(findings) == len(summary.findings) == 6
    assert len((tmp_path / "out" / "summary.md").read_text().splitlines()) == 2 + 6
    for finding in summary.findings:
        assert escape(finding.criterion) in page
        assert finding.criterion


def test_findings_fit_a_log_file():
    """Eighty columns, and nothing cut."""
    long = Finding(
        "fig4", "a statement", "paper's " * 20, "ours", "it is " * 20, False, 0.01, "why"
    )
    file = io.StringIO()
    Console(file=file, width=80).print(
        Reproduction([Section("fig4", "", [long], pd.DataFrame())], "2")
    )
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    words = " ".join(file.getvalue().split())
    for part in (
        long.paper,
        long.criterion,
        "ours (+1.0 %)",
        "0 of 1 statements of the paper hold here",
    ):
        assert part.strip() in words


def test_curves_that_lie_equal_curves_are_named():
    def latency_s(paradigm, x):
        apart = {"sfl-pp": 1.0, "pipesfl": 1.005, "pipesfl-no-ps": 1.005 if x > 6 else 1.02}
        return apart.get(paradigm, 2.0 + sum(map(ord, paradigm)) % 97) * x

    said = reproduce._equal_curves(outcomes("fig7", latency_s).table())
    assert said == "Curves within 1 % of each other: PipeSFL, SFL-PP."


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
