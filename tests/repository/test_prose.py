# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The check of prose finds each habit that it lists, and reads all that users read."""

from pathlib import Path

import lint
import passages
import pytest


def found(text: str, kind: str = "text") -> list[str]:
    return list(lint.faults([passages.Passage("page.md:1", text, kind)]))


@pytest.mark.parametrize("habit", lint.HABITS["habit"], ids=lambda habit: habit["example"])
def test_each_habit_is_found_in_its_example(habit: dict[str, str]) -> None:
    assert any(habit["instead"] in fault for fault in found(habit["example"]))


def test_plain_sentences_have_no_fault() -> None:
    assert (
        found("Each row contains the rate of one UAV in one slot. Run `testbed doctor beside`.")
        == []
    )


def test_long_sentences_are_found_but_not_in_cells() -> None:
    text = "; ".join(["one two three four five six seven eight nine"] * 4) + "."
    assert len(found(text)) == 1
    assert found(text, "cell") == []


def test_long_sentences_of_docstrings_are_allowed_but_habits_are_not() -> None:
    text = "The rate is " + ", ".join(["larger than a mean"] * 15) + "."
    assert len(found(text)) == 1
    assert found(text, "docstring") == []
    assert len(found(f"Nobody {text}", "docstring")) == 1


def test_standard_checks_apply() -> None:
    assert found("The the rate is constant.") != []


def test_every_kind_of_text_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    text = "# A title\n\nA sentence of\ntwo `lines`.\n\n```sh\ncode\n```\n\n"
    page.write_text(text + "| a | b |\n|-|-|\n| c | d |\n")
    read = [(p.where.split(":")[1], p.kind, p.text) for p in passages.of_markdown(page)]
    assert read == [
        ("1", "heading", "A title"),
        ("3", "text", "A sentence of two `lines`."),
        ("10", "heading", "a"),
        ("10", "heading", "b"),
        ("12", "cell", "c"),
        ("12", "cell", "d"),
    ]
    helps = {p.where for p in passages.of_command_line()}
    assert {"testbed run --help", "testbed run --out", "testbed campaign run --help"} <= helps
    page = tmp_path / "messages.py"
    page.write_text(
        '"""No message, but a docstring here."""\nraise E(f"the field {a} must be positive here")\n'
    )
    monkeypatch.setattr(passages, "ROOT", tmp_path)
    assert [p.text for p in passages.of_strings(page)] == ["the field `…` must be positive here"]


def test_docstrings_are_read_by_paragraph_and_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source.py"
    source.write_text(
        """'''A module
of ``two`` lines: one.

- First
  entry.
- Second.

A diagram::

    no: prose

Behind it.
'''
RATE = 1.0
'Of a constant.'
print('no docstring')
'no docstring either'


class Link:
    '''A link.

    Args:
        rate: In bit/s, which
            note: may be 0.

    Raises:
        ValueError: Negative.
    '''

    delay: float = 0.0
    'A delay.'

    async def send(self) -> None:
        'A coroutine.'
        self.sent = 0
        'An attribute.'
"""
    )
    monkeypatch.setattr(passages, "ROOT", tmp_path)
    read = {(p.where, p.kind, p.text) for p in passages.of_docstrings(source)}
    assert read == {
        (f"source.py:{line}", "docstring", text)
        for line, text in {
            1: "A module of `two` lines: one.",
            4: "First entry.",
            6: "Second.",
            8: "A diagram::",
            12: "Behind it.",
            15: "Of a constant.",
            21: "A link.",
            24: "In bit/s, which note: may be 0.",
            28: "Negative.",
            32: "A delay.",
            35: "A coroutine.",
            37: "An attribute.",
        }.items()
    }
