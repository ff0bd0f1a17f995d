# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The reference of the names in `import orchestrator`, generated from its sources.

``python -m orchestrator.api_reference > docs/api.md``
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import orchestrator

HEAD = """# Python API

This page describes the functions and classes for scripts and notebooks. The commands of `testbed`
call the same functions. `python -m orchestrator.api_reference` writes this page from the sources.

```python
import orchestrator as tb

scenario = tb.load("quickstart", {"workload.split": 3})
timeline = tb.predict(scenario, rounds=5)
print(timeline.summary())
print(tb.compare(timeline, tb.predict(scenario, rounds=5, policy="equal")))
```

All names below are attributes of the package `orchestrator`. Each name is imported when it is first
used, so `import orchestrator` is fast. Functions return when their result is complete. They can be
called from a script, a notebook, another thread or a coroutine. Five of the
[examples](../examples/README.md) are notebooks that use them.

The following arguments have the same form in all functions:

- A *scenario* is a `Scenario`, a YAML file, or the name of an included scenario: `paper`,
  `quickstart`, `hundred`.
- A *trace* is an NPZ file, or a mapping with the same arrays: `gain` [K, S] (linear), `slot_s`,
  and `position` [K, S, 3] (m) if known.
- A *policy* is a name that `allocation.policy` accepts, or a function that maps a `Situation` to
  an `Allocation`.
- *Progress* is reported to a function with three arguments: a description of the current step, its
  progress, and its total. By default, a notebook shows a bar.
"""

SHOWN = {
    "Functions": (
        *("load", "predict", "run", "read_run", "compare", "comparison", "plot", "report"),
    ),
    "Studies": ("theory", "cross_check", "validate", "overhead", "campaign"),
    "Channels": ("trace", "fit", "forecast"),
    "Training": ("learn", "train", "evaluate", "export"),
    "Results": ("StudyResult", "Timeline", "Round", "Run"),
    "Your own programs": ("Network",),
    "Scheduling and allocation": (
        "Situation",
        "Allocation",
        "RoundStart",
        "Paradigm",
        "ServiceRequest",
    ),
    "Analytical models": (
        "RoundPlan",
        "RadioAccess",
        "Fdma",
        "ShannonFdma",
        "Interval",
        "both_ways",
    ),
    "Learning": (
        *("Chain", "Images", "Tokens", "Update", "Sender", "Algorithm", "LocalStep", "Part"),
        *("Codec", "Stream"),
    ),
    "Transports": ("TransportKind", "StreamTransport", "TcpStream"),
    "Others": ("Scenario", "UavSflEnv", "InputError", "RunError"),
}
"""The public names in the order of the page."""


def reference() -> str:
    """The reference as Markdown."""
    lines = [HEAD]
    for title, names in SHOWN.items():
        lines.append(f"## {title}\n")
        for name in names:
            lines += _entry(name, _definition(name))
    return "\n".join(lines).rstrip() + "\n"


def _definition(name: str) -> ast.FunctionDef | ast.ClassDef:
    """The public name's definition in its source."""
    module = import_module(getattr(orchestrator, name).__module__)
    tree = ast.parse(Path(inspect.getfile(module)).read_text(encoding="utf-8"))
    return next(
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name
    )


def _entry(name: str, node: ast.FunctionDef | ast.ClassDef) -> Iterator[str]:
    yield f"### {name}\n"
    if isinstance(node, ast.FunctionDef):
        yield f"```text\n{_signature(node)}\n```\n"
    yield _prose(ast.get_docstring(node) or "")
    if isinstance(node, ast.ClassDef) and name != "Scenario":
        rows = [f"| `{member}` | {what} |" for member, what in _members(node)]
        if rows:
            yield "\n".join(["| attribute or method | meaning |", "|---|---|", *rows]) + "\n"
    elif name == "Scenario":
        yield "Its keys: [scenario.md](scenario.md).\n"


def _signature(node: ast.FunctionDef) -> str:
    """The head of the function; a long one has one argument per line."""
    arguments = ast.unparse(node.args).replace("'", "").replace("=", " = ")
    answers = "" if node.returns is None else f" -> {ast.unparse(node.returns)}".replace("'", "")
    head = f"{node.name}({arguments}){answers}"
    if len(head) <= 90:
        return head
    parts = re.split(r", (?=\*|\w+[:=]|\w+$)", arguments)
    return f"{node.name}(\n    " + ",\n    ".join(parts) + f",\n){answers}"


def _members(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Public fields, properties and methods of a class, with their descriptions."""
    following = [*node.body[1:], None]
    for member, after in zip(node.body, following, strict=True):
        if isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
            name = member.target.id
            said = after.value if isinstance(after, ast.Expr) else None
            text = said.value if isinstance(said, ast.Constant) else ""
            what = f"`{ast.unparse(member.annotation)}`. {_line(str(text))}"
        elif isinstance(member, ast.FunctionDef):
            name, what = member.name, _line(ast.get_docstring(member) or "")
            decorators = {ast.unparse(each) for each in member.decorator_list}
            if not decorators & {"property", "cached_property"}:
                arguments = ", ".join(each.arg for each in _arguments(member)[1:])
                name = f"{name}({arguments})"
        else:
            continue
        if not name.startswith("_") and name != "metadata":  # which Gymnasium declares
            yield name, what.replace("|", "\\|").strip()


def _arguments(node: ast.FunctionDef) -> list[ast.arg]:
    return [*node.args.args, *node.args.kwonlyargs]


def _line(docstring: str) -> str:
    """The first paragraph of a docstring in one line."""
    return " ".join(docstring.partition("\n\n")[0].split())


def _prose(docstring: str) -> str:
    """A docstring as Markdown: its sections as lists."""
    paragraphs = []
    for paragraph in docstring.split("\n\n"):
        title, _, rest = paragraph.partition("\n")
        if title in ("Args:", "Returns:", "Raises:"):
            text = textwrap.dedent(rest)
            entries = re.sub(r"\n(?= )\s*", " ", text).split("\n")
            if title == "Returns:":
                entries = [" ".join(entries)]
            bold = [re.sub(r"^(\w+): ", r"`\1`: ", entry) for entry in entries]
            paragraph = f"*{title.removesuffix(':')}*\n\n" + "\n".join(f"- {e}" for e in bold)
        paragraphs.append(paragraph)
    return "\n\n".join(paragraphs) + "\n"


if __name__ == "__main__":
    print(reference(), end="")
