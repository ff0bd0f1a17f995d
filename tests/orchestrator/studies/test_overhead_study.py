# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What the overhead study counts as a round's bytes."""

import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from all_pages import overhead_outcome
from packet_cases import small
from rich.console import Console
from synthetic_run import make_run

from orchestrator.analysis.byte_accounts import BYTES, SET_UP
from orchestrator.records.reader import read_run
from orchestrator.studies.overhead import (
    bytes_of_a_round,
    bytes_table,
    outcome_of,
    waterfall_table,
)
from orchestrator.studies.overhead_page import sweep_verdict, verdict, write


def accounts(*rows: tuple[int, str, float]) -> pd.DataFrame:
    """A frame a row: round, direction, bytes of payload and as many of handshakes."""
    return pd.DataFrame(
        {
            "round": round_,
            "direction": direction,
            **dict.fromkeys(BYTES, 0.0),
            "payload_bytes": size,
            "handshake_bytes": size,
        }
        for round_, direction, size in rows
    )


def test_what_a_uav_sends_to_come_back_is_no_bytes_of_a_round() -> None:
    run = [
        accounts((SET_UP, "up", 1000.0), (SET_UP, "down", 1000.0)),
        accounts((0, "up", 10.0), (0, "up", 20.0), (0, "down", 5.0)),
        # A UAV that was lost comes back before round 1, and greets again.
        accounts((SET_UP, "up", 500.0), (1, "up", 40.0), (1, "down", 7.0)),
    ]
    up, down = (bytes_of_a_round(pd.concat(run), way) for way in ("up", "down"))
    assert up == dict.fromkeys(BYTES, 0.0) | {"payload_bytes": 35.0, "handshake_bytes": 35.0}
    assert (down["payload_bytes"], down["handshake_bytes"]) == (6.0, 6.0)


def test_an_outcome_has_the_means_of_the_rounds_of_a_run(tmp_path: Path) -> None:
    run = read_run(make_run(tmp_path / "run", rounds=2))
    bytes_ = accounts((0, "up", 10.0), (0, "down", 5.0), (1, "up", 30.0), (1, "down", 7.0))
    causes = [(0, "payload", 1.0), (0, "headers", 0.5), (1, "payload", 3.0), (1, "headers", 0.1)]
    parts = pd.DataFrame(causes, columns=["round", "part", "seconds"])
    run.tables.update(accounts=bytes_, waterfall=parts)
    outcome = outcome_of("quic", run)
    assert (outcome.up_bytes["payload_bytes"], outcome.down_bytes["payload_bytes"]) == (20.0, 6.0)
    assert outcome.parts_s == pytest.approx({"payload": 2.0, "headers": 0.3})
    for kind in ("predicted", "predicted_wire", "measured"):
        mean_s = np.mean([round_.latency_s for round_ in getattr(run, kind)])
        assert getattr(outcome, f"{kind}_s") == mean_s
    assert (outcome.value, outcome.valid) == ("quic", not outcome.complaints)


def test_verdict_names_shares_of_bytes_and_what_adds_latency() -> None:
    bytes_ = dict.fromkeys(BYTES, 0.0) | {"payload_bytes": 900e3, "header_bytes": 80e3}
    down = bytes_ | {"header_bytes": 100e3, "ack_bytes": 20e3}
    parts = {"payload": 1.0, "computing": 2.0, "headers": 0.2, "delay": 0.1, "rest": -0.05}
    outcome = overhead_outcome("", up_bytes=bytes_, down_bytes=down, parts_s=parts, measured_s=3.25)
    assert verdict(outcome) == [
        "The links carry 2.00 MB per round: 90 % payload and 10 % overhead, mostly packet headers "
        "(9.0 %).",
        "A round takes 3.250 s: 1.000 s for the payload and 2.000 s for computing; protocols add "
        "+300.0 ms (+9.2 %), and the emulation −50.0 ms (−1.5 %).",
    ]
    assert outcome.overhead == pytest.approx(1 / 9)


def test_verdict_of_a_sweep_names_its_extremes() -> None:
    outcomes = [overhead_outcome(v, measured_s=s) for v, s in (("1", 5.0), ("2", 4.0), ("3", 6.0))]
    more = {"header_bytes": 9e5, "payload_bytes": 9e6}
    outcomes[1] = overhead_outcome("2", measured_s=4.0, up_bytes=outcomes[1].up_bytes | more)
    of_bytes, of_latency = sweep_verdict("x.y", outcomes)
    assert of_bytes.startswith("Overhead is smallest with x.y = 1 ")
    assert "largest with x.y = 2 (" in of_bytes
    assert of_latency == (
        "A round is shortest with x.y = 2 (4.000 s) and longest with x.y = 3 (6.000 s)."
    )


def test_tables_have_titles_and_no_rows_of_zeros() -> None:
    file = io.StringIO()
    console = Console(file=file, width=120)
    outcome = overhead_outcome("")
    console.print(bytes_table(outcome))
    console.print(waterfall_table(outcome))
    printed = file.getvalue()
    assert printed.count("spurious retransmissions") == 2
    assert "_" not in printed
    assert "QUIC" not in printed


def test_page_begins_with_the_verdict(tmp_path: Path) -> None:
    outcome = overhead_outcome("", valid=False, complaints=["CPU time of others: 90 %"])
    path = write(tmp_path / "out", "", [outcome], small())
    html = path.read_text()
    warning, sentence = html.index("CPU time of others: 90 %"), html.index(verdict(outcome)[0])
    assert warning < sentence < html.index('id="waterfall-0"')
    assert "resent_spurious" not in html
    assert "QUIC" not in html
    assert sorted(each.name for each in path.parent.iterdir()) == [
        "bytes.csv",
        "overhead.html",
        *("waterfall.csv", "waterfall.pdf", "waterfall.png"),
    ]
