# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Prose that users read: documentation, help texts, page templates, messages, docstrings.

Inline code is kept in backticks; code blocks, formulas and tables of numbers are no prose.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from typer.main import get_command

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("testbed", "ns3_scenarios", "workloads", "orchestrator")
END = re.compile(
    r"(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!\bvs\.)(?<!\bal\.)(?<!\beq\.)(?<!\beqs\.)\s+(?=[A-Z`“\"(])"
)
WORD = re.compile(r"[A-Za-z][a-z’'-]+")
ENTRY = re.compile(r"- |    [*\w]+(, [*\w]+)*: |(Args|Attributes|Raises|Returns|Yields):$")


@dataclass(frozen=True)
class Passage:
    """A paragraph, a heading, a cell of a table, a help text, a message or part of a docstring."""

    where: str
    """File and line, or command and option."""
    text: str
    kind: str
    """`text`, `heading`, `cell`, `help`, `page`, `message` or `docstring`."""

    def sentences(self) -> list[str]:
        """The text, cut behind full stops, question and exclamation marks."""
        return [part.strip() for part in END.split(self.text) if part.strip()]


def documentation() -> list[Path]:
    """README, the pages of `docs/` and what contributors and users of examples read."""
    paths = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    paths += (ROOT / "examples").rglob("README.md")
    return sorted(path for path in paths if "node_modules" not in path.parts)


def of_markdown(path: Path) -> Iterator[Passage]:
    """Paragraphs, list items, headings and table cells of a page."""
    name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    tokens = MarkdownIt("commonmark").enable("table").parse(path.read_text(encoding="utf-8"))
    line = 0
    for before, token in zip([None, *tokens], tokens, strict=False):
        line = token.map[0] + 1 if token.map else line
        if token.type != "inline" or before is None:
            continue
        kinds = {"heading_open": "heading", "td_open": "cell", "th_open": "heading"}
        text = " ".join(_shown(token.children or []).split())
        if text:
            yield Passage(f"{name}:{line}", text, kinds.get(before.type, "text"))


def _shown(tokens: list[Token]) -> str:
    parts = {"softbreak": " ", "hardbreak": " "}
    return "".join(
        f"`{t.content}`"
        if t.type == "code_inline"
        else ""
        if t.type in ("image", "html_inline")
        else parts.get(t.type, t.content)
        for t in tokens
    )


def of_command_line() -> Iterator[Passage]:
    """Help texts of all commands, arguments and options."""
    from orchestrator.cli.main import app

    yield from _helps(get_command(app), "testbed")


def _helps(command: Any, name: str) -> Iterator[Passage]:
    for paragraph in re.split(r"\n\s*\n", command.help or ""):
        if not paragraph.startswith("\b"):
            yield Passage(f"{name} --help", " ".join(paragraph.split()), "help")
    for parameter in command.params:
        if text := getattr(parameter, "help", None):
            option = max(parameter.opts, key=len)
            yield Passage(f"{name} {option}", " ".join(text.split()), "help")
    for below, inner in getattr(command, "commands", {}).items():
        if not inner.hidden:
            yield from _helps(inner, f"{name} {below}")


class _Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[int, str]] = []
        self.silent = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.silent += tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self.silent -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self.silent and len(WORD.findall(data)) >= 3:
            self.found.append((self.getpos()[0], " ".join(data.split())))


def of_template(path: Path) -> Iterator[Passage]:
    """Texts of a page's template; expressions appear as `…`."""
    source = path.read_text(encoding="utf-8")

    def lines(match: re.Match[str]) -> str:
        return "\n" * match[0].count("\n")

    source = re.sub(r"\{#.*?#\}|\{%.*?%\}", lines, source, flags=re.S)
    source = re.sub(r"\{\{.*?\}\}", "`…`", source, flags=re.S)
    source = re.sub(r"</?(b|i|em|strong|code|a|span|abbr|sub|sup|wbr)\b[^>]*>", "", source)
    parser = _Texts()
    parser.feed(source)
    for line, text in parser.found:
        yield Passage(f"{path.relative_to(ROOT)}:{line}", text, "page")


def of_strings(path: Path) -> Iterator[Passage]:
    """Strings of a program that are sentences: messages, titles and texts of pages."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)
    }  # docstrings
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            skipped |= {id(value) for value in ast.walk(node) if value is not node}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.JoinedStr):
            text = "".join(
                value.value if isinstance(value, ast.Constant) else "`…`" for value in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        if len(WORD.findall(text)) >= 4 and " " in text and "<" not in text and "\n" not in text:
            yield Passage(
                f"{path.relative_to(ROOT)}:{node.lineno}", " ".join(text.split()), "message"
            )


def of_docstrings(path: Path) -> Iterator[Passage]:
    """Docstrings of a program, one passage per paragraph and per entry of a list or section.

    These are the docstrings of the module, its classes and functions, and the strings below
    assignments. The name in front of an entry is not part of the passage.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        for before, here in pairwise([None, *getattr(node, "body", [])] if _named(node) else []):
            if not isinstance(here, ast.Expr) or not isinstance(here.value, ast.Constant):
                continue
            text = here.value.value
            if isinstance(text, str) and isinstance(before, None | ast.Assign | ast.AnnAssign):
                for below, part in _parts(text):
                    where = f"{path.relative_to(ROOT)}:{here.lineno + below}"
                    yield Passage(where, part, "docstring")


def _named(node: ast.AST) -> bool:
    return isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)


def _parts(docstring: str) -> Iterator[tuple[int, str]]:
    """Line, counted from 0, and text of each paragraph and entry, without diagrams."""
    start, words, diagram = 0, "", False
    for number, line in enumerate([*inspect.cleandoc(docstring).splitlines(), ""]):
        entry = ENTRY.match(line)
        if line == "Examples:":
            return
        if words and (entry or not line):
            yield start, words.replace("``", "`")
            diagram, words = words.endswith("::"), ""
        diagram = diagram and (not line or line.startswith(" "))
        if not diagram:
            start = start if words else number
            words = f"{words} {line[entry.end() if entry else 0 :].strip()}".strip()


def everything() -> Iterator[Passage]:
    """All prose."""
    for page in documentation():
        yield from of_markdown(page)
    yield from of_command_line()
    for template in sorted((ROOT / "orchestrator/reporting/templates").glob("*.html")):
        yield from of_template(template)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield from of_strings(path)
            yield from of_docstrings(path)
