# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The log of a radio: activities of links, due times, tables, and its parts of the error budget."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from packet_cases import small

from orchestrator.analysis.byte_accounts import BYTES
from orchestrator.analysis.error_budget import KEYS, RADIO_PARTS, error_budget, transfer_errors
from orchestrator.analysis.radio_log import (
    AGAIN,
    ASKED,
    EMPTIED,
    FILE_RECORD,
    FILLED,
    INTERRUPTED,
    JOINS_CELL,
    LEAVES_CELL,
    LOST,
    NEW,
    NO_SINR,
    RECORD,
    SENT,
    SERVED,
    RadioLog,
    cells,
    grants,
    handovers,
    outages,
    read_log,
    slots_in,
)
from orchestrator.analysis.waterfall import PART_OF, PARTS, waterfalls
from orchestrator.engine.access import LinkRates
from orchestrator.engine.lte import (
    DELIVERY_TTIS,
    LTE_TIMES,
    REQUEST_TTIS,
    TAKEN_TTIS,
    TTI_S,
    Lte,
)
from orchestrator.engine.plan import (
    RoundPlan,
    fixed_allocation,
    link_bytes,
    payload_bytes,
    plan_round,
)
from orchestrator.engine.tcp_model import TcpModel, tcp_model_of
from orchestrator.rounds.simulation import RoundTimes, round_of, round_of_spans, simulate
from orchestrator.scenario.profiles import profile_of
from testbed.core.errors import InputError
from testbed.core.timeline import CA, CM, SG, SM, STEPS, Round

UP, DOWN = 0, 1
SLOT_S = 0.1
GAIN = np.full((3, 600), 1e-9)
MTU = 1500


def records(rows: list[tuple[float, int, int]], uav: int = 0, **fields: Any) -> np.ndarray:
    """Records of (ms, kind, direction) of one UAV, by time; blocks have 1002 B, 10 RB, MCS 5."""
    made = np.zeros(len(rows), RECORD)
    for at, (time_ms, kind, direction) in enumerate(rows):
        made[at]["time_ns"], made[at]["kind"] = round(time_ms * 1e6), kind
        made[at]["direction"], made[at]["uav"] = direction, uav
        if kind in (NEW, AGAIN, SENT):
            made[at]["bytes"], made[at]["blocks"], made[at]["mcs"] = 1002, 10, 5
    for name, value in fields.items():
        made[name] = value
    return made[np.argsort(made["time_ns"], kind="stable")]


def log_of(made: np.ndarray) -> RadioLog:
    return RadioLog(made, lambda ns: ns * 1e-9, MTU)


def granted(first_ms: float, blocks: int, way: int = DOWN) -> list[Any]:
    """Grants in consecutive TTIs."""
    return [(first_ms + block, NEW, way) for block in range(blocks)]


def sent(first_ms: float, blocks: int, way: int = DOWN) -> list[Any]:
    """Grants in consecutive TTIs, and the data that are sent in them."""
    left = [(ms + TAKEN_TTIS[way], SENT, way) for ms, _, _ in granted(first_ms, blocks, way)]
    return [*granted(first_ms, blocks, way), *left]


SIMPLE = [(2, FILLED, DOWN), *sent(3, 10), (12, EMPTIED, DOWN)]


@pytest.mark.parametrize(
    ("rows", "waiting", "harq", "served", "idle"),
    [
        (SIMPLE, 1, 0, 10, 9),
        # Its grant comes 5 ms late.
        ([(2, FILLED, DOWN), *sent(8, 10), (17, EMPTIED, DOWN)], 6, 0, 10, 4),
        # Every second TTI is another UAV's.
        ([(2, FILLED, DOWN), *(row for n in range(7) for row in sent(3 + 2 * n, 1)),
          (15, EMPTIED, DOWN)], 1, 0, 13, 6),
        # A block is sent again between others,
        ([(2, FILLED, DOWN), *sent(3, 6), (8, LOST, DOWN), (9, AGAIN, DOWN), *sent(10, 4),
          (13, EMPTIED, DOWN)], 1, 1, 10, 8),
        # … or after them,
        ([*SIMPLE, (16, LOST, DOWN), (18, AGAIN, DOWN)], 1, 6, 10, 3),
        # … or the only one.
        ([(2, FILLED, DOWN), *sent(3, 1), (3, EMPTIED, DOWN), (11, AGAIN, DOWN)], 1, 8, 1, 10),
        # A retransmission that has nothing to do with what was sent before.
        ([*SIMPLE, (18, AGAIN, UP)], 1, 0, 10, 9),
        # The queue is empty for 4 ms, and waits again.
        ([(2, FILLED, DOWN), *sent(3, 5), (7, EMPTIED, DOWN), (11, FILLED, DOWN), *sent(12, 5),
          (16, EMPTIED, DOWN)], 2, 0, 10, 8),
        # Blocks are granted that nothing is sent in.
        ([*SIMPLE, *granted(13, 4)], 1, 0, 10, 9),
        # It was filled before the log begins, and never emptied: it waits for its first block.
        ([*sent(6, 2), (7, EMPTIED, DOWN), (15, FILLED, DOWN)], 0, 0, 2, 18),
        ([(2, FILLED, DOWN), *sent(3, 1)], 1, 0, 1, 18),
        ([(2, FILLED, DOWN), (9, EMPTIED, DOWN)], 7, 0, 0, 13),
        ([], 0, 0, 0, 20),
    ],
)  # fmt: skip
def test_a_link_waits_repeats_serves_or_is_idle(rows, waiting, harq, served, idle) -> None:
    found = log_of(records(rows)).link(DOWN, 1).activity(0.0, 0.02)
    assert found == pytest.approx(np.array([waiting, harq, served, idle, 0, 0, 0]) / 1e3, abs=1e-12)


def test_retransmissions_count_from_their_slot_not_from_their_record() -> None:
    times = LTE_TIMES._replace(taken=(-2.0, -2.0), noted=(1.0, 1.0))
    rows = [(2, FILLED, DOWN), *((ms, SENT, DOWN) for ms in (3, 4, 6)), (6, EMPTIED, DOWN)]
    # Blocks are noted 3 TTIs after their data have left; what leaves at 5 ms is sent again.
    rows += [*((ms + 3, NEW, DOWN) for ms in (3, 4, 6)), (8, AGAIN, DOWN)]
    log = replace(log_of(records(rows)), times=times)
    found = log.link(DOWN, 1).activity(0.0, 0.02)
    assert found == pytest.approx(np.array([1, 1, 3, 15, 0, 0, 0]) / 1e3, abs=1e-12)
    due_s = 6e-3 + (2 + 1 + times.delivery[DOWN]) * TTI_S
    assert log.link(DOWN, 1).due_s(0.0, 2500) == pytest.approx(due_s)


@pytest.mark.parametrize("tti_ms", [0.5, 0.25])
def test_all_times_are_counted_in_ttis(tti_ms: float) -> None:
    rows = [
        *((2, FILLED, UP), *sent(7, 10, UP), (16 + TAKEN_TTIS[UP], EMPTIED, UP)),
        *((40, FILLED, UP), (45, ASKED, UP), *sent(46, 3, UP), (50, AGAIN, UP), (51, LOST, UP)),
    ]
    whole = records(rows, blocks=273)
    short = whole.copy()
    short["time_ns"] = np.rint(whole["time_ns"] * tti_ms)
    one, other = log_of(whole), replace(log_of(short), times=LTE_TIMES._replace(tti_s=tti_ms / 1e3))
    for end_s in (0.01, 0.05, 0.1):
        found = other.link(UP, 1).activity(0.0, end_s * tti_ms)
        expected = tti_ms * np.array(one.link(UP, 1).activity(0.0, end_s))
        assert found == pytest.approx(expected, abs=1e-8)
    for size in (1, 3000, 12000):
        found_s, due_s = (log.link(UP, 1).due_s(0.0, size) for log in (other, one))
        assert found_s == pytest.approx(tti_ms * due_s, abs=1e-8)
    tables = [
        grants(in_slots(0.0, 0.2 * scale), log, SLOT_S * scale, 1)
        for log, scale in ((one, 1.0), (other, tti_ms))
    ]
    assert tables[0]["resource_blocks"].tolist() == [273 * 14 / 100]
    for name in ("blocks", "resource_blocks", "granted_bytes", "lost_blocks", "mcs"):
        assert tables[1][name].to_numpy() == pytest.approx(tables[0][name].to_numpy())


def test_activities_are_those_of_the_period_and_the_link() -> None:
    log = log_of(records(SIMPLE))
    assert log.link(DOWN, 1).activity(0.0025, 0.0055) == pytest.approx((5e-4, 0, 25e-4, 0, 0, 0, 0))
    for direction, client in ((UP, 1), (DOWN, 2)):
        assert log.link(direction, client).activity(0.0, 0.02) == (
            0.0,
            0.0,
            0.0,
            0.02,
            0.0,
            0.0,
            0.0,
        )


def test_data_leave_an_uplink_after_their_grant() -> None:
    taken_ms = TAKEN_TTIS[UP]
    rows = [(2, FILLED, UP), *sent(7, 10, way=UP), (16 + taken_ms, EMPTIED, UP)]
    found = log_of(records(rows)).link(UP, 1).activity(0.0, 0.03)
    ms = np.array([5 + taken_ms, 0, 10, 15 - taken_ms, 0, 0, 0])
    assert found == pytest.approx(ms / 1e3, abs=1e-6)  # times are whole nanoseconds


def test_a_transfer_is_due_with_the_block_that_completes_it() -> None:
    each = 1000 * MTU / (MTU + 3.5)
    down = log_of(records([*SIMPLE, (20, AGAIN, DOWN)])).link(DOWN, 1)
    assert down.sent_bytes(0.0, 1.0) == pytest.approx(10 * each)
    assert down.sent_bytes(0.004, 0.009) == pytest.approx(3 * each)
    # A block of the TTI from 3 ms on is there at 6 ms.
    due_ms = [1e3 * down.due_s(0.002, size) for size in (1, each, each + 1, 10 * each)]
    assert due_ms == pytest.approx([6, 6, 7, 15])
    assert 1e3 * down.due_s(0.005, 2 * each) == pytest.approx(9)
    vain = log_of(records([*SIMPLE, *granted(13, 4)])).link(DOWN, 1)
    assert vain.due_s(0.002, 10 * each + 1) == np.inf
    assert down.due_s(0.002, 10 * each + 1) == np.inf
    assert down.due_s(0.02, 1) == np.inf
    up = log_of(records([(2, FILLED, UP), *sent(7, 10, way=UP)])).link(UP, 1)
    # Granted at 7 ms, the first block has arrived 7 ms later.
    assert 1e3 * up.due_s(0.002, 1) == pytest.approx(14)
    # The block granted at 7 ms takes what is there at 8 ms.
    assert 1e3 * up.due_s(0.008, 1) == pytest.approx(14)


def file_of(made: np.ndarray) -> bytes:
    """What a radio writes: the high bits of the number of blocks are beside the direction."""
    written = made.astype(FILE_RECORD, casting="unsafe")
    written["direction"] |= (made["blocks"] >> 8 << 1).astype(np.uint8)
    return written.tobytes()


@pytest.mark.parametrize("blocks", [0, 1, 100, 127, 128, 255, 256, 257, 264, 273, 275])
def test_a_log_is_read_as_it_was_written(blocks: int, tmp_path: Path) -> None:
    path, made = tmp_path / "radio.log", records(SIMPLE, uav=2, blocks=blocks)
    path.write_bytes(file_of(made))
    assert FILE_RECORD.itemsize == 16
    assert (read_log(path, 3) == made).all()
    assert (read_log(path, 3, 5) == made[5:]).all()
    path.write_bytes(b"")
    assert len(read_log(path, 3)) == 0


def test_the_log_of_lte_has_one_byte_each_for_blocks_and_direction(tmp_path: Path) -> None:
    path, made = tmp_path / "radio.log", records([(1, NEW, UP), (2, NEW, DOWN)], blocks=100)
    path.write_bytes(file_of(made))
    assert np.fromfile(path, "u1").reshape(2, 16)[:, [10, 15]].tolist() == [[100, 0], [100, 1]]
    assert (read_log(path, 3) == made).all()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"kind": 11}, "record 0: kind must be 0 to 10, not 11"),
        ({"blocks": 276}, "record 0: blocks must be 0 to 275, not 276"),
        ({"blocks": 2**15 - 1}, "record 0: blocks must be 0 to 275, not 32767"),
        ({"uav": 3}, "record 0: uav must be 0 to 2, not 3"),
        ({"time_ns": -np.arange(22)}, "record 1: time_ns is before that of the last"),
    ],
)
def test_a_record_that_cannot_be_right_is_refused(changed, said, tmp_path: Path) -> None:
    path, made = tmp_path / "radio.log", records(SIMPLE)
    for name, value in changed.items():
        made[name] = value
    path.write_bytes(file_of(made))
    with pytest.raises(InputError, match=f"radio.log: {said}$"):
        read_log(path, 3)


def test_half_a_record_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "radio.log"
    path.write_bytes(bytes(24))
    with pytest.raises(InputError, match="its 24 bytes are no whole number of records of 16 bytes"):
        read_log(path, 3)


def test_the_table_has_what_was_granted_in_each_slot() -> None:
    rows = [(98, FILLED, DOWN), *sent(99, 3), (101, LOST, DOWN), (102, AGAIN, DOWN)]
    rows += [(102, EMPTIED, DOWN), (350, LOST, UP)]
    made = records(rows)
    new = np.flatnonzero(made["kind"] == NEW)
    made["mcs"][new[1:]] = 9
    spans = np.zeros(1, dtype=[("start_s", float), ("end_s", float)])
    spans["end_s"] = 0.4
    round_ = Round(3, "cpsfl", 1, 0.0, 0.4, np.zeros(2), 0.4, spans)
    table = grants(round_, log_of(made), SLOT_S, 2)
    assert table.columns.tolist() == [
        *("round", "slot", "time_s", "client", "direction", "blocks", "resource_blocks"),
        *("granted_bytes", "lost_blocks", "mcs", "waiting_s"),
    ]
    found = {(row.direction, row.client, row.slot): tuple(row)[6:] for row in table.itertuples()}
    assert found == {
        ("up", 1, 3): pytest.approx((0, 0.0, 0, 1, -1, 0.0)),
        ("down", 1, 0): pytest.approx((1, 0.1, 1002, 0, 5, 1e-3)),
        ("down", 1, 1): pytest.approx((3, 0.3, 2004, 1, 9, 0.0), abs=1e-12),
    }
    assert set(table["round"]) == {3}
    assert table["time_s"].tolist() == pytest.approx([0.3, 0.0, 0.1])


# --- the error budget ----------------------------------------------------------------------------


class Over:
    """A round over ns-3's LTE as it is predicted, and a log that says the same."""

    def __init__(self, name: str = "cpsfl"):
        radio = {"access": "lte", "uplink_bandwidth_hz": 5e6, "downlink_bandwidth_hz": 5e6}
        scenario = small(paradigm=name, radio=radio, emulation={"air": "ns3"})
        shares, profile = fixed_allocation(scenario), profile_of(scenario)
        self.radio = Lte.of(scenario)
        self.payload = plan_round(scenario, profile, shares, payload_bytes)
        self.plan: RoundPlan = plan_round(scenario, profile, shares, link_bytes)
        tcp = tcp_model_of(scenario)
        assert tcp is not None
        self.tcp: TcpModel = tcp
        self.times: RoundTimes = simulate(self.plan, self.radio, GAIN, SLOT_S, 0.3, tcp=tcp)
        self.predicted = round_of(
            0, self.payload, simulate(self.payload, self.radio, GAIN, SLOT_S, 0.3)
        )
        last = self.times.spans[self.times.spans["step"] == CM]
        self.last = tuple(last[last["end_s"].argmax()][["client", "iteration", "step"]].tolist())

    def log(self, **changed: Any) -> tuple[Round, RadioLog]:
        """The round with the last upload changed, and its log.

        Args:
            **changed: Seconds by which the upload waits longer for its first grant (`waits`), sends
                (`sends`), sends again (`repeats`), or has an empty queue (`pauses`).
        """
        spans, rows = self.times.spans.copy(), []
        assert self.times.windows is not None
        for span in spans:
            client, iteration, step = span[["client", "iteration", "step"]].tolist()
            if step not in (SM, CA, SG, CM):
                continue
            way = DOWN if step in (SM, SG) else UP
            more = changed if (client, iteration, step) == self.last else {}
            place = {SM: 0, CA: iteration - 1, SG: iteration, CM: iteration}[step]
            windows_s, windows = self.times.windows[:, way, client - 1, place].tolist()
            request_s, delivery_s, taken_s = (
                TTI_S * ttis[way] for ttis in (REQUEST_TTIS, DELIVERY_TTIS, TAKEN_TTIS)
            )
            granted_s = span["start_s"] + request_s
            ended_s = span["end_s"] - delivery_s - windows_s  # end of the last granted TTI
            again_s = more.get("repeats", 0.0)
            granted_s += more.get("waits", 0.0)
            ended_s += again_s + sum(more.get(name, 0.0) for name in ("waits", "sends", "pauses"))
            span["end_s"] += sum(more.values())
            middle_s = granted_s + 10 * TTI_S
            each = [granted_s + n * TTI_S for n in range(10)]
            each += [middle_s + again_s + more.get("pauses", 0.0), ended_s - TTI_S]
            own = [(span["start_s"], FILLED)]
            own += [(time_s, NEW) for time_s in each]
            own += [(time_s + taken_s, SENT) for time_s in each]
            own += [(middle_s + n * TTI_S, AGAIN) for n in range(round(again_s / TTI_S))]
            if "pauses" in more:
                # The last block's TTI is still served.
                own += [(middle_s - TTI_S + taken_s, EMPTIED)]
                own += [(middle_s + more["pauses"] + taken_s - 2e-6, FILLED)]
            own += [(ended_s - TTI_S + taken_s, EMPTIED)]
            if windows:  # each waits for a grant
                waits_s = min(windows * (request_s + taken_s), windows_s)
                at_s = ended_s + taken_s + 1e-4
                own += [(at_s, FILLED), (at_s + waits_s, EMPTIED)]
            rows += [(1e3 * at, kind, way, client - 1) for at, kind in own]
        made = records([row[:3] for row in rows])
        made["time_ns"] = np.round([1e6 * row[0] for row in rows])
        made["kind"], made["direction"] = [row[1] for row in rows], [row[2] for row in rows]
        made["uav"] = [row[3] for row in rows]
        measured = round_of_spans(0, self.plan, self.radio, 0.3, spans)
        return measured, log_of(made[np.argsort(made["time_ns"], kind="stable")])

    def budget(self, measured: Round, log: RadioLog | None) -> Any:
        return error_budget(
            self.predicted,
            measured,
            self.payload,
            self.plan,
            self.radio,
            GAIN,
            SLOT_S,
            None,
            tcp=self.tcp,
            radio_log=log,
        )


@pytest.mark.parametrize("name", ["cpsfl", "sfl-pp", "pipesfl"])
def test_a_round_as_predicted_has_no_part_of_the_radio(name: str) -> None:
    over = Over(name)
    measured, log = over.log()
    found = over.budget(measured, log)
    wanted = over.budget(measured, None).seconds
    assert found.seconds == pytest.approx(
        {part: wanted.get(part, 0.0) for part in found.seconds}, abs=1e-6
    )
    assert wanted["delay"] > 0.05
    parts = found.steps[[*RADIO_PARTS, "rest"]]
    assert parts.abs().max().max() < 1e-6


@pytest.mark.parametrize(
    ("part", "changed"),
    [
        ("grant", {"waits": 0.005}),
        ("grant", {"waits": -0.003}),
        ("harq", {"repeats": 0.002}),
        ("radio", {"sends": 0.05}),
        ("radio", {"sends": -0.02}),
        ("rest", {"pauses": 0.03}),
    ],
)
def test_what_the_radio_does_is_a_part_of_its_own(part: str, changed: Any) -> None:
    over = Over("sfl-pp")
    measured, log = over.log(**changed)
    found = over.budget(measured, log)
    seconds = sum(changed.values())
    radio = {each: found.seconds[each] for each in (*RADIO_PARTS, "rest")}
    # All uploads are to end together: the others do even if this one is faster.
    wanted = dict.fromkeys(radio, 0.0) | {part: max(0.0, seconds)}
    assert radio == pytest.approx(wanted, abs=3e-6)
    total = sum(found.seconds.values())
    assert total == pytest.approx(measured.latency_s - over.predicted.latency_s, abs=1e-12)
    client, iteration, step = over.last
    steps = found.steps.set_index(KEYS)
    own = steps.loc[(0, client, iteration, STEPS[step])]
    assert own[part] == pytest.approx(seconds, abs=3e-6)
    modelled = steps.drop(columns=list(radio)).sum(axis=1)
    longer = steps[list(radio)].sum(axis=1)
    for span in measured.spans:
        key = (0, span["client"], span["iteration"], STEPS[span["step"]])
        predicted = over.predicted.spans
        before = predicted[
            (predicted["client"] == span["client"])
            & (predicted["iteration"] == span["iteration"])
            & (predicted["step"] == span["step"])
        ][0]
        took_s = span["end_s"] - span["start_s"] - before["end_s"] + before["start_s"]
        assert modelled[key] + longer[key] == pytest.approx(took_s, abs=1e-9)


def test_an_empty_queue_is_the_recovery_from_a_loss_where_tcp_sent_again() -> None:
    over = Over("sfl-pp")
    measured, log = over.log(pauses=0.03)
    client = over.last[0]
    for direction, of, part in (
        ("up", client, "recovery"),
        ("down", client, "rest"),
        ("up", client % 3 + 1, "rest"),
    ):
        row = {"direction": direction, "client": of, "resent_lost_bytes": 1500}
        found = error_budget(
            *(over.predicted, measured, over.payload, over.plan, over.radio, GAIN, SLOT_S, None),
            tcp=over.tcp,
            radio_log=log,
            accounts=pd.DataFrame([row]),
        )
        seconds = {each: found.seconds[each] for each in ("recovery", "rest")}
        wanted = dict.fromkeys(seconds, 0.0) | {part: 0.03}
        assert seconds == pytest.approx(wanted, abs=3e-6)


def test_the_wait_for_a_scheduling_request_is_no_wait_for_a_grant() -> None:
    rows = [(2, FILLED, UP), *sent(20, 3, UP), (26, EMPTIED, UP), (17, ASKED, UP)]
    made = records(rows)
    made["bytes"][made["kind"] == ASKED] = 9
    found = log_of(made).link(UP, 1).activity(0.0, 0.04)
    assert found.request_s == pytest.approx(0.009)
    assert found.waiting_s == pytest.approx((18 + TAKEN_TTIS[UP] - 9) / 1e3)
    assert sum(found) == pytest.approx(0.04)
    # A transfer that begins after the request has waited for none.
    assert log_of(made).link(UP, 1).activity(0.018, 0.04).request_s == 0.0


def test_the_waterfall_has_the_same_parts() -> None:
    over = Over("sfl-pp")
    columns = ["direction", "kind", "client", "iteration", *PART_OF]
    accounts = pd.DataFrame(columns=columns)  # the plan has them already
    edges_s = np.arange(GAIN.shape[1] + 1) * SLOT_S

    def made_of(log: RadioLog | None, measured: Round) -> dict[str, float]:
        at = over.radio, GAIN, SLOT_S, edges_s
        (found,) = waterfalls(
            measured, over.plan, accounts, *at, charges_headers=True, tcp=over.tcp, radio_log=log
        )
        return found

    measured, log = over.log(repeats=0.002)
    found = made_of(log, measured)
    assert list(found) == [*PARTS[:-1], *RADIO_PARTS, "rest"]
    assert sum(found.values()) == pytest.approx(measured.latency_s)
    late = {part: found[part] for part in (*RADIO_PARTS, "rest")}
    assert late == pytest.approx(dict.fromkeys(late, 0.0) | {"harq": 0.002}, abs=1e-6)
    without = made_of(None, measured)
    assert list(without) == list(PARTS)


def test_the_prediction_sends_each_uav_its_own_broadcast() -> None:
    over = Over()
    assert over.plan.unicast
    assert not over.payload.unicast
    one = replace(over.plan, unicast=False)
    ends_s = [
        simulate(plan, over.radio, GAIN, SLOT_S).spans["end_s"][0] for plan in (one, over.plan)
    ]
    assert ends_s[1] == pytest.approx(3 * ends_s[0])


def test_transfers_are_compared_with_what_was_granted() -> None:
    """Blocks of 10 packets each TTI, of which an upload of 300 packets needs 30."""
    over = Over()
    plan = replace(over.plan, cm_bytes=np.full(3, 300 * MTU))
    measured, _ = over.log()
    span = measured.spans[measured.spans["step"] == CM][1]
    first_ms = 1e3 * span["start_s"] + 6
    made = records(sent(first_ms, 40, way=UP), uav=1, bytes=round(10 * (MTU + 3.5)) + 2)
    errors = transfer_errors(
        measured, plan, over.radio, GAIN, SLOT_S, over.tcp, radio_log=log_of(made)
    )
    assert set(errors["client"]) == {2}
    row = errors[errors["step"] == "CM"].iloc[0]
    due_s = (6 + 29 + 1 + DELIVERY_TTIS[UP]) * TTI_S
    assert row["due_s"] == pytest.approx(due_s, abs=2e-9)
    took_s = span["end_s"] - span["start_s"]
    assert row["error"] == pytest.approx(took_s / due_s - 1, abs=1e-6)
    assert row["rate_bps"] == pytest.approx(8 * 300 * MTU / due_s)


def counted(plan: RoundPlan, **of_first_upload: int) -> pd.DataFrame:
    """Accounts with the bytes of the first upload of UAV 1, besides the header of 100 frames."""
    row = {"client": 1, "direction": "up", "kind": "SMASHED", "iteration": 1, "round": 0}
    return pd.DataFrame([dict.fromkeys(BYTES, 0) | {"header_bytes": 6600} | row | of_first_upload])


@pytest.mark.parametrize(
    ("planned", "payload", "sends", "error"),
    [
        (300, 300, 300, 0.0),
        # The transport sends less than planned, or more: it is due when it ends.
        (303, 300, 300, 0.0),
        (297, 300, 300, 0.0),
        (290, 310, 300, 0.0),
        # What both count is more than was sent until it ended; the rest comes with the next one.
        (330, 320, 300, 300 / 320 - 1),
        # It ends long after both were sent.
        (150, 200, 300, 100 / (200 + DELIVERY_TTIS[UP] - TAKEN_TTIS[UP])),
    ],
)
def test_a_transfer_is_due_when_the_bytes_that_were_counted_are_there(
    planned: int, payload: int, sends: int, error: float
) -> None:
    """A block carries a packet each TTI; sizes are in packets."""
    over = Over()
    measured, _ = over.log()
    at = (measured.spans["step"] == CA) & (measured.spans["client"] == 1)
    first = np.flatnonzero(at)[0]
    start_s = measured.spans["start_s"][first]
    begin_ms = 1e3 * start_s - TAKEN_TTIS[UP]
    last_s = start_s + (sends + DELIVERY_TTIS[UP] - TAKEN_TTIS[UP]) * TTI_S
    measured.spans["end_s"][first] = last_s
    block = {"bytes": round(MTU + 3.5) + 2}
    made = records([*sent(begin_ms, sends, UP), *sent(begin_ms + 2000, 400, UP)], **block)
    plan = replace(over.plan, ca_bytes=np.full_like(over.plan.ca_bytes, planned * MTU))
    # A part of what was sent was lost and sent again; what was sent twice in vain does not count.
    again = {"resent_lost_bytes": MTU, "resent_spurious_bytes": 99 * MTU}
    accounts = counted(plan, payload_bytes=(payload - 1) * MTU - 5200, **again)
    found = transfer_errors(
        measured, plan, over.radio, GAIN, SLOT_S, over.tcp, log_of(made), accounts
    )
    row = found[(found["step"] == "CA") & (found["iteration"] == 1)].iloc[0]
    assert row["error"] == pytest.approx(error, abs=5e-4)


OUT = [(2, FILLED, UP), *sent(3, 3, UP), *sent(100, 5, UP), (107, EMPTIED, UP)]


def test_a_break_is_no_other_activity() -> None:
    """An outage from 10 to 80 ms: data are sent again from 100 ms on."""
    made = records(OUT)
    one = RadioLog(made, lambda ns: ns * 1e-9, MTU, {(DOWN, 1): [(0.01, 0.08)]})
    found = one.link(UP, 1).activity(0.0, 0.12)
    without = log_of(made).link(UP, 1).activity(0.0, 0.12)
    resumed_ms = 100 + TAKEN_TTIS[UP]
    assert found.outage_s == pytest.approx((resumed_ms - 10) / 1e3)
    assert found.served_s == pytest.approx(without.served_s - found.outage_s, abs=1e-9)
    assert sum(found) == pytest.approx(0.12)
    # A transfer that begins after the outage does not wait for its end.
    assert one.link(UP, 1).activity(0.09, 0.12).outage_s == 0.0
    assert one.out_between_s(DOWN, 1, 0.05, 0.2) == pytest.approx(0.03)
    assert one.out_between_s(UP, 1, 0.05, 0.2) == 0.0


def test_a_handover_lasts_from_the_last_packet_to_the_first() -> None:
    change = noted(
        (40, LEAVES_CELL, 0, {"direction": DOWN, "mcs": 1}),
        (44, JOINS_CELL, 0, {"direction": DOWN, "mcs": 1}),
        (104, INTERRUPTED, 0, {"direction": UP, "bytes": 950}),
    )
    both = np.concatenate([records(OUT), change])
    log = log_of(both[np.argsort(both["time_ns"], kind="stable")])
    found = log.link(UP, 1).activity(0.0, 0.12)
    assert found.handover_s == pytest.approx(0.095)
    assert sum(found) == pytest.approx(0.12)
    assert log.link(DOWN, 1).activity(0.0, 0.12).handover_s == pytest.approx(0.004)
    assert log.link(UP, 1).activity(0.05, 0.12).handover_s == 0.0


def test_slots_without_a_rate_are_outages() -> None:
    up = np.array([[0.0, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    found = outages(LinkRates(up, up, np.ones((2, 5))), 10, 0.5)
    assert found == {(UP, 1): [(5.0, 5.5), (6.5, 7.5)]}


# --- cells ---------------------------------------------------------------------------------------


def noted(*rows: tuple[float, int, int, dict[str, int]]) -> np.ndarray:
    """Records of (ms, kind, UAV from 0, fields), in their order."""
    made = np.zeros(len(rows), RECORD)
    for record, (time_ms, kind, uav, fields) in zip(made, rows, strict=True):
        record["time_ns"], record["kind"], record["uav"] = round(time_ms * 1e6), kind, uav
        for name, value in fields.items():
            record[name] = value
    return made


def served(time_ms: float, uav: int, cell: int, sinr_db: float | None) -> tuple[Any, ...]:
    ratio = NO_SINR if sinr_db is None else round((sinr_db + 300) * 100)
    return time_ms, SERVED, uav, {"blocks": cell, "bytes": ratio, "direction": DOWN}


def in_slots(start_s: float, latency_s: float) -> Round:
    return Round(3, "cpsfl", 1, start_s, latency_s, np.zeros(2), latency_s, np.empty(0, np.void))


def test_each_slot_has_the_cell_and_the_ratio_noted_at_its_end() -> None:
    log = log_of(
        noted(
            served(100, 0, 9, 0.0),  # Of slot 0, before the round
            (150, NEW, 0, {"blocks": 50, "bytes": 77}),
            *(served(200, uav, uav, sinr_db) for uav, sinr_db in enumerate((20.25, None))),
            *(served(300.000001, uav, 2, -12.5) for uav in (0, 1)),
            *(served(400, uav, 1, 300.0) for uav in (0, 1)),
            served(500, 0, 8, 0.0),  # Of slot 4, after it
        )
    )
    table = cells(log, SLOT_S, slots_in(in_slots(0.1, 0.25), SLOT_S))
    assert table.columns.tolist() == ["slot", "time_s", "client", "cell", "sinr_db"]
    assert table["slot"].tolist() == [1, 1, 2, 2, 3, 3]
    assert table["time_s"].tolist() == pytest.approx([0.1, 0.1, 0.2, 0.2, 0.3, 0.3])
    assert table["client"].tolist() == [1, 2, 1, 2, 1, 2]
    assert table["cell"].tolist() == [0, 1, 2, 2, 1, 1]
    ratios = [20.25, np.nan, -12.5, -12.5, 300.0, 300.0]
    np.testing.assert_allclose(table["sinr_db"], ratios, atol=1e-9)


def test_a_slot_that_was_begun_again_counts_once() -> None:
    """A clock that starts in a slot begins it anew."""
    log = log_of(noted(served(100.0, 0, 0, 5.0), served(100.4, 0, 1, 6.0)))
    table = cells(log, SLOT_S, slots_in(in_slots(0.0, 0.2), SLOT_S))
    assert table[["slot", "client", "cell"]].values.tolist() == [[0, 1, 1]]


def test_handovers_have_their_ends_and_the_longer_interruption() -> None:
    cell = {"blocks": 0, "mcs": 2}
    back = {"blocks": 2, "mcs": 0}
    log = log_of(
        noted(
            (5, INTERRUPTED, 1, {"bytes": 9}),  # Of a handover before the log begins
            (6, JOINS_CELL, 1, back),
            (10, LEAVES_CELL, 1, cell),
            (12, LEAVES_CELL, 0, back),
            (15, JOINS_CELL, 1, cell),
            (16, INTERRUPTED, 1, {"bytes": 90, "direction": UP}),
            (18, INTERRUPTED, 1, {"bytes": 64, "direction": DOWN}),
            (19, NEW, 1, {"bytes": 999}),
            (30, LEAVES_CELL, 1, back),
            (35, JOINS_CELL, 1, back),
        )
    )
    table = handovers(log)
    assert table["client"].tolist() == [2, 1, 2]
    assert table["start_s"].tolist() == pytest.approx([0.010, 0.012, 0.030])
    np.testing.assert_allclose(table["end_s"], [0.015, np.nan, 0.035])
    assert table["from_cell"].tolist() == [0, 2, 2]
    assert table["to_cell"].tolist() == [2, 0, 0]
    np.testing.assert_allclose(table["interruption_ms"], [9.0, np.nan, np.nan])
    assert table.columns.tolist() == [
        "client", "start_s", "end_s", "from_cell", "to_cell", "interruption_ms"
    ]  # fmt: skip


def test_no_handovers_are_an_empty_table_of_the_same_types() -> None:
    table = handovers(log_of(records(SIMPLE)))
    assert len(table) == 0
    assert table.dtypes["client"] == table.dtypes["to_cell"] == np.int64
