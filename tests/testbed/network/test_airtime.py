# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How a direction of a cell is divided among its links: by use, or by transfers."""

from collections.abc import Callable, Sequence
from math import inf

import pytest

from testbed.network.airtime import Airtime, SlotRates, Transfers, divide
from testbed.network.shaping import QueueCount

PACKET_BITS = 8 * 1514
CREDIT_S, SENDER_S = 4e-3, 3.85e-3
"""What an idle link saves up, and how much later than its transfer a sender begins."""
EVERY_S = 1e-3


@pytest.mark.parametrize(
    ("wanted", "shares"),
    [
        ([0, 0], [1, 1]),
        ([inf, 0, 0], [1, 0.5, 0.5]),
        ([inf, inf, 0], [0.5, 0.5, 1 / 3]),
        ([inf, 0.1, inf], [0.45, 0.1, 0.45]),
        ([0.2, 0.3, 0], [0.7, 0.8, 0.5]),
        ([0.9, 0.9], [0.5, 0.5]),
    ],
)
def test_shares_are_max_min_fair(wanted, shares) -> None:
    assert divide(wanted) == pytest.approx(shares)


def test_bytes_count_by_the_time_that_they_take() -> None:
    airtime = Airtime(3)
    by_time = [(0, 1 / active) for active in (1, 2, 3)]
    # A tenth of 10 ms at 10 and at 40 Mb/s; the third has a queue.
    counts = [QueueCount(1250, 0, 0, 0), QueueCount(5000, 0, 0, 0), QueueCount(0, 0, 0, 100)]
    airtime.look(counts, [10_000_000] * 3, SlotRates([[10e6, 40e6, 20e6]], by_time), 0)
    assert airtime.shares == pytest.approx([0.125, 0.125, 0.75])
    airtime.look(counts, [20_000_000] * 3, SlotRates([[10e6, 40e6, 0.0]], by_time), 0)
    assert airtime.shares == pytest.approx([1, 1, 1])


BLOCKS = SlotRates([[8e6, 4e6], [6e6, 3e6]], [(0, 1.0), (1, 1.0), (1, 2 / 3)])
"""Two of three links; two that are active have more than half of the rate each."""


def test_rates_follow_the_number_of_active_links() -> None:
    assert [BLOCKS.bps(0, active) for active in (0, 1, 2, 3, 4)] == [8e6, 8e6, 6e6, 4e6, 4e6]
    assert BLOCKS.together() == [4e6, 2e6]
    assert BLOCKS.is_divided
    assert not SlotRates([[1.0]], [(0, 1.0)]).is_divided


def test_shares_between_two_numbers_of_links_are_interpolated() -> None:
    shares = (1, 3 / 4, 1 / 2, 5 / 12, 1 / 3, 1 / 6)
    rates = (8e6, 7e6, 6e6, 5e6, 4e6, 2e6)
    assert [BLOCKS.at_share(0, share) for share in shares] == pytest.approx(rates)
    assert [BLOCKS.share_of(0, bps) for bps in rates] == pytest.approx(shares)
    assert BLOCKS.share_of(0, 16e6) == 2
    assert BLOCKS.share_of(0, 0.0) == 0
    assert SlotRates([[0.0, 0.0]], BLOCKS.division[:1]).share_of(0, 1.0) == 0


def test_users_with_a_backlog_share_what_others_leave() -> None:
    airtime = Airtime(2)
    airtime.look([QueueCount(0, 0, 0, 9), QueueCount(0, 0, 0, 9)], [10_000_000] * 2, BLOCKS, 0)
    assert airtime.rates(BLOCKS) == pytest.approx([6e6, 3e6])
    # 1.6 Mb/s, and a quarter more, is half of what a third of the cell has at the second link.
    counts = [QueueCount(0, 0, 0, 9), QueueCount(1000, 0, 0, 0)]
    airtime.look(counts, [15_000_000] * 2, BLOCKS, 0)
    assert airtime.shares == pytest.approx([2 / 3, 1 / 3])


Rate = Callable[[int, int], float]
"""A link's rate in bit/s while so many are active."""


def shaped_ends(
    rate: Rate, starts_s: Sequence[float], packets: Sequence[int], window: int = 1000
) -> list[float]:
    """When shapers as the kernel's end one transfer per link, at the rates that are set.

    A packet leaves if the account, in seconds, is not negative, and is charged afterwards. A window
    of packets is acknowledged 1.3 ms after a sender began.
    """
    links = range(len(starts_s))
    rows = [[rate(k, active) for k in links] for active in range(1, len(links) + 1)]
    slot = SlotRates(rows, [(row, 1.0) for row in range(len(rows))])
    made = Transfers([PACKET_BITS] * len(links))
    bps = made.rates(slot)
    made.given(0, slot, bps)
    account_s = [CREDIT_S] * len(links)
    charged_s, left, ends_s = [0.0] * len(links), list(packets), [inf] * len(links)
    look_s = EVERY_S / 3

    def settle(k: int, now_s: float) -> None:
        most_s = CREDIT_S - PACKET_BITS / bps[k] / 2
        account_s[k] = min(account_s[k] + now_s - charged_s[k], most_s)
        charged_s[k] = now_s

    def sends_from_s(k: int) -> float:
        waits = packets[k] - left[k] == window
        return starts_s[k] + SENDER_S + 1.3e-3 * waits

    while any(left):
        due_s, k = min(
            (max(sends_from_s(k), charged_s[k] - min(0.0, account_s[k])), k)
            for k in links
            if left[k]
        )
        if due_s < look_s:
            settle(k, due_s)
            account_s[k] -= PACKET_BITS / bps[k]
            left[k] -= 1
            ends_s[k] = due_s
            continue
        counts = []
        for k in links:
            settle(k, look_s)
            waits = bool(left[k]) and look_s > sends_from_s(k)
            counts.append(QueueCount((packets[k] - left[k]) * 1514, 0, 0, 1514 * waits))
        at_ns = round(look_s * 1e9)
        made.look(counts, [at_ns] * len(links), slot, round(EVERY_S * 1e9))
        bps = made.rates(slot)
        made.given(at_ns, slot, bps)
        look_s += EVERY_S
    return ends_s


def fluid_ends(rate: Rate, starts_s: Sequence[float], packets: Sequence[int]) -> list[float]:
    """When the transfers end if rates follow the number of active links at once."""
    waiting = sorted(range(len(starts_s)), key=lambda k: starts_s[k])
    left: dict[int, float] = {}
    now_s, ends_s = 0.0, [inf] * len(starts_s)
    while waiting or left:
        next_s = starts_s[waiting[0]] if waiting else inf
        due_s = {k: now_s + bits / rate(k, len(left)) for k, bits in left.items()}
        until_s = min([next_s, *due_s.values()])
        for k in left:
            left[k] -= rate(k, len(left)) * (until_s - now_s)
        now_s = until_s
        for k in [k for k, end_s in due_s.items() if end_s == until_s]:
            ends_s[k] = until_s
            del left[k]
        if now_s == next_s:
            k = waiting.pop(0)
            left[k] = packets[k] * PACKET_BITS
    return ends_s


@pytest.mark.parametrize("links", [1, 2, 3, 6])
def test_transfers_end_as_if_rates_followed_the_active_links_at_once(links: int) -> None:
    """To a packet, though the injector notices each beginning and end up to 5 ms later."""

    def rate(k: int, active: int) -> float:
        return (40e6 + 10e6 * k) / active * (1.0 if active == 1 else 1.1)

    starts_s = [0.1 + 0.037 * (k * k % 5) for k in range(links)]
    packets = [900 + 500 * (k % 3) for k in range(links)]
    found = shaped_ends(rate, starts_s, packets)
    due = fluid_ends(rate, starts_s, packets)
    for k in range(links):
        packet_s = PACKET_BITS / rate(k, links)
        assert found[k] - due[k] == pytest.approx(-packet_s / 2, abs=1.2 * packet_s)


def test_transfers_that_begin_at_once_end_at_once() -> None:
    ends_s = shaped_ends(lambda k, active: 60e6 / active, [0.1] * 5, [2000] * 5)
    assert max(ends_s) - min(ends_s) < 1e-9


@pytest.mark.parametrize("window", [3, 10, 1000])
def test_a_window_at_the_beginning_does_not_matter(window: int) -> None:
    """Some senders have used up their links' credit when rates change, others have not."""

    def rate(k: int, active: int) -> float:
        return (75e6 if k else 50e6) / active

    starts_s, packets = [0.1, 0.1, 0.1, 0.103], [3000, 3500, 4000, 3000]
    found = shaped_ends(rate, starts_s, packets, window)
    due = fluid_ends(rate, starts_s, packets)
    for k in range(4):
        assert abs(found[k] - due[k]) < 2 * PACKET_BITS / rate(k, 4)


def test_short_transfers_count_while_they_last() -> None:
    """A long transfer has had too much meanwhile."""

    def rate(k: int, active: int) -> float:
        return 40e6 / active

    starts_s, packets = [0.1, 0.15, 0.2, 0.25], [2000, 5, 5, 5]
    found = shaped_ends(rate, starts_s, packets)[0] - fluid_ends(rate, starts_s, packets)[0]
    assert found == pytest.approx(0.0, abs=1.5 * PACKET_BITS / rate(0, 1))


def test_acknowledgements_and_links_in_an_outage_do_not_count() -> None:
    slot = SlotRates([[9e6, 9e6, 0.0], [4e6, 4e6, 0.0]], [(0, 1.0), (1, 1.0), (1, 0.5)])
    made = Transfers([PACKET_BITS] * 3)
    made.given(0, slot, made.rates(slot))
    assert made.rates(slot) == [9e6, 9e6, 0.0]
    sent = 0
    for look in range(1, 30):
        sent += 100  # 0.8 Mb/s
        counts = [
            QueueCount(look * 1125, 0, 0, 3000),
            QueueCount(sent, 0, 0, 0),
            QueueCount(0, 0, 0, 500),
        ]
        made.look(counts, [look * 1_000_000] * 3, slot, 1_000_000)
        rates = made.rates(slot)
        made.given(look * 1_000_000, slot, rates)
    assert rates == [pytest.approx(9e6), 4e6, 0.0], "the second would share"


def test_a_link_that_is_idle_after_an_outage_does_not_count() -> None:
    """An acknowledgement waits during the outage, behind a packet that has left too early."""
    good = SlotRates([[9e6, 9e6], [4e6, 4e6]], [(0, 1.0), (1, 1.0)])
    out = SlotRates([[9e6, 0.0], [4e6, 0.0]], good.division)
    made = Transfers([PACKET_BITS] * 2)
    made.given(0, good, made.rates(good))
    for look in range(40):
        slot = out if 10 <= look < 20 else good
        sent = min(look, 10) * 1125 + 500 + 66 * (look >= 20)
        waits = 3000 * (look < 10) + 66 * (10 <= look < 20)
        counts = [QueueCount(0, 0, 0, 0), QueueCount(sent, 0, 0, waits)]
        made.look(counts, [look * 1_000_000] * 2, slot, 1_000_000)
        made.given(look * 1_000_000 + 1, slot, made.rates(slot))
    assert made.rates(good) == [9e6, 9e6], "no other link is active"
