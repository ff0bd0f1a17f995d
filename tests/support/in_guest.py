# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Commands in virtual time, one after another in one guest: a start and its imports take seconds.

As a program, this file is what runs inside. It imports once, and does not fork either: there, what
a process writes to after a fork is copied page by page, and that takes as long as the run.
"""

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from warm import end_at_once, load

from testbed.system import inside
from testbed.virtual import guest, kernel

PRELOAD = (
    "orchestrator.api",
    "orchestrator.cli.main",
    "orchestrator.cli.printed_tables",
    "orchestrator.emulated.rounds",
    "orchestrator.reporting.live",
    "orchestrator.reporting.report",
    "orchestrator.records.directory",
    "rich.progress",
    "rich.table",
    "testbed.host.quiet",
    "testbed.runtimes.namespace",
)
VIRTUAL = ("--set", "emulation.clock=virtual")


def play(
    folder: Path, commands: Mapping[str, Sequence[object]]
) -> dict[str, "subprocess.CompletedProcess[str]"]:
    """Run `testbed WORDS` for each of these in one guest, in their order and in `folder`."""
    found = kernel.find()
    assert found is not None
    words = {name: [str(word) for word in given] for name, given in commands.items()}
    said = io.BytesIO()
    with contextlib.chdir(folder):
        argv = [sys.executable, __file__, json.dumps(words)]
        done = guest.run(found, argv, settings=told(found), out=io.BytesIO(), err=said)
    assert done.status == 0, said.getvalue().decode()
    return {
        name: subprocess.CompletedProcess(
            given,
            int((folder / f"{name}.status").read_text()),
            (folder / f"{name}.out").read_text(),
            (folder / f"{name}.err").read_text(),
        )
        for name, given in words.items()
    }


def printed(program: str, *words: object) -> str:
    """What a Python program prints in a guest of its own."""
    found = kernel.find()
    assert found is not None
    out, err = io.BytesIO(), io.BytesIO()
    argv = [sys.executable, "-c", program, *map(str, words)]
    done = guest.run(found, argv, settings=told(found), out=out, err=err)
    assert done.status == 0, err.getvalue().decode()
    return out.getvalue().decode()


def told(found: kernel.Kernel) -> dict[str, Any]:
    """What a guest is told of its kernel, and of the terminal."""
    return {"kernel": found.to_json(), "columns": 100, "colour": False}


def main(given: str) -> None:
    """What runs inside."""
    for module in PRELOAD:
        import_module(module)
    load()
    os.environ["COLUMNS"] = str((inside.guest_settings() or {})["columns"])
    for name, words in json.loads(given).items():
        sys.argv = ["testbed", *words]
        status: object = 0
        with said_in_files(name):
            try:
                sys.modules["orchestrator.cli.main"].main()
            except SystemExit as end:
                status = end.code or 0
        Path(f"{name}.status").write_text(str(status))


@contextlib.contextmanager
def said_in_files(name: str) -> Iterator[None]:
    """What is written to the standard files, in files of that name."""
    kept = {number: os.dup(number) for number in (1, 2)}
    try:
        for number, kind in ((1, "out"), (2, "err")):
            file = os.open(f"{name}.{kind}", os.O_WRONLY | os.O_CREAT)
            os.dup2(file, number)
            os.close(file)
        yield
    finally:
        for stream, (number, file) in zip((sys.stdout, sys.stderr), kept.items(), strict=True):
            stream.flush()
            os.dup2(file, number)
            os.close(file)


if __name__ == "__main__":
    main(sys.argv[1])
    end_at_once(0)
