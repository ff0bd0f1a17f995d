# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Whether a guest in virtual time can wait for somebody outside without its clock going on.

    python benchmarks/computing_outside.py [--seconds 2]

A process of the host takes so many real seconds and then makes a file; meanwhile a guest looks for
it, by a call that fails until then, and by one that succeeds each time. Printed: how often it
looked, and how far its clock went.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from testbed.virtual import guest
from testbed.virtual.kernel import find

WAITS = {
    "stat, which fails until then": "os.path.exists(folder + '/done')",
    "listing the folder, which never fails": "'done' in os.listdir(folder)",
}
PROGRAM = """
import json, os, sys, time
folder, looks = sys.argv[1], 0
open(folder + "/waits", "w").close()
began = time.monotonic_ns()
while not ({found}):
    looks += 1
took_ns = time.monotonic_ns() - began
with open(folder + "/said", "w") as file:
    json.dump([looks, took_ns], file)
"""


def wait(found: str, seconds: float) -> tuple[int, int]:
    """How often the guest looked, and how many of its nanoseconds passed."""
    with tempfile.TemporaryDirectory(dir="/tmp") as temporary:
        folder = Path(temporary)

        def compute() -> None:
            while not (folder / "waits").exists():
                time.sleep(0.01)
            time.sleep(seconds)
            (folder / "done").touch()

        outside = threading.Thread(target=compute)
        outside.start()
        kernel = find()
        assert kernel is not None, "no kernel is built: `testbed kernel build` does it"
        program = PROGRAM.format(found=found)
        guest.run(kernel, [sys.executable, "-c", program, str(folder)])
        outside.join()
        looks, took_ns = json.loads((folder / "said").read_text())
    return looks, took_ns


def main() -> None:
    """Wait in both ways, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0)
    asked = parser.parse_args()
    table = Table("the guest waits by", "looks", "virtual time", f"of {asked.seconds:g} s of real")
    for name, found in WAITS.items():
        looks, took_ns = wait(found, asked.seconds)
        table.add_row(name, str(looks), f"{took_ns} ns", f"{took_ns / 1e7 / asked.seconds:.7f} %")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
