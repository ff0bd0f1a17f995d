# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Waiting for a moment of the monotonic clock, as close to it as the machine allows."""

import time

from testbed.core.clock import sleep_ns
from testbed.system import inside

SPIN_NS = 100_000
"""How long before its moment waiting turns from sleep into a busy loop: a sleeper wakes some 60 µs
late, and that would go into every transfer's start."""


def wait_until(moment_ns: int, spin_ns: int = SPIN_NS) -> None:
    """Wait for that moment of the monotonic clock; returns at once if it has passed.

    The moment is absolute: waking late does not add up. In virtual time, a sleeper wakes when it
    asked for; there, nothing is spent awake.

    Args:
        moment_ns: As `time.monotonic_ns` counts.
        spin_ns: How much of it is spent awake, by the real clock.
    """
    rest_ns = moment_ns - time.monotonic_ns() - (spin_ns if inside.told() is None else 0)
    if rest_ns > 0:
        sleep_ns(rest_ns)
    while time.monotonic_ns() < moment_ns:
        pass
