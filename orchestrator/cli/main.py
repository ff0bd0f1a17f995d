# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The console script `testbed`: its commands in groups, and its exit status.

Progress and tables of a current run go to stderr, results to stdout or to the named files. Invalid
input exits with status 2 and one line, a failed run with status 1.
"""

import errno
import getpass
import io
import os
import re
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from ns3_scenarios.errors import ChannelError
from orchestrator.cli import (
    archive,
    emulate,
    exchange,
    flights,
    learning,
    machine,
    predict,
    programs,
    study,
)
from orchestrator.cli.campaign import app as campaign_app
from orchestrator.cli.completion import words_of_bash
from orchestrator.cli.console import log_to_stderr, say
from orchestrator.cli.help import Application
from orchestrator.cli.kernel import app as kernel_app
from orchestrator.cli.radio import app as radio_app
from orchestrator.cli.stopping import Stopped, stoppable
from orchestrator.cli.validate import validate
from testbed.core.errors import InputError, RunError
from testbed.core.registry import OURS
from testbed.system import linux

PACKAGE = "uav-sfl-testbed"
LANGUAGE = "[language]"
"""Extra of language models."""
COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    "Predict": (predict.init, predict.show, predict.trace, predict.predict),
    "Channels": (exchange.export_trace, flights.fit, flights.forecast),
    "Emulate": (emulate.run, emulate.report, emulate.index, emulate.compare, emulate.perfetto),
    "Programs": (programs.up,),
    "Share": (archive.bundle, archive.verify),
    "Study": (study.theory, study.cross_check, validate, study.overhead, study.reproduce),
    "Learn": (learning.learn, learning.train, learning.evaluate, learning.export),
    "Machine": (machine.doctor, machine.combinations, machine.clean, machine.host),
}
"""The commands that `testbed --help` lists, by heading."""

FLAGS = {
    **{"delays_s": "--delay-ms", "file": "FILE", "files": "FILE", "FILE": "FILE"},
    **{"flights": "FLIGHT.npz", "results": "DIR|FILE", "overrides": "--set"},
    **{"columns": "--column", "header": "--no-header"},
}
"""By argument name in error messages: its name on the command line, if no option has this name."""
SYSTEM_ERRORS = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.ENAMETOOLONG),
    *(errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN),
}
"""Errors for lack of space, rights or resources, which are not defects of the testbed."""
NO_MEMORY = "out of memory: this needs more than the machine has, or than `ulimit -v` allows"
OF_TORCH_WITHOUT_MEMORY = ("cannot allocate memory", "can't allocate memory", "unable to mmap")
NO_THREAD = "can't start new thread"
NO_FILE = "too many open files: raise the limit, which `ulimit -n` shows"
NO_PROCESS = (
    "no further process or thread can be started: see `ulimit -u`, `ulimit -v`, and pids.max of "
    "the control group"
)
WITHOUT_PROCESS = (os.strerror(errno.EAGAIN), NO_THREAD, "Cannot fork")
"""In messages of what failed because of it."""
REFUSED = linux.refused_processes()
NAME = re.compile(r"`(\w+)`")
"""The name of an argument, in messages of the Python functions."""


app = Application(
    pretty_exceptions_enable=False,
    help="""Predict and emulate rounds of split federated learning over a UAV network.

    Each command has its own help, with examples: `testbed COMMAND --help`.

    Examples:
        testbed predict quickstart
        testbed run quickstart --out runs/first
        testbed campaign run quickstart --out runs/campaign
    """,
)
for heading, commands in COMMANDS.items():
    for command in commands:
        app.command(rich_help_panel=heading)(command)
app.command(
    "exec",
    rich_help_panel="Programs",
    # Arguments after the node belong to the command to run.
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)(programs.exec_)
app.command("import", rich_help_panel="Channels")(exchange.import_)
app.add_typer(campaign_app, name="campaign", rich_help_panel="Study")
app.add_typer(kernel_app, name="kernel", rich_help_panel="Machine")
app.add_typer(radio_app, name="radio", rich_help_panel="Machine")


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"testbed {version(PACKAGE)}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version, and exit."
        ),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            "-v",
            help="Print debug messages on stderr, as with the environment variable "
            "TESTBED_LOG=debug.",
        ),
    ] = False,
) -> None:
    log_to_stderr("debug" if verbose else os.environ.get("TESTBED_LOG", "info"))


def main() -> None:
    """Entry point of the console script."""
    _open_streams()
    _name_user()
    try:
        with stoppable(), words_of_bash():
            status = app(sys.argv[1:], prog_name="testbed", standalone_mode=False)
            sys.stdout.flush()
        if status == 1 and linux.refused_processes() > REFUSED:
            _exit(1, NO_PROCESS)  # A guest has said what failed because of it.
        sys.exit(status)
    except typer.TyperException as error:
        from orchestrator.cli.usage import described

        _exit(2, described(error))
    except InputError as error:
        _exit(2, str(error))
    except (RunError, ChannelError) as error:
        refused = any(words in str(error) for words in WITHOUT_PROCESS)
        refused |= linux.refused_processes() > REFUSED
        _exit(1, f"{error}; {NO_PROCESS}" if refused else str(error))
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if not (remedy := _how_to_install(error.name or "")):
            raise
        how = f"pip install '{PACKAGE}[full]', or `make setup` in its folder"
        if LANGUAGE in remedy:  # It is not part of [full].
            how = f"pip install '{PACKAGE}{LANGUAGE}'"
        _exit(1, f"{missing} is not installed; {remedy}: {how}")
    except (ImportError, SystemError):
        # A library that cannot be mapped is one of these, or an OSError.
        if not _memory_is_limited():
            raise
        _exit(1, NO_MEMORY)
    except OSError as error:
        if error.errno is None and _memory_is_limited():
            _exit(1, NO_MEMORY)
        if error.errno == errno.ENOENT and not _is_there(Path()):
            _exit(2, "the working directory was deleted; change to another one")
        place = None if error.filename is None else Path(os.fsdecode(error.filename)).parent
        was_removed = error.errno == errno.ENOENT and place is not None and not _is_there(place)
        if error.errno not in SYSTEM_ERRORS and not was_removed:
            raise
        if error.errno == errno.EAGAIN:  # from fork
            _exit(1, NO_PROCESS)
        if error.errno == errno.EMFILE:
            _exit(1, NO_FILE)
        _exit(1, f"{os.fsdecode(error.filename or 'output')}: {error.strerror or error}")
    except MemoryError:
        _exit(1, NO_MEMORY)
    except RuntimeError as error:
        if any(words in str(error).lower() for words in OF_TORCH_WITHOUT_MEMORY):
            _exit(1, NO_MEMORY)
        if NO_THREAD not in str(error):
            raise
        _exit(1, NO_PROCESS)
    except Stopped as error:
        # Who has closed our output wants to read no more.
        _exit(error.status, "" if error.status == 128 + signal.SIGPIPE else str(error))


class _Stream(io.FileIO):
    """stdout or stderr.

    typer and rich catch a `BrokenPipeError` and exit with status 1, so stdout raises another
    error. A message that cannot be written, because the terminal was closed or the disk is full,
    does not end a run.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)
        self._ended_by = {errno.EPIPE: signal.SIGPIPE}
        if self.isatty():
            self._ended_by[errno.EIO] = signal.SIGHUP

    def write(self, data: Any, /) -> Any:
        """Write bytes; returns how many were written."""
        try:
            return super().write(data)
        except OSError as error:
            if self.fileno() == 2:
                return memoryview(data).nbytes
            if error.errno in self._ended_by:
                raise Stopped(self._ended_by[error.errno]) from None
            raise


def _is_there(folder: Path) -> bool:
    """Whether a folder exists; the working directory may have been deleted."""
    try:
        return Path.cwd().joinpath(folder).is_dir()
    except FileNotFoundError:
        return False


def _open_streams() -> None:
    """Make sure that standard streams exist and can print any path or name.

    If stderr is closed, its messages go to stdout; a file that is opened later must not get the
    number of a closed stream.
    """
    if sys.stdin is None:
        _reopen(0, os.open(os.devnull, os.O_RDONLY))
        sys.stdin = os.fdopen(0, closefd=False)
    if sys.stdout is None:
        _reopen(1, os.open(os.devnull, os.O_WRONLY))
    if sys.stderr is None:
        _reopen(2, os.dup(1))
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is not None and getattr(stream, "name", "") != f"<{name}>":
            continue  # a test's own
        own = io.TextIOWrapper(
            io.BufferedWriter(_Stream(number)),
            getattr(stream, "encoding", None),
            "backslashreplace",  # what a terminal or a path's encoding cannot show
            line_buffering=number == 2 or (stream is not None and stream.line_buffering),
        )
        setattr(sys, name, own)


def _name_user() -> None:
    """Name a user without an entry in the system's list: torch asks for it when imported."""
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["USER"] = f"user{os.getuid()}"


def _reopen(number: int, opened: int) -> None:
    """Give an open file this number, also in the processes that are started from here."""
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)
    os.set_inheritable(number, True)


def _memory_is_limited() -> bool:
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def _how_to_install(module: str) -> str:
    """How to install a module, in words; empty if no extra of the package contains it."""
    from importlib.metadata import PackageNotFoundError, requires

    name = module.partition(".")[0]
    try:
        requirements = requires(PACKAGE) or ()
    except PackageNotFoundError:  # not installed, run from the sources
        return "" if name in OURS else "install the package"
    own = re.compile(rf"{re.escape(name)}\b[^;]*; extra == ['\"](\w+)")
    found = [own.match(requirement) for requirement in requirements]
    extras = [f"[{match[1]}]" for match in found if match and match[1] != "dev"]
    return f"{' and '.join(extras)} of the package contains it" if extras else ""


def _options() -> dict[str, str]:
    """The options of the command that runs, by argument name."""
    command: Any = typer.main.get_command(app)
    for word in sys.argv[1:]:
        command = getattr(command, "commands", {}).get(word, command)
    options = {option for parameter in command.params for option in parameter.opts}
    return {o[2:].replace("-", "_"): o for o in options if o.startswith("--")}


def _exit(status: int, message: str) -> None:
    if re.search(NAME, message):
        flags = FLAGS | _options()
        message = re.sub(NAME, lambda found: flags.get(found[1], found[0]), message)
    if message:
        say(" ".join(message.split()))
    try:
        sys.stdout.flush()
    except (OSError, Stopped):  # It is flushed again at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(status)
