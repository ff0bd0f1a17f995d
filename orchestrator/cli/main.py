# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The console script `testbed`: its commands, by what one does with them, and how it ends.

Progress and tables of a run in progress go to stderr; results to stdout or the named files. Wrong
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
from typing import Annotated

import typer

from ns3_scenarios.errors import ChannelError
from orchestrator.cli import archive, emulate, exchange, learning, machine, predict, programs, study
from orchestrator.cli.campaign import app as campaign_app
from orchestrator.cli.console import log_to_stderr
from orchestrator.cli.grouped import Grouped
from orchestrator.cli.kernel import app as kernel_app
from orchestrator.cli.stopping import Stopped, stoppable
from orchestrator.cli.validate import validate
from testbed.core.errors import InputError, RunError
from testbed.core.registry import OURS

PACKAGE = "uav-sfl-testbed"
COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    "Predict": (predict.init, predict.show, predict.trace, predict.predict),
    "Channels": (exchange.export_trace,),
    "Emulate": (emulate.run, emulate.report, emulate.compare, emulate.perfetto),
    "Programs": (programs.up,),
    "Share": (archive.bundle, archive.verify),
    "Study": (study.theory, study.cross_check, validate, study.overhead, study.reproduce),
    "Learn": (learning.train, learning.evaluate, learning.export),
    "Machine": (machine.doctor, machine.clean, machine.host),
}
"""What `testbed --help` lists, under these headings."""

FLAGS = {
    name: f"--{name}"
    for name in (
        *("json", "key", "node", "out", "overwrite", "resume", "rounds", "scheduler", "sweep"),
        *("trace", "until", "down", "origin", "scenario", "format"),
    )
} | {
    **{"overrides": "--set", "columns": "--column", "slot_s": "--slot-s"},
    **{"speed": "--speed", "tx_dbm": "--tx-dbm", "files": "FILE"},
}
"""What arguments that errors name are called on the command line."""
MACHINE_SAYS_NO = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO, errno.ENAMETOOLONG),
    *(errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN),
}
"""What the operating system refuses for want of room, rights or processes: no defect of ours."""
NO_MEMORY = "out of memory: this needs more than the machine has, or than `ulimit -v` allows"
NO_THREAD = "can't start new thread"
NO_MORE = "no further process or thread can be started: see `ulimit -u` and `ulimit -v`"


app = typer.Typer(
    cls=Grouped,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Emulate split federated learning over a UAV network, and predict the same rounds.",
)
for heading, commands in COMMANDS.items():
    for command in commands:
        app.command(rich_help_panel=heading)(command)
app.command(
    "exec",
    rich_help_panel="Programs",
    # What follows the node is the command's.
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)(programs.exec_)
app.command("import", rich_help_panel="Channels")(exchange.import_)
app.command("opinions", hidden=True)(study.cross_check)  # what it was called
app.add_typer(campaign_app, name="campaign", rich_help_panel="Study")
app.add_typer(kernel_app, name="kernel", rich_help_panel="Machine")


def _tell_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"testbed {version(PACKAGE)}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_tell_version, is_eager=True, help="Say which one this is."
        ),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Tell on stderr what is done; as TESTBED_LOG=debug."),
    ] = False,
) -> None:
    log_to_stderr("debug" if verbose else os.environ.get("TESTBED_LOG", "info"))


def main() -> None:
    """Entry point of the console script."""
    _open_streams()
    _name_user()
    try:
        with stoppable():
            words = sys.argv[1:] or ["--help"]
            sys.exit(app(words, prog_name="testbed", standalone_mode=False))
    except typer.TyperException as error:
        _leave(2, error.format_message())
    except InputError as error:
        _leave(2, str(error))
    except (RunError, ChannelError) as error:
        _leave(1, str(error))
    except ModuleNotFoundError as error:
        if not (remedy := _what_brings(error.name or "")):
            raise
        _leave(
            1,
            f"{error.name} is not installed; {remedy}: "
            f"pip install '{PACKAGE}[full]', or `make setup` in its folder",
        )
    except BrokenPipeError:
        # Whoever read our results has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(128 + signal.SIGPIPE)
    except (ImportError, SystemError):
        # A library that cannot be mapped is one of these, or an OSError.
        if not _memory_is_limited():
            raise
        _leave(1, NO_MEMORY)
    except OSError as error:
        if error.errno is None and _memory_is_limited():
            _leave(1, NO_MEMORY)
        if error.errno not in MACHINE_SAYS_NO:
            raise
        if error.errno == errno.EAGAIN and error.filename is None:  # as of a fork
            _leave(1, NO_MORE)
        _leave(1, f"{os.fsdecode(error.filename or 'output')}: {error.strerror or error}")
    except MemoryError:
        _leave(1, NO_MEMORY)
    except RuntimeError as error:
        if NO_THREAD not in str(error):
            raise
        _leave(1, NO_MORE)
    except Stopped as error:
        _leave(error.status, str(error))


def _open_streams() -> None:
    """See that there are standard streams, and that they bear whatever a path or name holds.

    Where stderr is closed, what is said goes to stdout rather than nowhere; a file that is opened
    later must not become one of them.
    """
    for number, name, flags in ((0, "stdin", os.O_RDONLY), (1, "stdout", os.O_WRONLY)):
        if getattr(sys, name) is None:
            _reopen(number, os.open(os.devnull, flags))
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))
    if sys.stderr is None:
        _reopen(2, os.dup(1))
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    for stream in (sys.stdout, sys.stderr):
        # A terminal that is not UTF-8, a path that is not: shown as escapes, not as a traceback.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _name_user() -> None:
    """Give a user without an entry in the system's list a name: torch asks for it on its import."""
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["USER"] = f"user{os.getuid()}"


def _reopen(number: int, opened: int) -> None:
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)


def _memory_is_limited() -> bool:
    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def _what_brings(module: str) -> str:
    """What there is to install for a module, in words; empty where nothing brings it."""
    from importlib.metadata import PackageNotFoundError, requires

    name = module.partition(".")[0]
    try:
        requirements = requires(PACKAGE) or ()
    except PackageNotFoundError:  # Only the package's files are here.
        return "" if name in OURS else "install the package"
    own = re.compile(rf"{re.escape(name)}\b[^;]*; extra == ['\"](\w+)")
    found = [own.match(requirement) for requirement in requirements]
    extras = [f"[{match[1]}]" for match in found if match and match[1] != "dev"]
    return f"{' and '.join(extras)} of the package bring it" if extras else ""


def _leave(status: int, message: str) -> None:
    with_flags = re.sub(r"`(\w+)`", lambda found: FLAGS.get(found[1], found[0]), message)
    print(f"testbed: {' '.join(with_flags.split())}", file=sys.stderr)
    sys.exit(status)
