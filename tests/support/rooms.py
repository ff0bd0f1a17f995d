# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The rooms of the house as the code has them: packages, their floors, and who imports whom.

python tests/support/rooms.py     the picture of docs/architecture.md
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAY_IMPORT = {
    "testbed": set(),
    "ns3_scenarios": {"testbed"},
    "workloads": {"testbed"},
    "orchestrator": {"testbed", "ns3_scenarios", "workloads"},
}
PACKAGES = {
    "testbed": [
        *("host", "virtual", "cluster", "runtimes", "network", "air", "capture"),
        *("control", "transport", "system", "core"),
    ],
    "workloads": [
        "nodes",
        "costs",
        "outside",
        "learning",
        "data",
        "aggregation",
        "codecs",
        "models",
    ],
    "orchestrator": [
        *("cli", "exchange", "archive", "validation", "studies", "hosts", "campaign", "reporting"),
        *("sessions", "runs", "theory", "pace"),
        *("emulation", "policies", "packet_simulation", "analysis", "prediction", "participation"),
        *("transmission", "scenario"),
    ],
}
"""From the top floor down: a package imports those after it alone."""


@cache
def imports(path: Path) -> frozenset[str]:
    """Dotted names of all that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def arrows(room: str) -> set[tuple[str, str]]:
    """Which package of a room imports which other."""
    return {
        (package, entered)
        for package in PACKAGES[room]
        for path in (ROOT / room / package).rglob("*.py")
        for name in imports(path)
        if name.startswith(f"{room}.")
        and (entered := name.split(".")[1]) in PACKAGES[room]
        and entered != package
    }


def drawn(room: str) -> list[tuple[str, str]]:
    """The arrows that do not follow from others."""
    all_ = arrows(room)
    floors = PACKAGES[room]

    def reaches(above: str, below: str) -> bool:
        return any(
            a == above and b != below and (b == below or (b, below) in all_ or reaches(b, below))
            for a, b in all_
        )

    order = [(a, b) for a in floors for b in floors if (a, b) in all_]
    return [(a, b) for a, b in order if not reaches(a, b)]


def page() -> str:
    """What docs/architecture.md shows: each room's packages, their questions, and the arrows."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    for room in reversed(PACKAGES):
        yield f"### `{room}/`"
        yield ""
        yield f"{' '.join(_docstring(ROOT / room))}"
        yield ""
        yield "| package | the question it answers | what belongs there, and what does not |"
        yield "|---|---|---|"
        for package in PACKAGES[room]:
            question, other = _docstring(ROOT / room / package)
            yield f"| `{package}` | {question} | {other} |"
        yield ""
        yield "```mermaid"
        yield "flowchart TD"
        for above, below in drawn(room):
            yield f"  {above} --> {below}"
        yield "```"
        yield ""


def _docstring(folder: Path) -> tuple[str, str]:
    """The first paragraph of a package's docstring, and the second."""
    tree = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
    first, _, rest = (ast.get_docstring(tree) or "").partition("\n\n")
    second = rest.partition("\n\n")[0]
    return " ".join(first.split()), " ".join(second.split())


if __name__ == "__main__":
    print(page())
