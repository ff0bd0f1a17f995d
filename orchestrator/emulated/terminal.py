# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A terminal for a program in another session that is connected to this shell's terminal."""

import fcntl
import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress

CHUNK = 1 << 16


@contextmanager
def lent() -> Iterator[int]:
    """A new terminal that is connected to this shell's until the context ends.

    The program must not get this shell's terminal itself: it could insert input that other programs
    then read.

    Yields:
        Its open file.
    """
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8)))
    before = termios.tcgetattr(0)
    until, end = os.pipe()
    relay = threading.Thread(target=_relay, args=(ours, until), daemon=True)
    resized = signal.signal(signal.SIGWINCH, lambda *_: _resize(ours))
    tty.setraw(0)
    try:
        relay.start()
        yield theirs
    finally:
        os.close(theirs)
        os.write(end, b"\0")
        relay.join()
        termios.tcsetattr(0, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, resized)
        for descriptor in (ours, until, end):
            os.close(descriptor)


def _resize(terminal: int) -> None:
    size = fcntl.ioctl(0, termios.TIOCGWINSZ, bytes(8))
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)


def _relay(ours: int, until: int) -> None:
    """Copy input and output between the terminals until all output has been shown."""
    sources = [0, ours, until]
    ending = False
    while ready := select.select(sources, [], [], 0 if ending else None)[0]:
        if ours in ready:
            try:
                data = os.read(ours, CHUNK)
            except OSError:  # It has been closed.
                return
            with suppress(OSError):
                os.write(sys.stdout.fileno(), data)
        if until in ready:
            ending = True
            sources = [ours]
        elif 0 in ready:
            typed = os.read(0, CHUNK)
            if not typed:
                sources.remove(0)
            os.write(ours, typed or b"\x04")
