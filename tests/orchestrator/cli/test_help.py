# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Help texts: examples that can be parsed, placeholders instead of types, former names hidden."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
import warm
from typer.testing import CliRunner

from orchestrator.cli.help import leaves, rows
from orchestrator.cli.main import app
from orchestrator.cli.reference import EXIT_STATUS

ROOT = typer.main.get_command(app)
GROUPS = [("testbed", ROOT)] + [
    (f"testbed {name}", each) for name, each in ROOT.commands.items() if hasattr(each, "commands")
]
COMMANDS = [*leaves(ROOT), *GROUPS]
IDS = [words for words, _ in COMMANDS]


def context_of(command: Any) -> Any:
    return command.context_class(command, info_name="testbed")


def parsed(words: list[str]) -> Any:
    """The command that a line names, after all its words were parsed; nothing is run."""
    command, rest = ROOT, words
    while hasattr(command, "commands"):
        name, command, rest = command.resolve_command(context_of(command), rest)
        assert command is not None, words
    with command.make_context(name, list(rest), parent=context_of(ROOT)) as context:
        assert context.args == []
        return context.command


@pytest.mark.parametrize(("words", "command"), COMMANDS, ids=IDS)
def test_a_command_has_examples_that_can_be_parsed(words: str, command: Any) -> None:
    assert 1 <= len(command.examples) <= 3
    for line in command.examples:
        first, *rest = shlex.split(line)
        assert first == "testbed"
        assert len(line) <= 98
        found = parsed(rest)
        if not hasattr(command, "commands") and words != "testbed learn":
            assert found is command


@pytest.mark.parametrize(
    "line", ["predict", "predict paper --no-option", "predictt paper", "campaign runs q"]
)
def test_an_example_that_cannot_be_parsed_would_be_found(line: str) -> None:
    with pytest.raises(typer.TyperException):
        parsed(line.split())


@pytest.mark.parametrize(("words", "command"), COMMANDS, ids=IDS)
def test_a_help_shows_its_examples_in_one_line_each(words: str, command: Any) -> None:
    done = CliRunner().invoke(app, [*words.split()[1:], "--help"])
    assert done.exit_code == 0, done.output
    assert "\nExamples:\n" in done.stdout
    assert {f"  {line}" for line in command.examples} <= set(done.stdout.splitlines())
    assert not re.search(r"<(int|float|str|path|list|bool)|range>|\}\.\.\.|…\]", done.stdout)


@pytest.mark.parametrize(("words", "command"), COMMANDS, ids=IDS)
def test_every_argument_and_option_is_described(words: str, command: Any) -> None:
    for row in rows(command, context_of(command)):
        assert row.meaning[:1].isupper() or row.meaning.startswith("`"), row
        assert row.meaning.endswith("."), row
        assert "(default" not in row.meaning, "the default has a place of its own"
        assert row.name, row
        assert "<" not in row.value, row
    for each in command.params:
        if each.param_type_name == "option" and not each.is_flag:
            assert each.metavar, (words, each.name)


def test_options_mean_the_same_everywhere() -> None:
    """A value or none, and a folder's rights, as the name says."""
    kinds: dict[str, set[str]] = {}
    for words, command in leaves(ROOT):
        names = {row.name for row in rows(command, context_of(command))}
        for row in rows(command, context_of(command)):
            kinds.setdefault(row.name, set()).add(row.value)
        if "--scheduler" in names:
            assert "--key" in names, words
        if "--resume" in names:
            assert "--overwrite" in names, words
    for name in ("--json", "--set", "--key", "--scheduler", "--rounds", "--capture", "--overwrite"):
        assert len(kinds[name]) == 1, (name, kinds[name])


@pytest.mark.parametrize("words", [[], ["campaign"], ["kernel"]], ids=str)
def test_a_group_alone_prints_its_help(words: list[str]) -> None:
    done = warm.run(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == warm.run(*words, "--help").stdout


def test_ranges_and_repetition_are_said_in_words() -> None:
    text = " ".join(warm.run("validate", "--help").stdout.split())
    assert "[default: 4000; 16 to 1000000]" in text
    assert "for example workload.split=3. [can be repeated]" in text
    assert "[default: one per core; at least 1]" in text
    forecast = " ".join(warm.run("forecast", "--help").stdout.split())
    assert "Give at most one. --set" in forecast


def test_options_of_import_are_grouped_by_format() -> None:
    text = warm.run("import", "--help").stdout
    headings = re.findall(r"^(\w.*):$", text, re.MULTILINE)
    assert headings[:4] == ["Arguments", "Options", "Options for mahimahi", "Options for csv"]


def test_the_reference_has_every_exit_status_that_commands_have() -> None:
    refused = warm.run("predict", "nothing.yaml")
    assert str(refused.returncode) in EXIT_STATUS
    assert {"0", "1", "2", "3", "130"} <= EXIT_STATUS.keys()


def test_the_status_of_the_kernel_goes_to_a_file_or_as_before_to_stdout(tmp_path: Path) -> None:
    old = warm.run("kernel", "status", "--json", cwd=tmp_path)
    new = warm.run("kernel", "status", "--json", "k.json", cwd=tmp_path)
    assert (old.returncode, new.returncode) == (0, 0), new.stderr
    assert json.loads(old.stdout) == json.loads((tmp_path / "k.json").read_text())
    assert [path.name for path in tmp_path.iterdir()] == ["k.json"]
    assert new.stdout.startswith(("Linux", "not built"))
