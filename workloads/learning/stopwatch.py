# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""How long computing takes on a device, in real seconds."""

import time
from types import TracebackType
from typing import Any

import torch


class Stopwatch:
    """Times the body of a `with`: by the clock on a CPU, by events on a CUDA device.

    Kernels of a GPU run after the call that asked for them, so a clock around the call would time
    the asking. Leaving the body waits for them.
    """

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._device = device
        self.seconds = 0.0
        """Of the last body."""

    def __enter__(self) -> "Stopwatch":
        self._start = self._now()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        end = self._now()
        if self._cuda:
            end.synchronize()
            self.seconds = self._start.elapsed_time(end) / 1e3
        else:
            self.seconds = end - self._start

    def _now(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event
