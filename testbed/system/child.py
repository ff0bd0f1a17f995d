# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Children of this process that were forked or copied, as `subprocess.Popen` shows its own."""

import os
import select
import signal
import subprocess


class Child:
    """A child of this process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._status: int | None = None

    def poll(self) -> int | None:
        """The exit status, negative for a signal's number; None: the child has not ended."""
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status

    def wait(self, timeout: float | None = None) -> int:
        """Wait until the child has ended; returns its exit status as `poll` does.

        Args:
            timeout: Longest time to wait in seconds; None: without limit.

        Raises:
            subprocess.TimeoutExpired: The child has not ended in that time.
        """
        if (status := self.poll()) is not None:
            return status
        descriptor = os.pidfd_open(self.pid)
        try:
            if not select.select([descriptor], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        finally:
            os.close(descriptor)
        status = self.poll()
        assert status is not None
        return status

    def terminate(self) -> None:
        """Send SIGTERM to the child, if it has not ended."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to the child, if it has not ended."""
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)
