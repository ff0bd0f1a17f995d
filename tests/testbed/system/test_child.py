# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Children that were forked: they are waited for and ended as those of `subprocess`."""

import os
import subprocess
import time

import pytest

from testbed.system.child import Child


def forked(seconds: float, status: int = 0) -> Child:
    pid = os.fork()
    if pid == 0:
        time.sleep(seconds)
        os._exit(status)
    return Child(pid)


def test_the_status_of_a_child_that_ends_is_kept() -> None:
    child = forked(0.2, 3)
    assert child.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.01)
    assert child.wait(60) == 3
    assert child.poll() == child.wait() == 3
    child.kill()  # It has ended, and its number may be another process's.


@pytest.mark.parametrize(("end", "status"), [(Child.terminate, -15), (Child.kill, -9)])
def test_a_child_that_is_ended_has_the_status_of_its_signal(end, status) -> None:  # type: ignore[no-untyped-def]
    child = forked(60)
    end(child)
    assert child.wait(60) == status
