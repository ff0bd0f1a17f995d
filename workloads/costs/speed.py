# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Measures the computing speed of this machine: a program that times steps on request.

It reads JSON lines from standard input and answers each with one line on standard output: first the
settings of a client and a server, answered when both are loaded; then `all` or `forward`, answered
with the seconds per step. Several concurrent instances show the effect of sharing the cores.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from testbed.transport.wire import RoundSizes
from workloads.learning.real import RealClient, RealServer, Settings

LONG_ENOUGH_S = 0.5
"""Smallest total duration of the repetitions of a step, in s."""
FIRST = 1
"""Number of the measured client, and its iteration."""


def main() -> None:
    """Answer requests until standard input ends."""
    order = json.loads(sys.stdin.readline())
    sizes, split = RoundSizes(**order["sizes"]), order["split"]
    client = RealClient(Settings.from_json(order["client"]), FIRST)
    server = RealServer(Settings.from_json(order["server"]))
    client.begin_round(0, split, sizes)
    clients = order["server"]["clients"]
    server.begin_round(0, [split] * clients, [sizes] * clients)
    client.load_adapters()
    client.forward(FIRST)
    smashed, labels = client.smashed()
    server.smashed_buffer(FIRST, len(smashed))[:] = smashed
    server.labels_buffer(FIRST)[:] = labels
    _say({})
    for line in sys.stdin:
        seconds = {"forward_s": _timed(lambda: client.forward(FIRST))}
        if json.loads(line) == "all":
            seconds["server_s"] = _timed(lambda: server.forward_backward([FIRST]))
            seconds["backward_s"] = _timed(client.backward, before=lambda: client.forward(FIRST))
        _say(seconds)


def _timed(step: Callable[[], object], before: Callable[[], object] = lambda: None) -> float:
    """Mean seconds of a step; `before` is called before each repetition and not timed."""
    total_s, turns = 0.0, 0
    while total_s < LONG_ENOUGH_S:
        before()
        start_s = time.perf_counter()
        step()
        total_s += time.perf_counter() - start_s
        turns += 1
    return total_s / turns


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
