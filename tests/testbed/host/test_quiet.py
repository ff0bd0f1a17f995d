# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Waiting for a machine on which nothing else computes."""

import pytest

from testbed.core.errors import RunError
from testbed.host import quiet


@pytest.fixture(autouse=True)
def no_emulation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "running", list)


def test_a_machine_is_quiet_when_it_stays_so() -> None:
    shares = iter([0.9, 0.05, 0.05, 0.3, 0.05, 0.02, 0.0])
    told: list[str] = []
    quiet.wait_until_quiet(
        60, lambda what, done, total: told.append(what), busy=lambda _: next(shares)
    )
    assert list(shares) == []
    assert set(told) == {"waiting for a quiet machine"}


def test_a_machine_that_stays_busy_is_told_with_who_computes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(quiet, "_who", lambda: "; cores by program: bitcoin (7) 3.9")
    with pytest.raises(RunError, match=r"not quiet within 0 s: 97% .*: bitcoin \(7\) 3.9"):
        quiet.wait_until_quiet(0, busy=lambda _: 0.97)


def test_another_emulation_is_not_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quiet, "running", lambda: [4711])
    with pytest.raises(RunError, match="emulation 4711"):
        quiet.wait_until_quiet(0, busy=lambda _: 0.0)
