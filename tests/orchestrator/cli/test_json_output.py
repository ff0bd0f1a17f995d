# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`--json -` prints the JSON, and nothing else, on stdout; other output goes to stderr."""

import inspect
import json
import os
import sys
from pathlib import Path

import pandas as pd
import pytest
import typer
from console import run_testbed
from small_scenario import TEXT
from synthetic_run import make_run

from orchestrator.cli import console
from orchestrator.cli.main import app
from orchestrator.cli.options import STDOUT, JsonFile


@pytest.fixture(autouse=True)
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(TEXT)


@pytest.mark.parametrize(
    "words",
    [
        ["show", "s.yaml"],
        ["predict", "s.yaml", "--rounds", "1"],
        ["predict", "s.yaml", "--rounds", "1", "--json"],  # the option given twice
        ["theory", "s.yaml"],
        ["combinations"],
        ["kernel", "status"],
        ["radio", "status"],
        ["doctor"],
    ],
    ids=" ".join,
)
def test_stdout_is_the_json_of_the_file(words: list[str]) -> None:
    if words[-1] == "--json":
        words = [*words[:-1], "--json", "unused.json"]
    printed = run_testbed(*words, "--json", "-")
    before = set(Path().iterdir())
    written = run_testbed(*words, "--json", "out.json")
    assert printed.stdout == Path("out.json").read_text() or words[0] == "doctor"
    json.loads(printed.stdout)
    assert printed.stderr
    assert written.returncode == printed.returncode
    assert not Path("-").exists()
    assert {path.name for path in before} == {"s.yaml"}


def test_a_comparison_prints_json_too() -> None:
    make_run(Path("one"))
    printed = run_testbed("compare", "one", "--json", "-", "--out", "c.html")
    assert json.loads(printed.stdout)[0]["run"]
    assert "comparison: c.html" in printed.stderr


@pytest.mark.parametrize(
    "words", [["predict", "none.yaml"], ["predict", "s.yaml", "--rounds", "0"]]
)
def test_a_refusal_prints_nothing_on_stdout(words: list[str]) -> None:
    done = run_testbed(*words, "--json", "-", check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("testbed: ")


def test_child_processes_print_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    with console.json_only() as path:
        print("of Python")
        os.system("echo of a child")
        path.write_text("[1]\n")
    print("later")
    said = capfd.readouterr()
    assert said.out == "[1]\nlater\n"
    assert sorted(said.err.splitlines()) == ["of Python", "of a child"]


def test_the_json_is_printed_although_the_command_fails_later(
    capfd: pytest.CaptureFixture[str],
) -> None:
    context = console.json_only()
    context.__enter__().write_text("{}\n")
    error = typer.Exit(3)
    assert not context.__exit__(typer.Exit, error, error.__traceback__)
    with pytest.raises(KeyboardInterrupt), console.json_only():
        raise KeyboardInterrupt
    assert capfd.readouterr().out == "{}\n"


def test_stdout_is_given_back_to_another_process(capfd: pytest.CaptureFixture[str]) -> None:
    with console.json_only():
        console.release_stdout()
        os.write(1, b"[2]\n")
    console.release_stdout()
    sys.stdout.flush()
    assert capfd.readouterr().out == "[2]\n"


def test_every_command_shares_the_option() -> None:
    commands = {command.callback for command in app.registered_commands}
    for group in app.registered_groups:
        assert group.typer_instance is not None
        commands |= {command.callback for command in group.typer_instance.registered_commands}
    found = [
        parameter.annotation
        for command in commands
        if command is not None
        for name, parameter in inspect.signature(command).parameters.items()
        if name == "json_file"
    ]
    assert len(found) >= 14
    assert all(annotation is JsonFile for annotation in found)
    assert Path("-") == STDOUT


@pytest.mark.parametrize("name", ["cmp", "page.json", "page.html.zip", "a.b/", "html", "pages/x"])
def test_a_comparison_is_a_web_page(name: str) -> None:
    make_run(Path("one"))
    done = run_testbed("compare", "one", "--out", name, check=False)
    assert done.returncode == 2
    assert "must end in .html" in done.stderr
    assert {path.name for path in Path().iterdir()} == {"s.yaml", "one"}


def test_steps_are_written_as_parquet_instead() -> None:
    words = ["predict", "s.yaml", "--rounds", "3", "--json"]
    run_testbed(*words, "whole.json")
    run_testbed(*words, "short.json", "--steps", "steps.parquet")
    run_testbed(*words, "none.json", "--steps", "none")
    whole, short = (json.loads(Path(f"{name}.json").read_text()) for name in ("whole", "short"))
    table = pd.read_parquet("steps.parquet")
    for round_ in whole["rounds"]:
        rows = table[table["round"] == round_["round"]].drop(columns=["round", "paradigm", "cut"])
        assert rows.to_dict(orient="records") == round_.pop("steps")
    assert short == whole
    assert Path("none.json").read_bytes() == Path("short.json").read_bytes()
    refused = run_testbed("predict", "s.yaml", "--steps", "steps.csv", check=False)
    assert refused.returncode == 2
    assert refused.stderr == "testbed: --steps: must be a file *.parquet, or none, not steps.csv\n"
