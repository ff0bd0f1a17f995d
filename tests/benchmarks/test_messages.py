# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The theory that `benchmarks/messages.py` compares arrivals with."""

from collections.abc import Callable
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def messages(load: Callable[[str], ModuleType]) -> ModuleType:
    return load("messages")


def test_a_message_ends_with_the_integral_of_the_rates_of_its_slots(messages: ModuleType) -> None:
    link = messages.Link((1e6, 0.0, 4e6))
    assert link.bits_by(0.35) == pytest.approx(0.1e6 + 0.4e6 + 0.05e6)
    assert link.end_s(0.05, 0.05e6) == pytest.approx(0.1)
    assert link.end_s(0.05, 0.25e6) == pytest.approx(0.25)
    assert link.end_s(0.12, 0.4e6 + 0.02e6) == pytest.approx(0.32)


def test_all_headers_count(messages: ModuleType) -> None:
    assert messages.wire_bits(1, tcp=False) == 8 * 43
    assert messages.wire_bits(1473, tcp=False) == 8 * (1473 + 84)
    assert messages.wire_bits(2 * 1448, tcp=True) == 8 * 2 * 1514


def test_a_message_waits_for_the_ones_before_it(messages: ModuleType) -> None:
    link = messages.Link((8e3,))
    plan = [{"at_s": at_s, "bytes": 58, "tcp": False, "silence": True} for at_s in (1.0, 1.0, 2.0)]
    # 100 bytes take 0.1 s: until 1.1, 1.2 and 2.1 s.
    sent, arrived = [1_000_000_000] * 2 + [2_000_000_000], [1.101, 1.2, 2.098]
    found = messages.with_errors(link, plan, sent, [round(1e9 * at_s) for at_s in arrived])
    assert found.error_ms.tolist() == pytest.approx([1.0, 0.0, -2.0])


def test_messages_of_a_plan_do_not_overlap_after_silence(messages: ModuleType) -> None:
    link = messages.Link((1e6,))
    plan = messages.planned(link)
    free_s = 0.0
    for message in plan:
        bits = messages.wire_bits(message["bytes"], tcp=message["tcp"])
        if message["silence"]:
            assert message["at_s"] >= free_s + messages.SILENCE_S - 1e-9
        assert bits / 1e6 <= messages.LONGEST_S
        free_s = max(free_s, message["at_s"]) + bits / 1e6
    assert {(each["tcp"], each["silence"]) for each in plan} == {
        (tcp, silence) for tcp in (False, True) for silence in (False, True)
    }
