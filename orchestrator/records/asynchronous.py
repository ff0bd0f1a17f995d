# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The record of an asynchronous run, whose rounds are played as one: the round of each row."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from orchestrator.analysis.byte_accounts import STEP_OF
from orchestrator.records.emulation import PlayedRound, RoundRecord
from testbed.core.timeline import STEPS

Rounds = Mapping[tuple[int, int, str], int]
"""Index of the round of each finished step, by client, iteration and name of the step."""


def in_rounds(
    record: RoundRecord, played: Sequence[PlayedRound], evaluation: pd.DataFrame | None
) -> RoundRecord:
    """The record with its rounds, and with tables in which each row has the index of its round.

    Rows of steps that were not finished at the end of the run are dropped. Bytes that belong to no
    step of a round are accounted for in the last round.

    Args:
        record: Record of all rounds as one.
        played: The rounds.
        evaluation: Evaluations within the run, as rows of `learning_table`.
    """
    rounds = {
        (client, iteration, STEPS[step]): each.index
        for each in played
        for client, iteration, step, *_ in each.measured.spans[~each.measured.cut].tolist()
    }
    learning = record.learning
    return replace(
        record,
        played=played,
        transfers=_of_steps(record.transfers, record.transfers["step"], rounds),
        budget=replace(
            record.budget,
            steps=_of_steps(record.budget.steps, record.budget.steps["step"], rounds),
        ),
        learning=None
        if learning is None
        else _of_steps(learning, pd.Series("S", learning.index), rounds),
        accounts=_of_messages(record.accounts, rounds, played[-1].index),
        evaluation=evaluation,
    )


def _places(table: pd.DataFrame, steps: "pd.Series[str]", rounds: Rounds) -> "pd.Series[float]":
    keys = zip(table["client"], table["iteration"], steps.astype(str), strict=True)
    return pd.Series([rounds.get(key) for key in keys], table.index, dtype=float)


def _of_steps(table: pd.DataFrame, steps: "pd.Series[str]", rounds: Rounds) -> pd.DataFrame:
    of_round = _places(table, steps, rounds)
    kept = table[of_round.notna()].assign(round=of_round.dropna().astype(int))
    return kept.sort_values("round", kind="stable", ignore_index=True)


def _of_messages(table: pd.DataFrame, rounds: Rounds, last: int) -> pd.DataFrame:
    of_round = _places(table, table["kind"].map(STEP_OF).fillna(""), rounds)
    return table.assign(round=of_round.fillna(last).astype(int))
