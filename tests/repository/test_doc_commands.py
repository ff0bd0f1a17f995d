# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Every command in the documentation is run in a fresh checkout and prints what the page shows.

Those that pages only name, in their text or in blocks that are not run, can be parsed."""

import argparse
import importlib.util
import itertools
import re
import runpy
import shlex
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
from documents import PAGES, ROOT, Checkout, Command, judge, named, parse, read

from ns3_scenarios import nr_module
from orchestrator.cli.main import app

READ = {page.name: page for page in map(read, PAGES)}
LONG = ("docs/plugins.md", "docs/validate.md")
"""Pages that compute longest with what tests of their own cover."""


def with_words(word: str) -> list[str]:
    return [name for name, page in READ.items() if any(word in c.words for c in page.commands)]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.full] if name in LONG else [])
        for name, page in READ.items()
        if page.commands
    ],
)
def test_commands_work_and_print_what_is_shown(name: str, checkout: Checkout) -> None:
    quick = [c for c in READ[name].commands if not c.words & {"full", "docker", "lena"}]
    faults = checkout.run(quick, limit_s=280)
    assert not faults, "\n".join(faults)


@pytest.mark.full
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", with_words("full"))
def test_long_commands_work_too(name: str, checkout: Checkout) -> None:
    commands = [c for c in READ[name].commands if not c.words & {"docker", "lena"}]
    faults = checkout.run(commands, limit_s=3500)
    assert not faults, "\n".join(faults)


@pytest.mark.full
@pytest.mark.skipif(nr_module.find() is None, reason="5G-LENA is not built")
@pytest.mark.parametrize("name", with_words("lena"))
def test_commands_over_5g_lena_work(name: str, checkout: Checkout) -> None:
    faults = checkout.run([c for c in READ[name].commands if "lena" in c.words], limit_s=280)
    assert not faults, "\n".join(faults)


@pytest.mark.docker
@pytest.mark.parametrize("name", with_words("docker"))
def test_commands_with_docker_work(name: str, checkout: Checkout) -> None:
    commands = [c for c in READ[name].commands if c.file or "docker" in c.words]
    faults = checkout.run(commands, limit_s=280)
    assert not faults, "\n".join(faults)


# --- commands that pages name --------------------------------------------------------------------


NAMED = [
    command
    for page in (*PAGES, ROOT / "CONTRIBUTING.md")
    for command in named(str(page.relative_to(ROOT)), page.read_text(encoding="utf-8"))
]
PLACEHOLDER = re.compile(r"(?!-).*(…|\b[A-Z][A-Z|]+\b|\[)")
CHEAP = (
    "python -m orchestrator.",
    "python tests/support/layers.py",
    "testbed --version",
    "testbed combinations",
    "testbed export-trace paper.npz",
    "testbed init my-scenario.yaml",
    "testbed kernel status",
    "testbed predict paper --rounds 10 ",
    "testbed predict paper --trace paper.npz",
    "testbed predict scenarios/paper.yaml --rounds 100",
    "testbed radio status",
    "testbed show ",
    "testbed trace paper",
)
"""Beginnings of named commands that take less than 5 s: they are run, in the order of pages."""


class ParsedError(Exception):
    """Ends a program as soon as it has parsed its arguments."""


def check_testbed(words: list[str]) -> None:
    """The command exists, and its options do; placeholders may stand for arguments."""
    command = typer.main.get_command(app)
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        if PLACEHOLDER.match(words[0]):
            return
        assert words[0] in command.commands, f"no command {words[0]}"
        command, words = command.commands[words[0]], words[1:]
    options = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    given = [word for word in words[: [*words, "--"].index("--")] if word.startswith("-")]
    shared = {"--help", "--version", "--install-completion", "-v"}
    unknown = {word.partition("=")[0] for word in given} - options - shared
    assert not unknown, f"no options {unknown}"
    if any(map(PLACEHOLDER.match, words)) or hasattr(command, "commands"):
        return
    if not any(not word.startswith("-") for word in words) or words[-1] in options:
        return  # The name of a command, perhaps with an option.
    try:
        with command.make_context("testbed", list(words)) as context:
            assert context.args == []
    except typer.TyperException as error:
        if type(error).__name__ != "MissingParameter":  # Some are named without an argument.
            raise


def check_python(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The module or file exists; if it parses its arguments with `argparse`, it accepts them."""
    if words[0] == "-m":
        assert importlib.util.find_spec(words[1]) is not None
        return
    file = ROOT / words[0]
    if "parse_args()" not in file.read_text(encoding="utf-8"):
        return
    parse_args = argparse.ArgumentParser.parse_args

    def parse_only(parser: argparse.ArgumentParser, *given: Any) -> None:
        parse_args(parser, *given)
        raise ParsedError

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_only)
    monkeypatch.setattr(sys, "argv", [str(file), *words[1:]])
    monkeypatch.syspath_prepend(file.parent)
    with pytest.raises(ParsedError):
        runpy.run_path(str(file), run_name="__main__")


def check_make(words: list[str], _: Any = None) -> None:
    """All targets exist."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    assert {word for word in words if "=" not in word} <= targets


def check_pip(words: list[str], _: Any = None) -> None:
    """Extras of the package and folders of examples exist."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for word in words:
        extras = re.fullmatch(r"uav-sfl-testbed\[(\S+)\]", word)
        assert extras is None or extras[1] in project["optional-dependencies"]
        assert not word.startswith("./") or (ROOT / word / "pyproject.toml").is_file()


def check(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command line can be parsed, and the repository has the files that it names."""
    program, *words = shlex.split(text.removeprefix("sudo "))
    made = {following for word, following in itertools.pairwise(words) if word == "--out"}
    for word in set(words) - made:
        if re.match(r"(scenarios|campaigns|examples|docs|tests)/\S+$", word):
            assert (ROOT / word).exists(), word
    match Path(program).name:
        case "testbed":
            check_testbed(words)
        case "python":
            check_python(words, monkeypatch)
        case "make":
            check_make(words)
        case "pip":
            check_pip(words)


@pytest.mark.parametrize("page", sorted({command.where.split(":")[0] for command in NAMED}))
def test_commands_that_are_only_named_can_be_parsed(page: str) -> None:
    faults = []
    for command in NAMED:
        if command.where.split(":")[0] == page:
            with pytest.MonkeyPatch.context() as patch:
                try:
                    check(command.text, patch)
                except (Exception, SystemExit) as error:
                    faults.append(f"{command.where}: {command.text}: {error!r}")
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    "text",
    [
        "testbed predictt paper",
        "testbed predict paper --no-option",
        "testbed predict paper --rounds many",
        "testbed campaign runs",
        "testbed predict scenarios/none.yaml",
        "python tests/support/none.py",
        "python tests/trials/fuzz.py --no-option",
        "python -m orchestrator.none",
        "make none",
        "pip install 'uav-sfl-testbed[none]'",
    ],
)
def test_a_named_command_that_does_not_exist_would_be_found(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises((Exception, SystemExit)) as found:
        check(text, monkeypatch)
    assert not isinstance(found.value, ParsedError)


def test_named_commands_that_cost_little_work(checkout: Checkout) -> None:
    found = {each.text: each for each in NAMED if each.text.startswith(CHEAP)}
    texts = [text for text in found if not any(map(PLACEHOLDER.match, text.split()))]
    assert {start for start in CHEAP if any(text.startswith(start) for text in texts)} == {*CHEAP}
    faults = checkout.run([found[text] for text in texts], limit_s=280)
    assert not faults, "\n".join(faults)


def test_named_commands_are_found_in_blocks_and_in_the_text() -> None:
    page = "Run `testbed show\npaper`, not `show`.\n```text\nmake site  # a site\ntestbed a \\\n  b"
    page += "\nuav1    a node\n```\n```sh\ntestbed c d\n```\nThen `pip list`.\n"
    found = [(command.where, command.text) for command in named("page.md", page)]
    assert found == [
        ("page.md:1", "testbed show paper"),
        ("page.md:4", "make site"),
        ("page.md:4", "testbed a b"),
        ("page.md:12", "pip list"),
    ]


# --- the test itself -----------------------------------------------------------------------------


PAGE = """
```sh
echo one \\
  two
# a comment
false
```
```console about status=3
$ echo 'took 3.5 s, −7 %'; (exit 3)
took 12,345.0 s, … %
```
```yaml made/it.yaml
a: 1
```
```python
print(open("made/it.yaml").read())
```
```
nothing said
```
```sh quickly
```
"""


def test_blocks_become_commands_in_their_order() -> None:
    page = parse("docs/page.md", PAGE)
    assert [command.text.split("\n")[0] for command in page.commands] == [
        "echo one \\",
        "false",
        "echo 'took 3.5 s, −7 %'; (exit 3)",
        "a: 1",
        "python - <<'END_OF_PROGRAM'",
    ]
    assert page.commands[1].where == "docs/page.md:6"
    assert [fault.split(":")[1] for fault in page.faults] == ["18", "21"]


def test_a_command_that_fails_or_prints_something_else_is_a_fault(checkout: Checkout) -> None:
    page = parse("docs/page.md", PAGE)
    (fault,) = checkout.run(page.commands, limit_s=60)
    assert fault.startswith("docs/page.md:6: false ended with status 1")
    rest = [command for command in page.commands if command.text != "false"]
    assert checkout.run(rest, limit_s=60) == []
    exact = Command("here", "x", shows=("took 12 s",))
    assert judge(exact, "it took   12 s\n", "0") == []
    assert judge(exact, "took 13 s\n", "0")
    assert (
        judge(Command("here", "x", frozenset({"about"}), 0, ("took 12 s",)), "took 1e-3 s", "0")
        == []
    )
    slow = [Command("here", "echo begun; sleep 30")]
    (fault,) = checkout.run(slow, limit_s=1)
    assert "did not end in time" in fault
