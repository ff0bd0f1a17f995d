# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What is printed: texts of files do not control the terminal."""

import logging
from pathlib import Path

import pytest
from console import run_testbed
from rich.table import Table
from rich.text import Text
from small_scenario import TEXT

from orchestrator.cli.console import _OneLine, out, plain, say

CONTROLS = [*map(chr, [*range(32), *range(127, 160)])]
MARKS = [*map(chr, [*range(0x200B, 0x2010), *range(0x2028, 0x202F), *range(0x2060, 0x2070)])]
UNSEEN = [*CONTROLS, *MARKS, "\u061c", "\ufeff", "\u00ad", "\U000e0041"]


@pytest.mark.parametrize("letter", [*UNSEEN])
def test_what_is_not_seen_is_escaped(letter: str) -> None:
    shown = plain(f"a{letter}b")
    if letter in "\n\t\u2065":  # U+2065 is no character.
        assert shown == f"a{letter}b"
    else:
        assert shown == f"a{ascii(letter)[1:-1]}b"
        assert shown.isprintable()


@pytest.mark.parametrize(
    "text", ["", "plain", "größer", "数字", "π ≈ 3", "a\u00a0b", "█▁", "e\u0301"]
)
def test_what_is_seen_stays(text: str) -> None:
    assert plain(text) == text


def test_texts_of_results_are_escaped_also_in_tables(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("name\x1b[3A", "value")
    table.add_row("\x1b]0;title\x1b\\", Text("\u202efdp.exe"))
    out.print(table)
    out.print("[green]ok[/] \x1b[2K\x9b", "\u2066left")
    text = capsys.readouterr().out
    for shown in (
        r"name\x1b[3A",
        r"\x1b]0;title\x1b\ ",
        r"\u202efdp",
        r"ok \x1b[2K\x9b",
        r"\u2066",
    ):
        assert shown in text
    assert not set(text) & {*UNSEEN} - {"\n"}


def test_styles_of_our_own_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    console = Console(force_terminal=True, color_system="standard", width=80)
    monkeypatch.setattr("rich.get_console", lambda: console)
    with console.capture() as shown:
        table = Table("x")
        table.add_row("[red]--[/]\x1b[0m")
        out.print(table)
        out.print("[green]ok[/]")
    assert "\x1b[31m--\x1b[0m\\x1b[0m" in shown.get()
    assert "\x1b[32mok\x1b[0m" in shown.get()


def test_lines_on_stderr_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    say("file \x1b[31m: no such key")
    assert capsys.readouterr().err == "testbed: file \\x1b[31m: no such key\n"
    record = logging.LogRecord("orchestrator", logging.INFO, "", 0, "a\x1bb\rc", (), None)
    assert _OneLine().format(record) == "testbed: a\\x1bb c"


@pytest.mark.parametrize("words", [("predict",), ("show",), ("run",)])
def test_a_key_of_a_scenario_is_shown_escaped(words: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "key.yaml"
    file.write_text(f'{TEXT}"\\e[31mred\\e[0m\\x9b\\u202e": 1\n')
    done = run_testbed(*words, file, check=False)
    assert done.returncode == 2
    assert r"\x1b[31mred\x1b[0m\x9b\u202e: no such key" in done.stderr
    assert "\x1b" not in done.stderr + done.stdout
