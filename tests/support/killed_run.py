# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A run that is killed on the way."""

import time
from pathlib import Path

import warm

from orchestrator.records.checkpoint import Checkpoint
from orchestrator.records.directory import part_of


def killed(
    *words: str | Path, out: Path, rounds: int, after_s: float, learns: bool = False
) -> None:
    """Start a run, and kill it so long after it has done so many rounds."""
    process = warm.start(*words, "--out", out, learns=learns)
    part, deadline = part_of(out), time.monotonic() + 200
    while Checkpoint(part).rounds < rounds:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)
    time.sleep(after_s)
    process.kill()
    process.wait()
    assert not out.exists(), "it had ended already"
