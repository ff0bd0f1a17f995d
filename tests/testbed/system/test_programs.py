# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Who takes the CPU: others are named, and whoever descends from the process is none of them."""

import os
import subprocess
import sys
import time

from testbed.system.programs import Programs

BUSY = "import time\nend = time.monotonic() + 20\nwhile time.monotonic() < end: pass"


def test_programs_of_others_are_named_with_the_cores_that_they_keep_busy() -> None:
    with (
        subprocess.Popen(["sleep", "60"]) as one,
        subprocess.Popen([sys.executable, "-c", BUSY]) as busy,
    ):
        try:
            before = {pid: Programs.outside(pid) for pid in (one.pid, os.getpid())}
            end = time.process_time() + 0.3
            while time.process_time() < end:
                pass
            found = {pid: Programs.outside(pid) for pid in before}
        finally:
            one.kill()
            busy.kill()
    pids = {pid: {key[0] for key in programs.taken_s} for pid, programs in found.items()}
    # What we are and what we started is not outside of us, and is outside of another.
    assert not pids[os.getpid()] & {os.getpid(), one.pid, busy.pid}
    assert {os.getpid(), busy.pid} < pids[one.pid]
    assert one.pid not in pids[one.pid]
    (key,) = (key for key in found[one.pid].taken_s if key[0] == os.getpid())
    spent_s = found[one.pid].taken_s[key][1] - before[one.pid].taken_s[key][1]
    assert 0.25 < spent_s < 0.6


def test_those_that_took_most_come_first_and_idle_ones_not_at_all() -> None:
    before = Programs(10.0, {(1, 5): ("a b", 100.0), (2, 6): ("idle", 7.0)})
    after = Programs(
        14.0,
        {(1, 5): ("a b", 102.0), (2, 6): ("idle", 7.01), (2, 9): ("new", 3.0), (3, 9): ("c", 0.2)},
    )
    assert after.since(before) == ["new (2) 0.75", "a b (1) 0.50", "c (3) 0.05"]
