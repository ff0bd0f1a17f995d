# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The signals that end a command, and the names of signals and exit statuses."""

import signal

_LAST = signal.NSIG - 1
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP)
"""Ctrl-C, shutdown, Ctrl-\\, and a closed terminal."""


def ending_signals() -> list[signal.Signals]:
    """The signals that end this process: `ENDING`, without SIGHUP where our parent process ignores
    it, as `nohup` does."""
    outlives = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    return [each for each in ENDING if not (outlives and each == signal.SIGHUP)]


def signal_name(number: int) -> str:
    """The name of a signal: `SIGKILL`, or `signal 35 (SIGRTMIN+1)` for one without its own name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        after = number - signal.SIGRTMIN
        is_real_time = after > 0 and number <= signal.SIGRTMAX
        return f"signal {number} (SIGRTMIN+{after})" if is_real_time else f"signal {number}"


def exit_status(code: int) -> int:
    """An exit status as in Python, from one as in shells: the negative number of the signal that
    ended the program if `code` is 128 plus that number, and `code` otherwise."""
    return 128 - code if 128 < code <= 128 + _LAST else code
