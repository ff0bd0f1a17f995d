# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Writes the reference of the command line from the commands themselves.

``python -m orchestrator.cli.reference > docs/cli.md``
"""

from collections.abc import Iterator
from typing import Any

from typer.main import get_command

from orchestrator.cli.emulate import NOT_VALID
from orchestrator.cli.help import REQUIRED, Row, headings, rows
from orchestrator.cli.main import app

HEAD = """# Command line

This page lists all commands of `testbed`, with their options and exit statuses.
`python -m orchestrator.cli.reference` generates it from the help texts of the commands.
`testbed COMMAND --help` prints the same texts.

Results are printed on stdout. Progress, notes and errors are printed on stderr. An error message is
one line that begins with `testbed: ` and names the option, the key or the file.

Shell completion offers commands, options, files, scenario keys and their values. To install it,
run `testbed --install-completion` once, and start a new shell.

"""

EXIT_STATUS = {
    "0": "The command was successful. A run that is not valid also counts as a success, unless "
    "`testbed run --strict` is used.",
    "1": "The command failed while it ran, for example because a node ended unexpectedly or the "
    "disk was full. `testbed verify` and `testbed campaign verify`: a result differs from the "
    "stored one. `testbed campaign run`: a point failed. `testbed up`: a command in a node "
    "failed.",
    "2": "The input is not valid: a command, an option, a scenario or a file. Nothing was written. "
    "`testbed kernel build`: a tool that the build needs is missing.",
    str(NOT_VALID): "`testbed run --strict`: the run is complete, but not valid.",
    "129": "The terminal was closed (SIGHUP).",
    "130": "The command was interrupted with Ctrl-C (SIGINT).",
    "131": "The command was ended with Ctrl-\\\\ (SIGQUIT).",
    "141": "The program that reads stdout, for example `head`, closed it (SIGPIPE).",
    "143": "The command was terminated by SIGTERM.",
    "other": "`testbed exec`: the exit status of the command that ran in the node, or 128 plus the "
    "number of the signal that ended it.",
}
"""By exit status of `testbed`: its meaning."""


def reference() -> str:
    """The reference as Markdown."""
    return HEAD + "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    root = get_command(app)
    yield from ("## Exit status", "", "| status | meaning |", "|---|---|")
    yield from (f"| {status} | {_cell(what)} |" for status, what in EXIT_STATUS.items())
    yield from ("", "## Global options", "")
    yield from ("Write these options before the name of the command.", "")
    context = _context(root, "testbed", None)
    yield from _table(rows(root, context), "option")
    for heading, commands in headings(root).items():
        yield from ("", f"## {heading}")
        for name, command in commands.items():
            yield from _section(command, name, context)


def _section(command: Any, name: str, parent: Any) -> Iterator[str]:
    context = _context(command, name, parent)
    words = context.command_path
    yield from ("", f"### {words}", "", *command.help.splitlines(), "", "```text")
    yield from (words + " " + " ".join(command.collect_usage_pieces(context)), "```")
    if command.examples:
        yield from ("", "Examples:", "", "```text", *command.examples, "```")
    if hasattr(command, "commands"):
        for inner, each in command.commands.items():
            yield from _section(each, inner, context)
        return
    every = [row for row in rows(command, context) if row.name != "--help"]
    for kind, chosen in (
        ("argument", [row for row in every if row.section == "Arguments"]),
        ("option", [row for row in every if row.section != "Arguments"]),
    ):
        if chosen:
            yield ""
            yield from _table(chosen, kind)


def _table(chosen: list[Row], kind: str) -> Iterator[str]:
    yield from (f"| {kind} | default | meaning |", "|---|---|---|")
    for row in chosen:
        about = row.section.removeprefix("Options").strip()
        notes = [*([about] if kind == "option" and about else []), *row.notes]
        default = row.default
        if REQUIRED in notes:
            notes.remove(REQUIRED)
            default = f"({REQUIRED})"
        meaning = f"{row.meaning} ({'; '.join(notes)})" if notes else row.meaning
        name = f"{row.name} {row.value}".strip()
        yield f"| `{_cell(name)}` | {_cell(default)} | {_cell(meaning)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _context(command: Any, name: str, parent: Any) -> Any:
    return command.context_class(command, info_name=name, parent=parent)


if __name__ == "__main__":
    print(reference(), end="")
