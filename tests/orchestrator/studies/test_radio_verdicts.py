# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The paper's statements with another radio: what is measured, what is judged, what is written."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fits
import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from orchestrator.campaigning.spec import cells, load_campaign, narrowed
from orchestrator.studies import radio_figures
from orchestrator.studies.paper_figures import Outcomes
from orchestrator.studies.radio_figures import Judged, Verdicts, fitted_radios, radios
from orchestrator.studies.radio_statements import FIGURES, STATEMENTS, Statement
from testbed.core.errors import InputError
from testbed.core.timeline import CA, CB, CF, CM, SG, SM, SPAN, Round, S
from testbed.host.dask_cluster import Cluster

PAPER = load_campaign(Path(__file__).parents[3] / "campaigns" / "paper.yaml")
ALONE = Cluster(workers=0)
SHANNON = 20.0
"""A value with Shannon's rates."""
BY_NAME = {(s.figure, s.text): s for s in STATEMENTS}


def statement(figure: str, start: str) -> Statement:
    """The statement on a figure whose text starts so."""
    (found,) = (s for (f, text), s in BY_NAME.items() if f == figure and text.startswith(start))
    return found


# --- thresholds ----------------------------------------------------------------------------------


@pytest.mark.parametrize("each", STATEMENTS, ids=lambda s: f"{s.figure}-{s.text[:30]}")
def test_every_statement_may_hold_be_weaker_or_fail(each: Statement) -> None:
    holds, weaker = each.threshold(SHANNON), each.weaker
    worse = np.sign(weaker - holds) * 1e-6
    assert worse
    values = (holds - worse, holds, holds + worse, weaker, weaker + worse)
    judged = [each.judge(value, SHANNON) for value in values]
    assert judged == ["holds", "holds", "weaker", "weaker", "fails"]
    word = "up to" if holds < weaker else "from"
    rule = each.rule(SHANNON)
    assert rule.startswith(f"holds {word} {each.shown(holds)}")
    assert rule.endswith(f"weaker {word} {each.shown(weaker)}")


def test_half_of_shannons_value_holds_where_the_paper_has_no_number() -> None:
    order = statement("fig4", "Priority scheduling")
    assert [order.judge(value, 3.2) for value in (1.6, 1.5, 0.5, 0.49, -3)] == [
        *("holds", "weaker", "weaker", "fails", "fails")
    ]
    assert order.rule(3.2) == "holds from 1.6 (half of Shannon's); weaker from 0.5"
    # Where Shannon's own value is small or negative, nothing counts that is below 0.5.
    for shannon in (0.6, -4.0):
        assert [order.judge(value, shannon) for value in (0.5, 0.49)] == ["holds", "fails"]
        assert order.rule(shannon) == "holds from 0.5"


def test_the_papers_own_number_holds_whatever_shannon_gives() -> None:
    gain = statement("fig4", "CPSFL's latency is more")
    for shannon in (31.5, 80.0):
        assert [gain.judge(v, shannon) for v in (30.0, 29.1, 0.4)] == ["holds", "weaker", "fails"]


def test_values_are_rounded_without_a_sign_of_zero() -> None:
    shown = statement("fig4", "CPSFL's latency is more").shown
    assert [shown(v) for v in (31.46, -1.06, 0.07, -0.07, -0.001, 0.0)] == [
        *("31.5", "−1.1", "0.07", "−0.07", "0.00", "0.0")
    ]


# --- measurements --------------------------------------------------------------------------------


def outcomes(
    figure: str,
    latency_s: Callable[[str, float], float],
    objective: Callable[[str, float], float] | None = None,
    upload_s: Callable[[str, int], float] = lambda name, client: 1.0,
) -> Outcomes:
    """A study with made-up latencies, objectives and times of uploads."""
    study = PAPER.studies[figure]
    rows = []
    for cell in cells(narrowed(PAPER, studies=[figure], seeds=[1, 2])):
        name, x = str(cell.axes["paradigm"]), float(cell.axes[study.plot[0].x])
        powers_w = np.array(cell.point.scenario.uavs.tx_power_w)
        times_s = [upload_s(name, client) for client in range(1, len(powers_w) + 1)]
        rows.append(
            {
                "study": figure,
                "x": x,
                "paradigm": name,
                "seed": cell.seed,
                "rounds": 1,
                "latency_s": latency_s(name, x) * (1 + 0.1 * cell.seed),
                "objective": (objective or latency_s)(name, x),
                "max_energy_j": 1.0,
                "sending_j": powers_w * times_s,
                "tx_power_w": powers_w,
            }
        )
    return Outcomes(figure, study, pd.DataFrame(rows))


LATENCY_S = {
    "cpsfl": 6.0,
    "cpsfl-no-at": 8.0,
    "cpsfl-no-ps": 6.25,
    "pipesfl": 10.0,
}


def scaled(factor: Callable[[float], float]) -> Callable[[str, float], float]:
    """The latencies above, others 12 s, times a factor of the tick."""
    return lambda name, x: LATENCY_S.get(name, 12.0) * factor(x)


def measured(figure: str, start: str, o: Any) -> float:
    return statement(figure, start).measure(o)


def test_savings_are_parts_of_the_others_latency() -> None:
    o = outcomes("fig4", scaled(lambda x: 8 / x))
    assert measured("fig4", "CPSFL's latency is more", o) == pytest.approx(40)
    assert measured("fig4", "Asynchronous", o) == pytest.approx(25)
    assert measured("fig4", "Priority", o) == pytest.approx(4)
    assert measured("fig4", "CPSFL has the lowest", o) == pytest.approx(4)
    assert measured("fig4", "Latency falls", o) == pytest.approx(25)  # from u = 3 to 4


def test_the_worst_tick_decides_on_the_lowest_latency() -> None:
    def latency_s(name: str, x: float) -> float:
        return 5.0 if (name, x) == ("cpsfl-no-ps", 12) else scaled(lambda x: x)(name, x) / x

    o = outcomes("fig7", latency_s)
    assert measured("fig7", "CPSFL has the lowest", o) == pytest.approx(-20)
    assert statement("fig7", "CPSFL has").judge(-20, 1) == "fails"


def test_growth_is_fitted_to_all_ticks() -> None:
    savings = {6: 0.10, 9: 0.30, 12: 0.20, 15: 0.40, 18: 0.30}

    def latency_s(name: str, x: float) -> float:
        return 1 / (1 - savings[int(x)]) if name == "pipesfl" else 1.0

    o = outcomes("fig7", latency_s)
    # Slope (-2*10 - 1*30 + 1*40 + 2*30) / 10 = 5 points per tick, over four steps.
    assert measured("fig7", "The gain over", o) == pytest.approx(20)
    falling = outcomes("fig4", lambda n, x: 1 / (1 - 0.1 / x) if n == "pipesfl" else 1.0)
    assert measured("fig4", "The gain over", falling) == pytest.approx(7.25)
    even = outcomes("fig5", scaled(lambda x: 1.0))
    for start in ("The gain from", "The gain over"):
        assert measured("fig5", start, even) == pytest.approx(0)
    grown = outcomes("fig5", lambda n, x: 1 + 0.1 * x * (n == "cpsfl-no-ps"))
    assert measured("fig5", "The gain from", grown) > 20
    assert measured("fig5", "The gain over", grown) == pytest.approx(0)


def test_rises_and_falls_are_those_of_every_paradigm() -> None:
    o = outcomes("fig7", lambda name, x: x if name != "sfl-pp" else 10 + (x == 12))
    assert measured("fig7", "Latency rises", o) == pytest.approx(100 * (10 / 11 - 1))
    o = outcomes("fig6", lambda name, x: 1 + x)
    assert measured("fig6", "Latency grows", o) == pytest.approx(1)
    o = outcomes("fig6", lambda name, x: 1 + x**3 * (name == "pipesfl") + x)
    assert 0.8 < measured("fig6", "Latency grows", o) < 0.95


def test_the_best_split_is_that_of_the_objective() -> None:
    objectives = {1: 100.0, 2: 80.0, 3: 110.0, 4: 120.0}
    o = outcomes("fig4", scaled(lambda x: x), lambda name, x: objectives[int(x)])
    assert measured("fig4", "u = 2", o) == pytest.approx(20)
    objectives |= {4: 50.0}
    o = outcomes("fig4", scaled(lambda x: x), lambda name, x: objectives[int(x)])
    assert measured("fig4", "u = 2", o) == pytest.approx(-60)
    o = outcomes("fig6", scaled(lambda x: x), lambda n, x: 24.0 * x if n == "cpsfl" else 1.0)
    assert measured("fig6", "The objective", o) == pytest.approx(120)


def test_uploads_are_those_of_uavs_that_send_at_the_same_time() -> None:
    def upload_s(name: str, client: int) -> float:
        return 9.0 * client if name != "sfl-pp" else 3.0 if client > 10 else 2.0

    o = outcomes("fig5", scaled(lambda x: x), upload_s=upload_s)
    assert measured("fig5", "The uploads of all", o) == pytest.approx(1.5)
    assert measured("fig5", "The uploads of the last", o) == pytest.approx(1.5)


def played(name: str, latency_s: float, gradient_s: float, computing_s: float) -> Round:
    """A round of two UAVs in which each step of the same kind takes the same time."""
    spans = []
    for client in (1, 2):
        at_s = 5.0
        for step, takes_s in ((CF, computing_s), (S, computing_s), (SG, gradient_s), (CB, 0.1)):
            spans.append((client, 1, step, at_s, at_s + takes_s, 0))
            at_s += takes_s
    return Round(0, name, 2, 5.0, latency_s, np.ones(2), 1.0, np.array(spans, SPAN))


def test_figure_3_is_measured_on_its_steps() -> None:
    rounds = [
        played("sfl-pp", 10.0, 4.0, 0.2),
        played("pipesfl", 9.5, 4.0, 0.2),
        played("cpsfl", 7.6, 1.0, 0.2),
    ]
    assert measured("fig3", "PipeSFL improves", rounds) == pytest.approx(5)
    assert measured("fig3", "CPSFL is faster", rounds) == pytest.approx(20)
    assert measured("fig3", "Communication", rounds) == pytest.approx(100 * 0.5 / 7.6)
    assert measured("fig3", "With the whole", rounds) == pytest.approx(0.25)


def test_a_direction_is_in_use_while_any_uav_uses_it() -> None:
    spans = [
        (1, 1, CA, 5.0, 7.0, 1),
        (2, 1, CA, 6.0, 8.0, 1),
        (3, 1, CA, 6.5, 6.75, 1),
        (1, 1, CM, 10.0, 11.0, 1),
        (1, 1, SM, 5.0, 5.5, 1),
    ]
    round_ = Round(0, "cpsfl", 2, 5.0, 8.0, np.ones(3), 1.0, np.array(spans, SPAN))
    assert radio_figures._used(round_, (CA, CM)) == pytest.approx(4 / 8)
    assert radio_figures._used(round_, (SM, SG)) == pytest.approx(0.5 / 8)


# --- radios, pages and files ---------------------------------------------------------------------


def test_radios_differ_in_access_noise_and_fading_alone() -> None:
    made = radios(-114.0)
    assert made["shannon"] == {}
    assert made["lte"] == {"radio.access": "lte"}
    assert made["shannon, 10 dB less"] == {"radio.noise_dbm_per_mhz": -104.0}
    assert made["lte, Rayleigh fading, 20 dB less"] == {
        "radio.access": "lte",
        "radio.fading": "rayleigh",
        "radio.fading_block": "slot",
        "radio.noise_dbm_per_mhz": -94.0,
    }
    assert made["lte, scheduler shares"]["radio.lte.scheduler"] == "shares"
    names = list(made)
    for name in names[:5]:
        assert f"lte{name.removeprefix('shannon')}" in names
    nr = radios(-114.0, "nr")
    assert [name.replace("lte", "nr") for name in names[:-1]] == list(nr)[:-2]
    assert nr["nr"]["radio.nr.duplex"] == "tdd"
    assert nr["nr"]["radio.uplink_bandwidth_hz"] == nr["nr"]["radio.downlink_bandwidth_hz"] == 100e6
    assert nr["nr, 20 MHz FDD"] == {"radio.access": "nr"}
    assert nr["nr, scheduler shares"] == nr["nr"] | {"radio.nr.scheduler": "shares"}


@pytest.mark.parametrize(("access", "name"), [("lte", "LTE"), ("nr", "5G NR")])
def test_the_sentence_counts_verdicts_and_names_the_gains(access: str, name: str) -> None:
    names = list(radios(-114, access))
    facts = pd.DataFrame(
        [{"radio": r} | dict.fromkeys(list(radio_figures.FACTS)[1:], 1.0) for r in names]
    )

    def judged(each: Statement, **values: float) -> Judged:
        weak = values.get("weak", values["cell"])
        own = {"shannon": values["shannon"], access: values["cell"]}
        own |= {f"{access}, 20 dB less": weak}
        return Judged(each, dict.fromkeys(names, 0.0) | own)

    gain, order, lowest, falls = (
        statement("fig4", start) for start in ("CPSFL's lat", "Priority", "CPSFL has", "Latency f")
    )
    made = Verdicts(
        [
            judged(gain, shannon=31.5, cell=29.1, weak=0.1),
            judged(order, shannon=3.0, cell=0.07),
            judged(lowest, shannon=1.0, cell=1.0),
            judged(falls, shannon=15.0, cell=20.0),
        ],
        facts,
        "some rounds",
    )
    assert made.headline() == (
        f"Under {name}, 2 of the paper's 4 statements hold, 1 are weaker and 1 fail; with "
        "Shannon's rates, 4 hold: CPSFL's latency is 29.1 % below PipeSFL's (Shannon: 31.5 %) "
        "and 0.1 % with 20 dB less signal, and priority scheduling saves 0.07 % (Shannon: 3.0 %)."
    )
    file = io.StringIO()
    Console(file=file, width=80).print(made)
    text = " ".join(file.getvalue().split())
    assert max(map(len, file.getvalue().splitlines())) <= 80
    assert "paper's signal ≈ 29.1; 10 dB less ✕ 0.0; 20 dB less ✕ 0.1" in text
    assert "(some rounds)" in text
    only = Verdicts([judged(statement("fig7", "Latency"), shannon=9.0, cell=9.0)], facts, "one")
    assert only.headline() == (
        f"Under {name}, 1 of the paper's 1 statements hold, 0 are weaker and 0 fail; with "
        "Shannon's rates, 1 hold."
    )


def test_a_run_writes_one_verdict_per_statement_and_radio(tmp_path: Path) -> None:
    done: list[tuple[int, int]] = []
    made = radio_figures.run(
        ["fig4", "fig3"],
        tmp_path / "out",
        PAPER,
        seeds=(1,),
        rounds=1,
        cluster=ALONE,
        progress=lambda now, total: done.append((now, total)),
    )
    names = list(radios(-114))
    assert done[-1] == ((4 * 7 + 3) * len(names),) * 2
    stems = [f"{figure}_{radio}" for figure in ("fig3", "fig4") for radio in ("shannon", "lte")]
    files = [f"{stem}.{kind}" for stem in stems for kind in ("pdf", "png")]
    files += [f"{name}.csv" for name in ("fig3", "fig4", "radios", "verdicts")]
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert written == sorted([*files, "report.html", "verdicts.json"])
    rows = json.loads((tmp_path / "out" / "verdicts.json").read_text())
    asked = [s for s in STATEMENTS if s.figure in {"fig3", "fig4"}]
    assert [(r["figure"], r["statement"], r["radio"]) for r in rows] == [
        (s.figure, s.text, name) for s in asked for name in names
    ]
    for row in rows:
        assert list(row) == ["figure", "statement", "radio", "verdict", "value", "paper"]
        assert row["verdict"] in {"holds", "weaker", "fails"}
        assert isinstance(row["value"], float)
        assert isinstance(row["paper"], str)
    by_radio = {r["radio"]: r for r in rows if r["statement"].startswith("CPSFL's latency is more")}
    assert by_radio["shannon"]["value"] > 30
    assert by_radio["shannon"]["verdict"] == "holds"
    assert 28 < by_radio["lte"]["value"] < 30
    assert by_radio["lte"]["verdict"] == "weaker"
    assert by_radio["lte, 20 dB less"]["verdict"] == "fails"
    facts = made.facts.set_index("radio")
    assert facts.loc["lte", "highest_mcs_percent"] == 100
    assert facts.loc["lte", "slowest_uplink_mbps"] == facts.loc["lte", "fastest_uplink_mbps"]
    assert np.isnan(facts.loc["shannon", "highest_mcs_percent"])
    assert facts.loc["lte, 20 dB less", "highest_mcs_percent"] < 30
    assert set(pd.read_csv(tmp_path / "out" / "fig4.csv")["radio"]) == set(names)
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.index(made.headline().split(":")[0].replace("'", "&#39;")) < page.index("<table>")
    for each in made.judged:
        assert each.cell("lte") in page


def test_a_run_with_nr_is_judged_and_explained_by_its_own_numbers(tmp_path: Path) -> None:
    made = radio_figures.run(
        ["fig3"], tmp_path / "out", PAPER, seeds=(1,), rounds=1, access="nr", cluster=ALONE
    )
    names = list(radios(-114, "nr"))
    rows = json.loads((tmp_path / "out" / "verdicts.json").read_text())
    asked = [s for s in STATEMENTS if s.figure == "fig3"]
    assert [(r["statement"], r["radio"]) for r in rows] == [
        (s.text, name) for s in asked for name in names
    ]
    assert made.headline().startswith("Under 5G NR, ")
    facts = made.facts.set_index("radio")
    # One NR slot of four is the uplink's, with 13 times as many blocks as LTE has of 180 kHz.
    assert facts.loc["nr", "uplink_used_percent"] > 2 * facts.loc["nr", "downlink_used_percent"]
    assert facts.loc["nr, 20 MHz FDD", "highest_mcs_percent"] == 100
    assert facts.loc["nr", "highest_mcs_percent"] > facts.loc["nr, 10 dB less"].iloc[2]
    page = (tmp_path / "out" / "report.html").read_text()
    assert f"is in use in {facts.loc['nr', 'uplink_used_percent']:.0f} % of the time" in page
    assert "under 5G NR" in page
    assert "LTE" not in page.split('id="provenance"')[0].split("<body")[1]


# --- on a fitted channel -------------------------------------------------------------------------


def fit_with(link: Any = None, **keys: Any) -> dict[str, Any]:
    """The content of a file of a fit."""
    return {"channel": fits.channel(**keys), "link": link, "flights": 7}


def test_a_fit_sets_channel_and_link() -> None:
    channel = fits.channel()
    plain = {"radio.access": "lte", "radio.channel": "fitted", "radio.fitted": channel}
    nulls = {"implementation_margin_db": None, "highest_snr_db": None}
    for link in (None, {}, nulls, {"goodput_bps": 1e6}):
        assert fitted_radios(fit_with(link)) == {"shannon": {}, "fitted": plain}
    link = {"implementation_margin_db": 5.5, "highest_snr_db": 24}
    assert fitted_radios(fit_with(link))["fitted"] == plain | {
        "radio.lte.implementation_margin_db": 5.5,
        "radio.lte.highest_snr_db": 24,
    }
    assert fitted_radios({"channel": channel})["fitted"] == plain


@pytest.mark.parametrize(
    ("link", "says"),
    [
        ([1], "^--fit: link: must be an object"),
        ({"highest_snr_db": 61}, r"radio\.lte\.highest_snr_db: must be "),
        ({"implementation_margin_db": "x"}, r"radio\.lte\.implementation_margin_db: must be"),
    ],
)
def test_a_link_that_cannot_be_is_refused_before_anything_is_written(
    tmp_path: Path, link: Any, says: str
) -> None:
    with pytest.raises(InputError, match=says):
        radio_figures.run(["fig3"], tmp_path / "out", PAPER, fit=fit_with(link))
    assert not (tmp_path / "out").exists()


def test_statements_are_judged_on_a_fitted_channel_beside_shannons_rates(tmp_path: Path) -> None:
    link = {"implementation_margin_db": 5.0, "highest_snr_db": 20.0}
    made = radio_figures.run(
        ["fig3", "fig4"],
        tmp_path,
        PAPER,
        seeds=(1,),
        rounds=1,
        fit=fit_with(link),
        cluster=ALONE,
    )
    rows = json.loads((tmp_path / "verdicts.json").read_text())
    asked = [s for s in STATEMENTS if s.figure in {"fig3", "fig4"}]
    assert [(r["statement"], r["radio"]) for r in rows] == [
        (s.text, radio) for s in asked for radio in ("shannon", "fitted")
    ]
    assert all(list(row) == list(rows[0]) and len(row) == 6 for row in rows)
    assert all(row["verdict"] in {"holds", "weaker", "fails"} for row in rows)
    for name in ("fig3_fitted.png", "fig4_fitted.pdf", "fig4_shannon.pdf", "fig4.csv"):
        assert (tmp_path / name).is_file()
    assert made.notes == []
    facts = made.facts.set_index("radio")
    assert facts.loc["fitted", "highest_mcs_percent"] == 0  # MCS 28 needs more than 20 dB
    assert made.headline().startswith("Under LTE on the fitted channel, ")
    assert "20 dB less signal" not in made.headline()
    page = (tmp_path / "report.html").read_text()
    assert "The paper&#39;s statements" in page or "The paper's statements" in page
    assert fits.channel()["digest"] in page
    assert "constant pipe" not in page
    assert "not judged" not in page
    for each in made.judged:
        assert each.cell("fitted") in page


def test_channels_on_which_a_uav_is_out_of_range_are_omitted_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = "the uplink of UAV 10 carries less than 0.1 Mbit/s on average in the first 600 s"
    monkeypatch.setattr(radio_figures, "_slow_link", lambda s: reason if s.seed == 1 else None)
    out = tmp_path / "some"
    made = radio_figures.run(
        ["fig3", "fig4"], out, PAPER, seeds=(1, 2), rounds=1, fit=fit_with(), cluster=ALONE
    )
    table = pd.read_csv(out / "fig4.csv").groupby("radio")["seeds"].unique()
    assert table["shannon"].tolist() == [2]
    assert table["fitted"].tolist() == [1]
    why = f"a UAV is out of range, so that rounds would take hours or never end (e.g. {reason})"
    assert made.notes == [
        f"Figure 3, LTE, fitted: on 1 of 1 channels {why}; its statements cannot be judged.",
        f"Figure 4, LTE, fitted: on 1 of 2 channels {why}; the means are over the other 1.",
    ]
    for row in json.loads((out / "verdicts.json").read_text()):
        if row["radio"] == "fitted":
            is_judged = row["figure"] == "fig4"
            assert row["note"] == made.notes[is_judged]
            assert (row["value"] is not None) == is_judged
            assert (row["verdict"] != "not judged") == is_judged
        else:
            assert "note" not in row
    page = (out / "report.html").read_text()
    for note in made.notes:
        assert note in page
    assert not (out / "fig3_fitted.png").exists()
    assert ", and 4 cannot be judged; with Shannon" in made.headline()
    assert "CPSFL's latency is" in made.headline()


def test_a_signal_that_is_too_weak_does_not_end_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither before the points are computed nor meanwhile."""
    weak = fit_with(up=fits.UP | {"offset_db": -90.0})
    for name, looks in (("first", True), ("meanwhile", False)):
        if not looks:
            monkeypatch.setattr(radio_figures, "_slow_link", lambda s: None)
        made = radio_figures.run(
            ["fig3"], tmp_path / name, PAPER, seeds=(1,), rounds=1, fit=weak, cluster=ALONE
        )
        (note,) = made.notes
        assert "carries" in note
        assert note.endswith("its statements cannot be judged.")
        assert made.counts("fitted") == {"not judged": 4}
        assert made.counts("shannon")["holds"] > 0
        file = io.StringIO()
        Console(file=file, width=500).print(made)
        assert note in file.getvalue()
        assert "– not judged" in file.getvalue()
        assert "nan" not in file.getvalue()
        assert "nan" not in (tmp_path / name / "verdicts.csv").read_text()


def test_a_link_is_slow_by_its_mean_rate() -> None:
    def scenario(**directions: float) -> Any:
        ways = {
            way: getattr(fits, way.upper()) | {"offset_db": offset_db, "scatter_db": 0}
            for way, offset_db in directions.items()
        }
        (found,) = {
            cell.point.scenario.seed: cell.point.scenario
            for cell in cells(
                narrowed(
                    PAPER.model_copy(
                        update={"set": PAPER.set | fitted_radios(fit_with(**ways))["fitted"]}
                    ),
                    studies=["fig3"],
                )
            )
        }.values()
        return found

    assert radio_figures._slow_link(scenario(up=-12.0, down=-9.0)) is None
    up = radio_figures._slow_link(scenario(up=-90.0, down=-9.0))
    assert up is not None
    assert up.startswith(
        "the uplink of UAV 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 carries less than 0.1 Mbit/s"
    )
    down = radio_figures._slow_link(scenario(up=-12.0, down=-110.0))
    assert down is not None
    assert down.startswith("the downlink of UAV 1, 2")


@pytest.mark.parametrize("figure", FIGURES)
def test_each_figure_has_statements(figure: str) -> None:
    assert sum(s.figure == figure for s in STATEMENTS) >= 3


@pytest.mark.parametrize("name", ["table2", "fig8", "fig9"])
def test_only_figures_3_to_7_have_statements_on_latency(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=rf"^reproduce: '{name}' is not one of fig3, .*, all$"):
        radio_figures.run(["fig4", name], tmp_path / "out", PAPER)
    assert not (tmp_path / "out").exists()
