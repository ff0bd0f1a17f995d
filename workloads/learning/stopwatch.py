# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Measurement of computing times on a device, in real seconds."""

import time
from types import TracebackType
from typing import Any

import torch


class Stopwatch:
    """Times the body of a `with` statement: by the clock on a CPU, by events on a CUDA device.

    Kernels of a GPU run asynchronously, so a clock would only measure their launch. Leaving the
    body waits for them.
    """

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._device = device
        self.seconds = 0.0
        """Duration of the last body."""

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
