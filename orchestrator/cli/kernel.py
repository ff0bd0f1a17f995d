# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`testbed kernel`: build and show the Linux kernel for virtual time."""

import os
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli import completion
from orchestrator.cli.console import say, shown
from orchestrator.cli.help import Application, Command
from orchestrator.cli.options import PER_CORE, STDOUT, CommandWords, JsonFile
from testbed.core.errors import InputError

if TYPE_CHECKING:
    from testbed.virtual.kernel import Kernel

app = Application(
    help="""Build the Linux kernel for virtual time, show its status, or keep a guest warm.

    Examples:
        testbed kernel build
    """
)


class _Status(Command):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Accept `--json` without a file, which prints the JSON: scripts may use this old form."""
        return super().parse_args(ctx, [*args, str(STDOUT)] if args[-1:] == ["--json"] else args)


@app.command()
def build(
    source: Annotated[
        Path | None,
        typer.Option(
            "--source",
            metavar="TARBALL",
            help="Source archive of Linux 6.12.",
            show_default="Debian's source package",
            autocompletion=completion.files(),
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            min=1,
            metavar="N",
            help="Number of parallel jobs.",
            show_default=PER_CORE,
        ),
    ] = None,
) -> None:
    """Build the kernel for virtual time, and store it in the user's cache.

    The build takes a few minutes.

    Examples:
        testbed kernel build
        testbed kernel build --source linux-6.12.tar.xz --jobs 4
    """
    from testbed.virtual import kernel

    if lines := kernel.missing(source):
        for line in lines:
            say(f"kernel build: needs {line}")
        raise typer.Exit(2)
    with shown("files") as show:
        built = kernel.build(source, jobs=jobs, progress=show)
    _print(built)


@app.command(cls=_Status)
def status(json_file: JsonFile = None) -> None:
    """Show the kernel for virtual time, or what is missing to build it.

    Examples:
        testbed kernel status
        testbed kernel status --json kernel.json
    """
    from testbed.system.files import check_writable, write_json
    from testbed.virtual import kernel

    check_writable("json", json_file)
    found = kernel.find()
    about = found and found.to_json()
    if json_file is not None:
        write_json(json_file, about)
    if found is not None:
        _print(found)
    else:
        print("not built: build it with `testbed kernel build` (some minutes)")
        for line in kernel.missing():
            print(f"it needs {line}")


@app.command()
def warm(
    command: CommandWords = None,
) -> None:
    """Run COMMAND, within which `testbed run` and `testbed up` start faster in virtual time.

    They start as copies of one guest, which the first of them starts, with identical results. A
    command in another folder starts the guest again. The guest ends with COMMAND.

    Examples:
        testbed kernel warm -- bash all-runs.sh
    """
    from orchestrator.emulated.guests import kernel
    from testbed.virtual.warm import keeper

    words = command or [os.environ.get("SHELL", "/bin/sh")]
    with keeper(kernel()) as environment:
        # Ctrl-C in a terminal also reaches the command, which decides, as in a shell.
        signal.signal(signal.SIGINT, lambda *_: None)
        try:
            running = subprocess.Popen(words, env=environment)
        except OSError as error:
            raise InputError(f"COMMAND: {words[0]}: {error.strerror}") from None
        try:
            status = running.wait()
        except BaseException:
            running.terminate()
            running.wait()
            raise
    raise typer.Exit(128 - status if status < 0 else status)


def _print(kernel: "Kernel") -> None:
    print(f"Linux {kernel.version}, built {kernel.built} with {kernel.compiler}")
    print(f"{kernel.program}")
    for what, digest in (
        ("kernel", kernel.program_sha256),
        ("configuration", kernel.config_sha256),
        *kernel.patches_sha256.items(),
        ("recipe", kernel.recipe_sha256),
        ("source", kernel.source_sha256),
    ):
        print(f"  {what:24s} sha256 {digest}")
