# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Trials in a separate process, whose namespaces end with it."""

import subprocess
import sys

from testbed.core.errors import RunError
from testbed.system.machine import slowness


def output_of(module: str, limit_s: float, field: str, what: str) -> str:
    """Run a module as a program and return its output.

    Args:
        module: Name of the module.
        limit_s: Time limit in real seconds on an ordinary machine; it is longer on a slow one.
        field: Field that begins the error message.
        what: Purpose of the trial, for the error message.

    Raises:
        RunError: It takes too long or fails; the message names field and purpose.
    """
    command = [sys.executable, "-P", "-m", module]
    limit_s *= slowness()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=True)
    except subprocess.TimeoutExpired:
        why = f"waited {limit_s:.3g} s for the process that tries {what}"
        raise RunError(f"{field}: {why}") from None
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip() or "it says nothing").splitlines()[-1]
        raise RunError(f"{field}: the process that tries {what} failed: {last}") from None
    return done.stdout
