# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Check the prose that users read, by proselint and by the habits of `habits.toml`.

    python tests/prose/lint.py [PAGE.md…]

Without pages: documentation, help texts, templates of pages, messages and docstrings. The status
is 1 if something was found.
"""

import math
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from passages import WORD, Passage, everything, of_markdown
from proselint import checks as standard
from proselint.registry.checks import Check, Padding, types
from proselint.registry.checks.engine import Fast, RegexOptions

HABITS = tomllib.loads(Path(__file__).with_name("habits.toml").read_text(encoding="utf-8"))
CODE = re.compile(r"`[^`]*`")


def checks() -> list[Check]:
    """Checks of proselint that apply, and one for each habit."""
    used = HABITS["checks"]["use"]
    found = [
        check
        for check in standard.__register__
        if any(check.matches_partial(name) for name in used)
    ]
    for habit in HABITS["habit"]:
        pattern = habit["pattern"]
        found.append(
            Check(
                check_type=types.ExistenceSimple(
                    pattern if habit.get("raw") else Padding.WORDS_IN_TEXT.format(f"(?:{pattern})")
                ),
                engine=Fast(RegexOptions(case_insensitive=not habit.get("case", False))),
                path="habits",
                message=f"'{{}}': {habit['instead']}",
            )
        )
    return found


def faults(passages: Iterable[Passage]) -> Iterator[str]:
    """One line per fault: place, what was found, what to write instead."""
    known = checks()
    for passage in passages:
        in_code = passage.kind == "docstring"
        longest = math.inf if in_code else HABITS["checks"]["longest_sentence"]
        text = CODE.sub("`…`", passage.text)
        for check in known:
            for result in check.check_with_flags(text):
                yield f"{passage.where}: {result.message} ({result.check_path})"
        if passage.kind == "cell":
            continue  # often a list of columns or values
        for sentence in passage.sentences():
            if (words := len(WORD.findall(CODE.sub("", sentence)))) > longest:
                yield f"{passage.where}: a sentence of {words} words: '{sentence[:60]}…'"


def main(pages: list[str]) -> int:
    """Print the faults of pages, or of everything."""
    passages = [p for name in pages for p in of_markdown(Path(name).resolve())]
    found = list(faults(passages if pages else everything()))
    for fault in found:
        print(fault)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
