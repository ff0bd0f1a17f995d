# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A signal ends a command wherever it finds it, once, and leaves its contexts in order."""

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from orchestrator.cli import stopping
from testbed.core.signals import ending_signals

PROGRAM = """
import ctypes, importlib.util, os, signal, sys, time

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # Also where these tests run under `nohup`.
spec = importlib.util.spec_from_file_location("stopping", {file!r})
stopping = importlib.util.module_from_spec(spec)
spec.loader.exec_module(stopping)

def of_library(source):
    names = {{}}
    exec(compile(source, stopping.LIBRARIES[0] + "/a/library.py", "exec"), globals(), names)
    return names["it"]

def ask(number=signal.SIGTERM):
    os.kill(os.getpid(), number)

def go_on():
    for _ in range(100):
        time.sleep(0.1)

try:
    with stopping.stoppable():
        try:
{what}
            go_on()
        finally:
            time.sleep(0.2)  # The timer goes on meanwhile.
            print("left in order")
except stopping.Stopped as stopped:
    print(stopped, stopped.status)
time.sleep(0.1)
print("and is over")
"""
STATUS = {"SIGHUP": 129, "SIGINT": 130, "SIGQUIT": 131, "SIGTERM": 143}
IN_ORDER = "left in order\nended by SIGTERM 143\nand is over\n"


def said(what: str) -> "subprocess.CompletedProcess[str]":
    """Of a program that may be stopped and does that."""
    body = textwrap.indent(textwrap.dedent(what), " " * 12)
    program = PROGRAM.format(file=str(Path(stopping.__file__)), what=body)
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )


def test_our_own_code_ends_at_once() -> None:
    assert said("ask(); print('too late')").stdout == IN_ORDER


def test_what_a_callback_of_c_has_lost_is_raised_again() -> None:
    done = said("ctypes.CFUNCTYPE(None)(ask)()")
    assert done.stdout == IN_ORDER
    assert "ignored" in done.stderr


def test_a_library_returns_first() -> None:
    source = "def it(): os.kill(os.getpid(), signal.SIGTERM); time.sleep(0.1); print('returned')"
    done = said(f"ctypes.CFUNCTYPE(None)(of_library({source!r}))()")
    assert done.stdout == "returned\n" + IN_ORDER
    assert not done.stderr


def test_a_library_that_does_not_return_ends_in_time() -> None:
    done = said("stopping.PATIENCE_S = 0.2; of_library('def it(): ask(); go_on()')()")
    assert done.stdout == IN_ORDER


def test_who_is_to_outlive_a_terminal_does(monkeypatch: pytest.MonkeyPatch) -> None:
    assert signal.SIGTERM in ending_signals()
    for handler in (signal.SIG_DFL, signal.SIG_IGN):
        monkeypatch.setattr(signal, "getsignal", {signal.SIGHUP: handler}.get)
        assert (signal.SIGHUP in ending_signals()) == (handler == signal.SIG_DFL)


@pytest.mark.parametrize("name", STATUS)
def test_who_asks_twice_does_not_wait_for_what_is_left(name: str) -> None:
    done = said(
        f"""
        try:
            ask(signal.{name})
        finally:
            ask(signal.{name})
            go_on()
            print("what is left")
        """
    )
    assert done.stdout.splitlines()[:2] == ["left in order", f"ended by {name} {STATUS[name]}"]
