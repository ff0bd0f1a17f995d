# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What the injector knows of rates, and what it does when phase or table change; no links."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from testbed.control.messages import PhaseSet, SetRates
from testbed.network import injector


def blob(first: int, slots: int, variants: int = 1) -> bytes:
    """Rates of two clients that say their slot: uplinks slot + .1 and .2, then each variant."""
    rows = [
        [slot + way + k / 10 for way in range(0, 1000 * (1 + variants), 1000) for k in (1, 2)]
        for slot in range(first, first + slots)
    ]
    return np.array(rows, float).tobytes()


def table(*blocks: tuple[int, int], variants: int = 1) -> injector._Table:
    made = injector._Table(2)
    for first, slots in blocks:
        made.add(first, variants, blob(first, slots, variants))
    return made


def uplink(made: injector._Table, slot: int) -> list[float] | None:
    row = made.row(slot, 0)
    return None if row is None else list(row[0])


def test_every_slot_has_its_own_rates_up_to_the_last() -> None:
    made = table((0, 10), (10, 10))
    for slot in range(20):
        assert uplink(made, slot) == [slot + 0.1, slot + 0.2]
    assert made.end == 20
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
    made = injector._Table(2)
    made.add(0, 1, blob(0, 10))
    made.add(6, 1, blob(106, 10))
    assert uplink(made, 5) == [5.1, 5.2]
    assert uplink(made, 6) == [106.1, 106.2]
    assert made.end == 16


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An injector without links, which notes what it does."""
    made: Any = injector._Service.__new__(injector._Service)
    made._table = table((0, 10), variants=2)
    made._slot, made._phase, made.told = 3, 0, []
    monkeypatch.setattr(
        injector._Service, "_limit_packets", lambda self: self.told.append(("limits", self._phase))
    )
    monkeypatch.setattr(
        injector._Service,
        "_prepare",
        lambda self, slot: SimpleNamespace(
            send=lambda: self.told.append(("rates", slot, self._phase)) or 77
        ),
    )
    monkeypatch.setattr(injector._Service, "_tell", lambda self, report: self.told.append(report))
    return made


def test_a_phase_sets_packet_limits_and_then_rates(service: Any) -> None:
    service._switch_to(1)
    assert service.told == [("limits", 1), ("rates", 3, 1), PhaseSet(77)]


@pytest.mark.parametrize(("variants", "phase"), [(1, 0), (2, 1), (3, 1)])
def test_a_phase_that_a_new_table_lacks_is_left(service: Any, variants: int, phase: int) -> None:
    service._phase, service._told_low = 1, True
    service._take_rates(SetRates(10, variants, 5, blob(10, 5, variants)))
    assert service._phase == phase
    assert service._told_low is False
    assert service._warn_slots == 5
