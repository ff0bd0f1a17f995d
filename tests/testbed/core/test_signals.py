# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Names of signals, also of those that Python does not know."""

import signal

import pytest

from testbed.core.node import BS
from testbed.core.signals import exit_status, signal_name
from testbed.runtimes import Exit


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (9, "SIGKILL"),
        (34, "SIGRTMIN"),
        (35, "signal 35 (SIGRTMIN+1)"),
        (63, "signal 63 (SIGRTMIN+29)"),
        (64, "SIGRTMAX"),
        # The C library keeps these for itself.
        (32, "signal 32"),
        (33, "signal 33"),
    ],
)
def test_every_signal_has_a_name(number: int, name: str) -> None:
    assert signal_name(number) == name
    assert str(Exit(BS, -number)) == f"bs was ended by {name}"


def test_every_number_can_be_named() -> None:
    assert all(str(number) in signal_name(number) for number in (0, 65, 127))
    assert len({signal_name(number) for number in range(1, signal.NSIG)}) == signal.NSIG - 1


@pytest.mark.parametrize(
    ("code", "status"), [(0, 0), (128, 128), (137, -9), (163, -35), (192, -64), (193, 193)]
)
def test_the_status_of_a_shell_is_that_of_a_signal_if_there_is_one(code: int, status: int) -> None:
    assert exit_status(code) == status
