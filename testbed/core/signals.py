# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Names of signals and exit statuses, for messages."""

import signal

_LAST = signal.NSIG - 1


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
