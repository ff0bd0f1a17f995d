# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Held-out curves, the costs of reaching a target, and who reaches it first."""

import math
import re

import numpy as np
import pandas as pd
import pytest

from orchestrator.analysis.learned import (
    CURVE,
    Group,
    Race,
    Target,
    band,
    costs_of,
    curve_of,
    values_of,
)
from testbed.core.errors import InputError
from testbed.core.timeline import SPAN, Round, Timeline

TARGET = Target("accuracy", 0.8)


def curve(*accuracies: float, step_s: float = 10.0) -> pd.DataFrame:
    """Evaluations before the first round and after each; a round takes `step_s` and as many J."""
    rounds = np.arange(len(accuracies))
    loss = 1.0 - np.array(accuracies)
    return pd.DataFrame(
        {
            "round": rounds,
            "time_s": step_s * rounds,
            "energy_j": step_s * rounds,
            "bytes": 100.0 * rounds,
            "accuracy": accuracies,
            "loss": loss,
            "perplexity": np.exp(loss),
        }
    )


def test_a_curve_has_what_was_spent_until_each_evaluation() -> None:
    rounds = [
        Round(
            index=index,
            paradigm="cpsfl",
            split=2,
            start_s=5.0 * index,
            latency_s=5.0,
            energy_j=np.array([1.0, 2.0 + index]),
            objective=0.0,
            spans=np.array([(1, 1, 2, 0, 1, 100), (2, 1, 4, 0, 1, 10 + index)], SPAN),
        )
        for index in range(3)
    ]
    rows = [
        (2, "held-out", 0, 0, 15.0, 0.5, 0.9),
        (0, "train", 1, 1, 2.0, 9.0, 1.0),
        (-1, "held-out", 0, 0, 0.0, 2.0, 0.1),
        (1, "held-out", 0, 0, 10.0, 1.0, 0.6),
    ]
    columns = ["round", "data", "client", "iteration", "time_s", "loss", "accuracy"]
    found = curve_of(pd.DataFrame(rows, columns=columns), Timeline(rounds))
    assert list(found) == list(CURVE)
    assert found["round"].tolist() == [0, 2, 3]
    assert found["time_s"].tolist() == [0, 10, 15]
    assert found["energy_j"].tolist() == [0, 3 + 4, 3 + 4 + 5]
    assert found["bytes"].tolist() == [0, 110 + 111, 110 + 111 + 112]
    assert found["accuracy"].tolist() == [0.1, 0.6, 0.9]
    assert found["perplexity"].tolist() == pytest.approx([math.e**2, math.e, math.e**0.5])
    assert curve_of(pd.DataFrame(), Timeline(rounds)).empty
    assert list(curve_of(pd.DataFrame(), Timeline(rounds))) == list(CURVE)


def test_the_first_evaluation_that_reaches_a_target_counts() -> None:
    ups_and_downs = curve(0.1, 0.8, 0.7, 0.9)
    expected = {"time": 10, "energy": 10, "bytes": 100, "rounds": 1}
    assert costs_of(ups_and_downs, TARGET) == expected
    assert costs_of(ups_and_downs, Target("loss", 0.11)) == {
        cost: 3 * value for cost, value in expected.items()
    }
    perplexity = Target("perplexity", math.exp(0.31))
    assert costs_of(ups_and_downs, perplexity)["time"] == 10
    assert all(map(math.isnan, costs_of(ups_and_downs, Target("accuracy", 0.95)).values()))
    found = values_of(ups_and_downs, TARGET)
    assert found["accuracy"] == 0.9
    assert found["loss"] == pytest.approx(0.1)
    assert found["perplexity"] == pytest.approx(math.exp(0.1))
    assert found["time_to_accuracy"] == found["energy_to_accuracy"] == 10
    assert "time_to_loss" not in found
    assert math.isnan(values_of(curve())["accuracy"])
    diverged = ups_and_downs.assign(loss=math.nan)
    assert math.isnan(costs_of(diverged, Target("loss", 0.5))["time"])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("accuracy", "must be like accuracy=0.8, not 'accuracy'"),
        ("accuracy=high", "must be like accuracy=0.8, not 'accuracy=high'"),
        ("f1=0.8", "'f1' is not one of accuracy, loss, perplexity"),
        ("accuracy=80", "accuracy must be above 0 and at most 1 (0.8 is 80 %), not 80"),
        ("accuracy=0", "accuracy must be above 0"),
        ("accuracy=nan", "accuracy must be above 0"),
        ("loss=-1", "loss must be a number above 0, not -1"),
        ("loss=inf", "loss must be a number above 0, not inf"),
        ("perplexity=0.5", "perplexity must be a number at least 1, not 0.5"),
    ],
)
def test_what_no_evaluation_can_reach_is_no_target(text: str, why: str) -> None:
    with pytest.raises(InputError) as refused:
        Target.parse(text)
    assert str(refused.value).startswith(f"target: {why}")


def test_targets_are_named_in_their_units() -> None:
    assert str(Target.parse("accuracy=0.8")) == "an accuracy of 80 %"
    assert str(Target.parse(" loss = 1.5")) == "a loss of 1.5"
    assert str(Target.parse("perplexity=30")) == "a perplexity of 30"


def test_the_answer_says_who_is_first_and_by_how_much() -> None:
    fast = Group("A", {1: curve(0.1, 0.9), 2: curve(0.1, 0.5, 0.9)})
    slow = Group("B", {1: curve(0.1, 0.9, step_s=20), 2: curve(0.1, 0.5, 0.9, step_s=20)})
    race = Race([slow, fast], TARGET)
    assert race.sentences() == (
        "A reaches an accuracy of 80 % first, after 15 s (10 to 20 s over 2 seeds), "
        "50 % earlier than B (after 30 s)."
    )
    assert race.saving() == (0.5, 0.5, 0.5)
    table = race.table().set_index("name")
    assert table.loc["A", ["seeds", "reached", "time_s", "time_s_low", "time_s_high"]].tolist() == [
        *(2, 2, 15, 10, 20)
    ]
    assert table.loc["B", ["energy_j", "bytes", "rounds", "best"]].tolist() == [30, 150, 1.5, 0.9]


def test_savings_differ_by_seed() -> None:
    one = Group("A", {1: curve(0.1, 0.9, step_s=9), 2: curve(0.1, 0.9, step_s=12)})
    two = Group("B", {1: curve(0.1, 0.9, step_s=10), 2: curve(0.1, 0.9, step_s=20)})
    saved, low, high = Race([one, two], TARGET).saving()
    assert (saved, low, high) == pytest.approx((1 - 21 / 30, 0.1, 0.4))
    assert "30 % (10 to 40 % by seed) earlier than B (after 15 s)." in (
        Race([one, two], TARGET).sentences()
    )


def test_seeds_that_never_reach_it_are_said() -> None:
    often = Group("A", {1: curve(0.1, 0.9), 2: curve(0.1, 0.9)})
    once = Group("B", {1: curve(0.1, 0.9, step_s=5), 2: curve(0.1, 0.6)})
    never = Group("C", {1: curve(0.1, 0.7), 2: curve(0.1, 0.2)})
    race = Race([never, once, often], TARGET)
    assert [group.name for group in race.groups] == ["A", "B", "C"]
    assert race.sentences() == (
        "A reaches an accuracy of 80 % in more seeds than the others (2 of 2), after 10 s "
        "(over 2 seeds). B reaches it in 1 of 2 seeds, after 5 s; C never reaches it."
    )
    slower = Group("B", {1: curve(0.1, 0.9, step_s=20), 2: curve(0.1, 0.6)})
    assert Race([slower, often], TARGET).sentences() == (
        "A reaches an accuracy of 80 % first, after 10 s (over 2 seeds), before B (after 20 s); in "
        "the seed in which both reach it, A is 50 % earlier (10 s against 20 s). B reaches it in 1 "
        "of 2 seeds, after 20 s."
    )
    assert Race([never], TARGET).sentences() == (
        "C never reaches an accuracy of 80 %; the best is 70.0 %."
    )
    assert Race([never, Group("D", {1: curve(0.3)})], TARGET).sentences() == (
        "No result reaches an accuracy of 80 %; the best is 70.0 % (C). Not compared, because "
        "the others lack it: seed 2 of C."
    )
    loss = Race([never, often], Target("loss", 0.01)).sentences()
    assert loss == "No result reaches a loss of 0.01; the best is 0.1 (A)."
    assert Race([Group("E", {1: curve()})], TARGET).sentences() == (
        "E never reaches an accuracy of 80 %: nothing was evaluated on held-out data."
    )
    assert Race([often], TARGET).sentences() == (
        "A reaches an accuracy of 80 %, after 10 s (over 2 seeds)."
    )


def test_equal_times_and_other_seeds() -> None:
    one, two = Group("A", {1: curve(0.1, 0.9)}), Group("B", {1: curve(0.1, 0.9)})
    tie = Race([one, two], TARGET).sentences()
    assert tie == "A and B reach an accuracy of 80 %, at the same time, after 10 s."
    third = Group("C", {1: curve(0.1, 0.2, 0.9)})
    assert Race([third, two, one], TARGET).sentences() == (
        "B and A reach an accuracy of 80 % first, at the same time, after 10 s. "
        "C reaches it after 20 s."
    )
    other = Race([one, Group("B", {2: curve(0.1, 0.9, step_s=20)})], TARGET).sentences()
    assert other.endswith(
        "after 10 s, before B (after 20 s). The results have no seed in common, so that the times "
        "are of different draws."
    )


def test_a_target_that_is_reached_before_the_first_round_is_no_win() -> None:
    reached, late = curve(0.9), curve(0.1, 0.9)
    assert Race([Group("A", {1: reached}), Group("B", {1: reached})], TARGET).sentences() == (
        "Nothing is compared: before the first round, an accuracy of 80 % is already reached by "
        "A (seed 1) and B (seed 1)."
    )
    one, two = Group("A", {1: curve(0.1, 0.1, 0.9), 2: reached}), Group("B", {1: late, 2: late})
    assert Race([one, two], TARGET).sentences() == (
        "B reaches an accuracy of 80 % first, after 10 s, 50 % earlier than A (after 20 s). Not "
        "counted: before the first round, an accuracy of 80 % is already reached by A (seed 2)."
    )


def test_only_common_seeds_are_compared() -> None:
    """A has the smaller mean, and B is first in the seed that both have."""
    one = Group("A", {1: curve(0.1, 0.9, step_s=5.087), 2: curve(0.9)})
    two = Group("B", {1: curve(0.1, 0.9, step_s=4.73)})
    race = Race([one, two], TARGET)
    assert race.sentences() == (
        "B reaches an accuracy of 80 % first, after 4.73 s, 7 % earlier than A (after 5.087 s). "
        "Not compared, because the others lack it: seed 2 of A."
    )
    assert race.table()["seeds"].tolist() == [1, 1]


@pytest.mark.parametrize("number", range(200))
def test_the_numbers_of_the_answer_are_those_of_the_table(number: int) -> None:
    """Random groups: who is named first, the times, and the lead follow from the table."""
    rng = np.random.default_rng(number)
    groups = [
        Group(
            name,
            {
                int(seed): curve(
                    *np.where(rng.random(3) < 0.4, 0.9, 0.1), step_s=float(rng.choice([5, 7, 10]))
                )
                for seed in rng.permutation(4)[: rng.integers(1, 5)]
            },
        )
        for name in "ABC"[: rng.integers(1, 4)]
    ]
    race = Race(groups, TARGET)
    text, table = race.sentences(), race.table()
    common = set.intersection(*(set(group.curves) for group in groups))
    for row in table.to_dict("records"):
        (own,) = (group for group in groups if group.name == row["name"])
        seeds = common or set(own.curves)
        assert row["seeds"] <= len(seeds)
        if row["reached"]:
            assert row["time_s_low"] > 0, "before the first round"
            assert f"{row['time_s']:.4g} s" in text
    named = re.match(r"(\w)(?:(?:, \w)* and \w)? reach(?:es)? .*?(in more seeds|first|,)", text)
    there = table[table["reached"] > 0]
    if named is None:
        assert there.empty
        return
    shares = table["reached"] / table["seeds"].where(table["seeds"] > 0)
    assert named[1] == table["name"][0]
    assert shares[0] == shares.max()
    if named[2] == "first":
        equal = table[shares == shares.max()]
        assert table["time_s"][0] == equal["time_s"].min()
    for lead, _, later in re.findall(
        r"([\d.]+) %( \([^)]*\))? earlier than \w \(after (\S+) s", text
    ):
        assert float(lead) == pytest.approx(100 * (1 - table["time_s"][0] / float(later)), rel=0.06)


def test_a_band_holds_all_seeds_where_all_have_values() -> None:
    curves = [curve(0.0, 0.4, 0.8), curve(0.2, 0.6, 1.0, step_s=5)]
    found = band(curves, "time_s", "accuracy")
    assert found["x"].tolist() == [0, 7.5, 15]
    assert found["low"].tolist() == [0.0, 0.4, 0.8]
    assert found["high"].tolist() == [0.2, 0.6, 1.0]
    assert found["mean"] == pytest.approx([0.1, 0.5, 0.9])
    longer = band([*curves, curve(0.1, 0.3)], "time_s", "accuracy")
    assert longer["x"].tolist() == [0, pytest.approx(25 / 3)]
    by_round = band(curves, "round", "accuracy")
    assert by_round["x"].tolist() == [0, 1, 2]
    assert by_round["mean"] == pytest.approx([0.1, 0.5, 0.9])
    assert len(band([curve()], "round", "loss")["x"]) == 0
    gap = curves[0].assign(loss=[1.0, math.nan, 0.5])
    assert band([gap], "round", "loss")["x"].tolist() == [0, 2]
