# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What is tried in a process of its own, with which its namespaces end."""

import subprocess
import sys

from testbed.core.errors import RunError
from testbed.system.machine import slowness


def output_of(module: str, limit_s: float, field: str, what: str) -> str:
    """What a module prints that is run as a program.

    Args:
        module: Its name.
        limit_s: Real seconds that it may take on an ordinary machine; a slow one gives it longer.
        field: Whose message it is if it fails.
        what: What it tries.

    Raises:
        RunError: It takes longer, or fails; the message says of which field, and what it tries.
    """
    command = [sys.executable, "-m", module]
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
