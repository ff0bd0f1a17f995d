# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Questions of readers: an index page, and words for the search.

    python site/questions.py > docs/questions.md

`questions.toml` has the questions. In the search index of the site, each section gets the questions
that it answers.
"""

import tomllib
from itertools import chain
from pathlib import Path
from typing import Any

from mkdocs.exceptions import Abort
from mkdocs.plugins import BasePlugin, event_priority

FILE = Path(__file__).with_suffix(".toml")
HEAD = """<!--
SPDX-FileCopyrightText: UAV-SFL testbed authors
SPDX-License-Identifier: MIT
-->

# Questions

This page is for readers who look for an answer. Each question leads to the section that answers
it. The [glossary](glossary.md) explains terms. The command `python site/questions.py` prints this
page.
"""


def load() -> dict[str, list[dict[str, str]]]:
    """By subject: questions (`ask`), other words for them, and path and anchor of the answer."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def page() -> str:
    """The index of questions, as Markdown in the folder `docs`."""
    parts = [HEAD]
    for subject, questions in load().items():
        parts.append(f"\n## {subject}\n\n")
        for question in questions:
            answer = f"../{question['answer']}".replace("../docs/", "")
            parts.append(f"- [{question['ask']}]({answer})\n")
    return "".join(parts)


def location(answer: str) -> str:
    """Where in the site an answer stands."""
    path, _, anchor = answer.partition("#")
    path = path.replace("README.md", "index.html").replace(".md", ".html")
    return f"{path}#{anchor}" if anchor else path


class Questions(BasePlugin):  # type: ignore[type-arg]
    """Adds the field `questions` to the sections of the search index that answer them."""

    @event_priority(100)  # before the search writes its index
    def on_post_build(self, *, config: Any) -> None:
        """Fill the field; a question whose answer is no section is an error."""
        entries = config.plugins["material/search"].search_index.entries
        sections = {entry["location"]: entry for entry in entries}
        missing = []
        for question in chain.from_iterable(load().values()):
            section = sections.get(location(question["answer"]))
            if section is None:
                missing.append(f"{question['answer']}, which answers {question['ask']!r}")
                continue
            words = f"{question['ask']} {question['words']}"
            section["questions"] = f"{section.get('questions', '')} {words}".strip()
        if missing:
            raise Abort("\n".join(f"{FILE.name}: no section {each}" for each in missing))


if __name__ == "__main__":
    print(page(), end="")
