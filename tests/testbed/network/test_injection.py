# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The injector's state machine, fed with events: which instructions it gives, and when."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from testbed.control.messages import (
    AskCounters,
    AskMachine,
    AskSamples,
    Capturing,
    Counters,
    Direction,
    EndCapture,
    Epoch,
    EpochBegun,
    Exhausted,
    Impair,
    Impaired,
    InjectorOrder,
    Low,
    Pause,
    Phase,
    PhaseSet,
    Samples,
    SetImpairments,
    SetRates,
    StartCapture,
    Stop,
    Watch,
)
from testbed.core.clock import OPEN_S, EmulatedClock
from testbed.core.impairment import Impairment, Losses
from testbed.network.airtime import EVERY_NS, Transfers
from testbed.network.injection import (
    BASE_STATION,
    Answer,
    ChangeRates,
    CountersRead,
    Event,
    FrameLossesRead,
    Hold,
    Injection,
    Instruction,
    LimitPackets,
    Ordered,
    QueuesRead,
    RatesSet,
    ReadCounters,
    ReadFrameLosses,
    ReadQueues,
    Sample,
    Sampled,
    StepTaken,
    Wait,
)
from testbed.network.shaping import QueueCount, Shape
from testbed.network.slot_impairments import Way
from testbed.network.slot_table import SlotTable

LARGE = 1e6
SLOT_NS = 100_000_000
NOTHING = Direction(*(0,) * 8)


def blob(first: int, slots: int, variants: int = 1, scale: float = 1.0) -> bytes:
    """Rates of two clients that say their slot: uplinks slot + .1 and .2, then each variant."""
    rows = [
        [slot + way + k / 10 for way in range(0, 1000 * (1 + variants), 1000) for k in (1, 2)]
        for slot in range(first, first + slots)
    ]
    return (scale * np.array(rows, float)).tobytes()


def table(*blocks: tuple[int, int], variants: int = 1) -> SlotTable:
    made = SlotTable(2)
    for first, slots in blocks:
        made.add(first, variants, blob(first, slots, variants))
    return made


def uplink(made: SlotTable, slot: int) -> list[float] | None:
    row = made.row(slot, 0)
    return None if row is None else list(row[0])


def test_every_slot_has_its_own_rates_up_to_the_last() -> None:
    made = table((0, 10), (10, 10))
    for slot in range(20):
        assert uplink(made, slot) == [slot + 0.1, slot + 0.2]
    assert made.end == 20
    assert type(made.end) is int
    assert uplink(made, 20) is None


def test_variants_are_downlinks() -> None:
    made = table((0, 4), variants=3)
    for phase in range(3):
        row = made.row(2, phase)
        assert row is not None
        assert list(row[1]) == [1002 + 1000 * phase + 0.1, 1002 + 1000 * phase + 0.2]
        assert list(row[0]) == [2.1, 2.2]


def test_a_block_is_kept_up_to_its_last_slot() -> None:
    made = table((0, 10), (10, 10))
    made.forget_before(9)
    assert uplink(made, 9) == [9.1, 9.2]
    made.forget_before(10)
    assert uplink(made, 9) is None
    assert uplink(made, 10) == [10.1, 10.2]


def test_later_rates_replace_earlier_ones_from_their_first_slot_on() -> None:
    made = SlotTable(2)
    made.add(0, 1, blob(0, 10))
    made.add(6, 1, blob(106, 10))
    assert uplink(made, 5) == [5.1, 5.2]
    assert uplink(made, 6) == [106.1, 106.2]
    assert made.end == 16


def test_the_mean_is_over_a_while_and_no_longer_than_there_are_rates() -> None:
    made = table((0, 80))
    up, down = made.mean(10, 0)
    assert up == pytest.approx([10 + 24.5 + 0.1, 10 + 24.5 + 0.2])
    assert down == pytest.approx([1034.6, 1034.7])
    assert made.mean(76, 0)[0] == pytest.approx([77.6, 77.7])
    assert made.mean(80, 0) == ([], [])
    up, down = table((0, 80), variants=2).mean(10, 1)
    assert (up[0], down[0]) == pytest.approx((34.6, 2034.6))


class Recorder:
    """An injection whose instructions are carried out at once, as a driver without links would."""

    def __init__(
        self, shape: Shape | None = None, clients: Sequence[int] = (1, 2), bs: bool = True
    ) -> None:
        self.injection = Injection(shape or Shape(), 2, clients, bs, now_ns=0)
        self.done: list[Instruction] = []
        """What has been carried out, without answers."""
        self.answers: list[Any] = []
        self.wait = Wait(None, None)
        """The last one: what is to be done next, and when."""
        self.lost: dict[Way, tuple[int, int]] = {}
        """What a reading of the air's counters gives."""
        self.reading_ns = 1000
        """How long that takes."""
        self.queues: dict[Way, QueueCount] = {}
        self.changes = 4

    def tell(self, *events: Event) -> None:
        for event in events:
            self.injection.tell(event)
        while not isinstance((given := self.injection.instructions())[0], Wait):
            for instruction in given:
                self._carry_out(instruction)
        (self.wait,) = given

    def _carry_out(self, instruction: Instruction) -> None:
        if isinstance(instruction, Answer):
            self.answers.append(instruction.report)
            return
        self.done.append(instruction)
        tell = self.injection.tell
        match instruction:
            case ChangeRates(due_ns=due_ns):
                tell(RatesSet(instruction, due_ns + 10, self.changes, due_ns + 20))
            case Sample(done_ns=done_ns):
                queues = {way: (done_ns + 5, queue, 9) for way, queue in self.queues.items()}
                tell(Sampled(instruction, queues))
            case ReadFrameLosses():
                begun_ns = next(r for r in reversed(self.done) if isinstance(r, ChangeRates)).due_ns
                tell(FrameLossesRead(dict(self.lost), begun_ns + 20 + self.reading_ns))
            case ReadCounters():
                tell(CountersRead(99, ((NOTHING, NOTHING),) * 2, "fifo"))

    def order(self, *orders: InjectorOrder, at_ns: int = 77) -> None:
        for order in orders:
            self.tell(Ordered(order, at_ns))

    def give(self, slots: int, *, first: int = 0, variants: int = 2, warn_slots: int = 2) -> None:
        """Rates that are large enough to be no outage."""
        self.order(SetRates(first, variants, warn_slots, blob(first, slots, variants, LARGE)))

    def begin(
        self, start_s: float = 0.3, held: tuple[int, ...] = (), dilation: float = 1.0
    ) -> None:
        """An epoch of slots of 0.1 s, whose emulated time 0 is at 0 ns."""
        clock = EmulatedClock(round(start_s * dilation * 1e9), start_s, dilation)
        self.order(Epoch(clock, 0.1, held))

    def next(self) -> None:
        """The next slot begins on time."""
        assert isinstance(self.wait.action, ChangeRates)
        self._carry_out(self.wait.action)
        self.tell()

    def counters(self) -> Counters:
        self.order(AskCounters())
        found = self.answers.pop()
        assert isinstance(found, Counters)
        return found

    def records(self) -> tuple[list[list[int]], list[list[int]]]:
        """The slots that were set, and what the air had done, since the last time."""
        counters = self.counters()
        values = np.frombuffer(counters.slots, np.int64)
        set_, air = np.split(values, [len(values) - 13 * counters.impaired_slots])
        return set_.reshape(-1, 4).tolist(), air.reshape(-1, 13).tolist()


@pytest.fixture
def running() -> Recorder:
    """In slot 3 of ten."""
    made = Recorder()
    made.give(10)
    made.begin()
    made.done.clear()
    made.answers.clear()
    return made


def rates(what: Any) -> list[float]:
    return [*what.downlinks, *(rate for _, rate in what.uplinks)]


def in_mbps(*values: float) -> Any:
    return pytest.approx([value * 1e6 for value in values])


def test_an_epoch_begins_in_the_slot_of_its_clock() -> None:
    made = Recorder()
    assert made.injection.instructions() == [Wait(None, None)]
    made.give(10)
    assert made.wait == Wait(None, None)
    made.begin(0.3, dilation=2.0)
    limits, (first,) = made.done[:-1], made.done[-1:]
    assert {type(each) for each in limits} == {LimitPackets}
    assert isinstance(first, ChangeRates)
    assert (first.slot, first.why, first.due_ns) == (3, "epoch", 600_000_000)
    assert rates(first) == in_mbps(1003.1, 1003.2, 3.1, 3.2)
    assert made.answers == [EpochBegun(600_000_010, False)]
    assert made.records() == ([[3, 600_000_000, 600_000_010, 4]], [])
    assert made.wait.until_ns == 800_000_000
    made.begin(2.0)
    assert made.answers[1:] == [EpochBegun(2_000_000_010, True)]
    assert made.counters().exhausted == 1


def test_the_rates_of_the_next_slot_are_known_before_it_begins(running: Recorder) -> None:
    assert running.wait == Wait(
        4 * SLOT_NS,
        ChangeRates(
            4,
            "slot",
            4 * SLOT_NS,
            (1004.1 * LARGE, 1004.2 * LARGE),
            ((1, 4.1 * LARGE), (2, 4.2 * LARGE)),
        ),
    )
    running.next()
    assert running.wait.until_ns == 5 * SLOT_NS
    assert rates(running.wait.action) == in_mbps(1005.1, 1005.2, 5.1, 5.2)


def test_rates_given_meanwhile_count_from_the_next_slot_on(running: Recorder) -> None:
    running.order(SetRates(4, 2, 1, blob(100, 6, 2, LARGE)))
    assert running.done == []
    assert rates(running.wait.action) == in_mbps(1100.1, 1100.2, 100.1, 100.2)


def test_each_boundary_is_recorded_and_what_runs_out_is_told_once() -> None:
    made = Recorder()
    made.give(7)
    made.begin()
    made.answers.clear()
    made.records()
    made.next()
    assert made.answers == []
    made.next()
    assert made.answers == [Low(7)], "two slots are left"
    for _ in range(4):
        made.next()
    missing = [each.missing for each in made.done[-6:] if isinstance(each, ChangeRates)]
    assert missing == [False] * 3 + [True] * 3
    assert made.records()[0] == [
        [slot, slot * SLOT_NS, slot * SLOT_NS + 10, 4] for slot in range(4, 10)
    ]
    assert made.answers == [Low(7), Exhausted(7)]
    made.give(10, first=10)
    made.next()
    assert made.answers[2:] == [], "there are enough again"
    made.next()
    assert made.counters().exhausted == 0
    made.begin(0.6)
    assert made.answers[-1].missing, "rates of earlier slots are forgotten"


def test_counters_begin_anew_with_each_report() -> None:
    made = Recorder()
    made.give(4)
    made.begin()
    made.next()
    made.next()
    found = made.counters()
    assert (found.asked_ns, found.scheduling) == (99, "fifo")
    assert (found.links, found.exhausted, found.impaired_slots) == (((NOTHING, NOTHING),) * 2, 2, 0)
    assert len(found.slots) == 3 * 4 * 8
    again = made.counters()
    assert (again.slots, again.exhausted, again.below_floor) == (b"", 0, 0)


def test_rates_below_a_frame_per_slot_are_an_outage() -> None:
    made = Recorder()
    floor_bps = Shape().lowest_rate(0.1 * 2)
    rows = np.tile([floor_bps, 0.99 * floor_bps, 0, 0.5 * floor_bps], (9, 1))
    made.order(SetRates(0, 1, 0, rows.tobytes()))
    made.begin(dilation=2.0)
    assert rates(made.done[-1]) == [0, 0, floor_bps, 0]
    made.next()
    assert made.counters().below_floor == 4
    made.order(Phase(0))
    assert made.counters().below_floor == 0, "each slot counts once"


def test_a_phase_sets_packet_limits_and_then_rates(running: Recorder) -> None:
    running.order(Phase(1))
    *limits, change = running.done
    assert [type(each) for each in limits] == [LimitPackets]
    assert isinstance(change, ChangeRates)
    assert (change.slot, change.why) == (3, "phase")
    assert rates(change) == in_mbps(2003.1, 2003.2, 3.1, 3.2)
    assert running.answers == [PhaseSet(87)]
    assert rates(running.wait.action) == in_mbps(2004.1, 2004.2, 4.1, 4.2)
    assert running.records()[0] == [[3, 3 * SLOT_NS, 3 * SLOT_NS + 10, 4]]


def test_between_epochs_a_phase_is_the_next_ones() -> None:
    """The slot is still that of the last epoch, whose table may have no such variant."""
    made = Recorder()
    made.give(1, variants=1)
    made.begin(0.0)
    made.order(Pause())
    assert made.wait == Wait(None, None)
    made.give(10, first=5)
    made.done.clear()
    made.order(Phase(1), at_ns=55)
    assert made.done == []
    assert made.answers[-1] == PhaseSet(55)
    made.begin(0.6)
    assert rates(made.done[-1])[:2] == in_mbps(2006.1, 2006.2)


@pytest.mark.parametrize(("variants", "phase"), [(1, 0), (2, 1), (3, 1)])
def test_a_phase_that_a_new_table_lacks_is_left(variants: int, phase: int) -> None:
    made = Recorder()
    made.give(10)
    made.order(Phase(1))
    made.give(10, variants=variants)
    made.begin()
    assert rates(made.done[-1])[0] == pytest.approx((1003.1 + 1000 * phase) * 1e6)


def test_packets_are_as_large_as_the_emulated_rate_allows() -> None:
    made = Recorder()
    # A frame of 1514 bytes in 0.25 ms is 48.4 Mb/s, of emulated time: half of it in real time.
    rows = np.tile([30e6, 60e6, 80e6, 10e6], (60, 1))
    made.order(SetRates(0, 1, 5, rows.tobytes()))
    made.begin(0.0, dilation=2.0)
    assert made.done[:-1] == [LimitPackets(BASE_STATION, (3, 1)), LimitPackets(2, (2,))]
    made.done.clear()
    made.begin(0.0, dilation=2.0)
    assert len(made.done) == 1, "nothing has changed"


HELD = (1500, 1500)


def test_held_downlinks_stay_closed_until_their_release() -> None:
    """Made ready, opened, then the usual burst is restored; slots change the others alone."""
    made = Recorder()
    made.order(SetRates(0, 1, 0, np.tile([5e6, 5e6, 20e6, 0], (20, 1)).tobytes()))
    made.begin(0.3999, HELD)
    hold, change = made.done[-2:]
    assert isinstance(hold, Hold)
    (release,) = hold.releases
    open_ns = round((0.3999 + OPEN_S) * 1e9)
    assert (release.at_ns, release.places) == (open_ns, (0,))
    assert isinstance(change, ChangeRates)
    assert change.downlinks == (None, 0)
    assert made.answers == [EpochBegun(399_900_010, False)]
    made.next()  # Slot 4 begins before the release.
    assert made.done[-1].downlinks == (None, 0)
    steps = []
    for _ in range(3):
        step: Any = made.wait.action
        assert made.wait.until_ns == step.at_ns
        steps.append(step.what)
        made.tell(StepTaken(step, step.at_ns + 3))
        if step.what == "ready":
            made.order(Phase(0))
            assert made.done[-1].downlinks == (None, 0)
    assert steps == ["ready", "open", "restore"]
    assert made.wait.until_ns == 5 * SLOT_NS
    assert rates(made.wait.action) == [20e6, 0, 5e6, 5e6]
    # The epoch itself has no row: the first rates are in force when the valves have opened.
    assert made.records()[0] == [
        [4, 4 * SLOT_NS, 4 * SLOT_NS + 10, 4],
        [3, open_ns, open_ns + 3, 1],
    ]


def test_releases_go_by_the_clock_the_rates_and_the_phase_of_their_epoch() -> None:
    made = Recorder()
    made.give(10)
    made.order(Phase(1))
    made.begin(0.3, HELD)
    (hold,) = (each for each in made.done if isinstance(each, Hold))
    assert hold.releases[0].rates_bps == in_mbps(2003.1, 2003.2)
    made.begin(0.3)
    assert made.wait.until_ns == 4 * SLOT_NS, "another epoch without held transfers"


def test_a_pause_ends_holding() -> None:
    made = Recorder()
    made.give(10)
    made.begin(0.3, HELD)
    made.order(Pause())
    assert made.wait == Wait(None, None)
    made.begin(0.3)
    assert rates(made.done[-1])[:2] == in_mbps(1003.1, 1003.2)


SHARED = Shape(shared_downlink=True)


def count(sent_bytes: int, queued_bytes: int) -> QueueCount:
    return QueueCount(sent_bytes, 0, 0, queued_bytes)


def test_shared_airtime_is_divided_by_what_downlinks_send() -> None:
    made = Recorder(SHARED)
    made.order(SetRates(0, 1, 0, np.tile([5e6, 5e6, 20e6, 10e6], (20, 1)).tobytes()))
    made.begin(0.0)
    assert rates(made.done[-1]) == [20e6, 10e6, 5e6, 5e6], "both are idle"
    assert made.wait == Wait(EVERY_NS, ReadQueues((BASE_STATION,)))
    made.tell(QueuesRead({BASE_STATION: (EVERY_NS + 1, [count(0, 100), count(0, 100)])}))
    change = made.done[-1]
    assert isinstance(change, ChangeRates)
    assert (change.why, change.downlinks, change.uplinks) == ("airtime", (10e6, 5e6), ())
    assert made.wait == Wait(2 * EVERY_NS + 1, ReadQueues((BASE_STATION,)))
    # 5 ms at a tenth of 20 Mb/s, of which a quarter more is the share.
    made.tell(QueuesRead({BASE_STATION: (2 * EVERY_NS + 1, [count(1250, 0), count(0, 100)])}))
    assert made.done[-1].downlinks == pytest.approx((2.5e6, 8.75e6))
    last_ns = SLOT_NS - 2 * EVERY_NS
    made.tell(QueuesRead({BASE_STATION: (last_ns - 1, [count(1250, 100), count(0, 100)])}))
    assert made.wait.until_ns == last_ns + EVERY_NS - 1
    made.tell(QueuesRead({BASE_STATION: (last_ns, [count(1250, 100), count(0, 100)])}))
    assert made.wait.until_ns == SLOT_NS, "too little time is left for another division"
    assert rates(made.wait.action) == [10e6, 5e6, 5e6, 5e6]


def test_shared_airtime_leaves_outages_and_a_missing_table_alone() -> None:
    made = Recorder(SHARED)
    floor_bps = Shape().lowest_rate(0.1)
    rows = np.array([[5e6, 5e6, 0.9 * floor_bps, 1.5 * floor_bps]])
    made.order(SetRates(0, 1, 0, rows.tobytes()))
    made.begin(0.0)
    made.tell(QueuesRead({BASE_STATION: (EVERY_NS, [count(0, 100), count(0, 100)])}))
    # What is above the floor without sharing is no outage.
    assert rates(made.done[-1]) == [0, 0.75 * floor_bps]
    assert made.counters().below_floor == 0
    made.begin(0.5)
    assert made.answers[-1].missing
    assert made.wait.until_ns == 6 * SLOT_NS, "there is nothing to divide"


def test_steps_airtime_and_slots_have_their_turns() -> None:
    """Nothing before its time, and the earliest first."""
    made = Recorder(SHARED)
    made.order(SetRates(0, 1, 0, np.tile([5e6, 5e6, 20e6, 20e6], (20, 1)).tobytes()))
    made.begin(0.375, HELD)
    seen: list[tuple[str, int]] = []
    while len(seen) < 8:
        wait, action = made.wait, made.wait.action
        assert wait.until_ns is not None
        seen.append((type(action).__name__, wait.until_ns))
        match action:
            case ReadQueues():
                made.tell(QueuesRead({BASE_STATION: (wait.until_ns, [count(0, 0)] * 2)}))
            case ChangeRates():
                made.next()
            case _:
                made.tell(StepTaken(action, wait.until_ns))
    open_ns = 375_000_000 + round(OPEN_S * 1e9)
    assert seen[:3] == [
        *(("Step", open_ns - 1_000_000), ("Step", open_ns), ("Step", open_ns + 2_000_000)),
    ]
    assert seen[3] == ("ReadQueues", EVERY_NS), "overdue, as the epoch began late"
    assert [name for name, _ in seen[4:]] == ["ReadQueues"] * 4


def test_orders_are_passed_on_and_answered_in_their_turn() -> None:
    made = Recorder()
    ways = (Impairment(), Impairment()), (Impairment(), Impairment())
    passed = [StartCapture(("a", "b"), True), EndCapture(55), AskMachine(), Impair(*ways), Stop()]
    made.order(*passed)
    assert made.done == passed
    assert made.answers == [Capturing(), Impaired()], "the driver answers the others"


def test_samples_have_both_ways_of_each_link_and_are_given_once(running: Recorder) -> None:
    running.records()
    running.order(Watch())
    running.queues = {
        Way(1, False): QueueCount(600, 6, 7, 8),
        Way(1, True): QueueCount(400, 4, 5, 6),
        Way(2, True): QueueCount(500, 5, 6, 7),
    }
    running.next()
    assert running.done[-1] == Sample(4, 4 * SLOT_NS, 4 * SLOT_NS + 10, 4)
    running.order(AskSamples(), AskSamples())
    found, none = running.answers
    read_ns = 4 * SLOT_NS + 15
    assert np.frombuffer(found.table, np.int64).tolist() == [
        *(4, 4 * SLOT_NS, 4 * SLOT_NS + 10, 4),
        *(read_ns, 600, 8, 7, 9, read_ns, 400, 6, 5, 9),
        *(0, 0, 0, 0, 0, read_ns, 500, 7, 6, 9),
    ]
    assert none == Samples(0, b"")
    assert running.records() == ([], []), "slots are in samples alone"


def test_packet_sizes_follow_the_rates_while_links_are_watched() -> None:
    made = Recorder()
    made.order(SetRates(0, 1, 0, np.tile([5e6, 5e6, 5e6, 5e6], (20, 1)).tobytes()))
    made.begin(0.0)
    made.order(SetRates(1, 1, 0, np.tile([5e6, 5e6, 100e6, 5e6], (40, 1)).tobytes()))
    made.order(Watch())
    made.done.clear()
    for _ in range(20):
        made.next()
    limits = [n for n, each in enumerate(made.done) if isinstance(each, LimitPackets)]
    assert [type(each) for each in made.done[:2]] == [ChangeRates, Sample]
    assert limits == [20], "after slot 10"


def impair(made: Recorder, *probabilities: float | None, by_slot: bool = False) -> None:
    """Let uplinks and then downlinks lose frames with these probabilities."""
    ways = [
        Impairment(losses=None if p is None else Losses(0.0, 1.0, p, 0.0), by_slot=by_slot)
        for p in probabilities
    ]
    made.order(Impair(tuple(ways[:2]), tuple(ways[2:])))


def test_frames_lost_are_counted_as_each_slot_begins() -> None:
    made = Recorder()
    made.give(10)
    impair(made, 0.5, 0.25, None, 1 / 8)
    made.lost = {Way(1, False): (1, 10), Way(2, False): (2, 20), Way(2, True): (4, 40)}
    made.begin()
    made.lost[Way(1, False)] = (9, 10)
    made.next()
    half, quarter, eighth = 1 << 31, 1 << 30, 1 << 29
    assert made.records()[1] == [
        [3, 1, 10, half, 0, 0, 0, 2, 20, quarter, 4, 40, eighth],
        [4, 9, 10, half, 0, 0, 0, 2, 20, quarter, 4, 40, eighth],
    ]
    made.order(Watch())
    made.next()
    assert made.records()[1] == [], "samples take the time"


def test_what_is_asked_is_what_the_slot_that_begins_asks_for() -> None:
    made = Recorder()
    made.give(10)
    impair(made, 0.5, None, None, None, by_slot=True)
    made.begin(0.2)
    values = np.zeros((3, 3, 2, 3))  # Slots 4 to 6: uplinks, then two variants of downlinks.
    values[1, 0, 0, 2] = 0.25
    made.order(SetImpairments(4, 2, values.tobytes()))
    changed = []
    for _ in range(4):
        made.next()
        change = next(each for each in reversed(made.done) if isinstance(each, ChangeRates))
        changed.append([(each.way, each.values[2]) for each in change.air])
    assert [row[3] for row in made.records()[1]] == [1 << 31, 1 << 31, 0, 1 << 30, 0]
    first = [(Way(1, False), 0), (Way(2, False), 0), (Way(1, True), 0), (Way(2, True), 0)]
    assert changed == [[], first, [(Way(1, False), 0.25)], [(Way(1, False), 0)]]


def test_each_slot_has_its_own_seed_and_small_differences_of_delay_do_not_count() -> None:
    made = Recorder()
    made.give(10)
    way = Impairment(0.01, 0.002, Losses(0.1, 0.9, 0.2, 0.5), 7, by_slot=True, reorders=True)
    made.order(Impair((way,) * 2, (Impairment(),) * 2))
    values = np.zeros((5, 3, 2, 3))  # From slot 3 on.
    values[:, 0] = [[0.01, 0.002, 0.2], [0.03, 0.0, 0.2]]
    values[1, 0, 0, :2] += 0.9e-6
    values[2, 0, 1, 1] += 1.1e-6
    made.order(SetImpairments(3, 2, values.tobytes()))
    made.begin()
    found = [made.done[-2]]
    assert isinstance(made.done[-1], ReadFrameLosses)
    for _ in range(2):
        made.next()
        found.append(made.done[-2])
    of_slots = [change.air for change in found if isinstance(change, ChangeRates)]
    assert [[each.way for each in air] for air in of_slots] == [
        *([Way(1, False), Way(2, False)], []),
        [Way(2, False)],
    ]
    first, later = of_slots[0][1].impairment, of_slots[2][0].impairment
    assert (first.delay_s, first.jitter_s, later.jitter_s) == (0.03, 0, pytest.approx(1.1e-6))
    assert first.losses == Losses(0.1, 0.9, 0.2, 0.5)
    assert (first.by_slot, first.reorders) == (True, True)
    step = 0x9E3779B97F4A7C15
    assert (first.seed, later.seed) == tuple((7 + n * step) % (1 << 63) for n in (4, 6))


def test_no_held_step_waits_for_counters() -> None:
    made = Recorder()
    made.give(10)
    impair(made, 0.5, 0.5, None, None)
    made.reading_ns = 750_000
    made.begin(0.3)
    assert [row[0] for row in made.records()[1]] == [3]
    # 1 ms after this epoch begins, valves are made ready.
    made.begin(0.3, HELD)
    assert made.records()[1] == []
    step: Any = made.wait.action
    made.tell(*(StepTaken(each, 0) for each in step.release.steps()))
    made.next()
    assert [row[0] for row in made.records()[1]] == [4]


def test_counters_that_took_too_long_once_are_tried_again_later() -> None:
    made = Recorder()
    made.give(10)
    impair(made, 0.5, 0.5, None, None)
    made.reading_ns = 3 * SLOT_NS
    made.begin()
    made.records()
    made.reading_ns = 1000
    for _ in range(5):
        made.next()
    # 0.6, 0.3 and 0.15 s would be too much for a slot of 0.1 s.
    assert [row[0] for row in made.records()[1]] == [7, 8]


@pytest.mark.parametrize("probability", [None, 0.5])
def test_nothing_is_counted_where_nothing_is_to_be_lost(probability: float | None) -> None:
    made = Recorder()
    made.give(10)
    impair(made, None, None, None, probability)
    made.begin()
    assert len(made.records()[1]) == (probability is not None)


def test_of_links_to_other_machines_each_sets_and_counts_its_own_ends() -> None:
    """Of the base station's machine and of UAV 2's."""
    there, here = Recorder(clients=(2,), bs=False), Recorder(clients=(1,))
    for made in (there, here):
        made.give(60)
        impair(made, 0.5, 0.5, 0.5, 0.5)
        made.lost = {Way(2, False): (1, 2), Way(2, True): (3, 4)}
        made.begin(0.3, HELD)
    changes = [each for each in there.done if isinstance(each, ChangeRates)]
    assert [(each.downlinks, each.uplinks) for each in changes] == [((), ((2, 3.2e6),))]
    assert not [each for each in there.done if isinstance(each, Hold)]
    assert {each.site for each in there.done if isinstance(each, LimitPackets)} <= {2}
    assert [each for each in here.done if isinstance(each, Hold)]
    assert {each.site for each in here.done if isinstance(each, LimitPackets)} == {0}
    half = 1 << 31
    assert there.records()[1] == [[3, 0, 0, 0, 0, 0, 0, 1, 2, 0, 3, 4, half]]
    assert here.records()[1] == [[3, 0, 0, half, 0, 0, half, 1, 2, half, 3, 4, 0]]


def test_airtime_is_divided_where_the_base_station_is() -> None:
    there, here = Recorder(SHARED, clients=(2,), bs=False), Recorder(SHARED, clients=(1,))
    for made in (there, here):
        made.give(10)
        made.begin(0.0)
    assert isinstance(there.wait.action, ChangeRates)
    assert isinstance(here.wait.action, ReadQueues)


HALVES = ((0, 1.0), (0, 0.5))


def test_uplinks_and_downlinks_are_divided_among_transfers() -> None:
    """The broadcast, the first variant of the downlinks, is not."""
    made = Recorder()
    row = [8e6, 6e6, 30e6, 20e6, 10e6, 10e6]
    made.order(
        SetRates(
            0, 2, 0, np.tile(row, (20, 1)).tobytes(), (HALVES, ((1, 1.0),), ((2, 1.0), (2, 0.5)))
        )
    )
    made.begin(0.0)
    assert rates(made.done[-1]) == [30e6, 20e6, 8e6, 6e6]
    every_ns = Transfers.every_ns
    assert made.wait == Wait(every_ns, ReadQueues((1, 2)))

    def look(at_ns: int, *sent: int) -> None:
        assert isinstance(made.wait.action, ReadQueues)
        sites = made.wait.action.sites
        counts = {k: (at_ns, [count(sent[k], 100 * (sent[k] > 0))]) for k in sites if k}
        if BASE_STATION in sites:
            counts[BASE_STATION] = (at_ns, [count(sent[0], 100), count(sent[0], 100)])
        made.tell(QueuesRead(counts))

    look(every_ns, 0, 0, 0)
    look(2 * every_ns, 0, 1000, 0)
    assert rates(made.done[-1])[-2:] == [8e6, 3e6], "the second would share"
    made.order(Phase(1))
    assert rates(made.done[-1])[:2] == [10e6, 10e6]
    assert made.wait.action == ReadQueues((BASE_STATION, 1, 2))
    look(3 * every_ns, 0, 2000, 0)
    look(4 * every_ns, 1000, 3000, 0)
    change = made.done[-1]
    assert isinstance(change, ChangeRates)
    assert (change.why, change.uplinks) == ("airtime", ((1, 8e6), (2, 3e6)))
    assert all(bps < 5e6 for bps in change.downlinks), "both have had all of it until now"


def test_looks_take_a_quarter_of_the_time_and_are_made_in_slots_that_are_short() -> None:
    made = Recorder()
    made.order(
        SetRates(0, 1, 0, np.tile([8e6, 6e6, 9e6, 9e6], (20, 1)).tobytes(), (HALVES, ((1, 1.0),)))
    )
    made.begin(0.0)
    made.tell(QueuesRead({k: (1_000_000, [count(0, 0)]) for k in (1, 2)}))
    made.tell(RatesSet(made.done[-1], 8_000_000, 0, 8_000_000))
    assert made.wait == Wait(1_000_000 + 4 * 7_000_000, ReadQueues((1, 2)))
    made.order(Epoch(EmulatedClock(30_000_000, 0.0, 0.01), 0.1))  # of 1 ms
    assert made.wait.action == ReadQueues((1, 2)), "due before the slot began"
