# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The packages of the code, their layers, and who imports whom.

python tests/support/layers.py     the section of docs/architecture.md that shows them
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
        *("host", "virtual", "cluster", "runtimes", "network"),
        *("control", "transport", "system", "core"),
    ],
    "workloads": [
        *("nodes", "costs", "offload", "learning", "data", "aggregation", "codecs", "models"),
    ],
    "orchestrator": [
        *(
            "cli",
            "interface",
            "exchange",
            "archive",
            "studies",
            "flights",
            "campaigning",
            "reporting",
            "emulated",
        ),
        *("records", "analytical", "policies", "analysis", "rounds", "engine", "scenario"),
    ],
}
"""From the top layer down: a package imports only those after it."""


@cache
def imports(path: Path) -> frozenset[str]:
    """Dotted names of everything that a file imports, also for type checking or in functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


@cache
def modules() -> dict[str, Path]:
    """Every module of the product by its dotted name."""
    found = {}
    for top in MAY_IMPORT:
        for path in sorted((ROOT / top).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            found[name.removesuffix(".__init__")] = path
    return found


def upward() -> list[str]:
    """Imports of a package by one of a lower layer, one line each."""
    found = []
    for top, layers in PACKAGES.items():
        for package in layers:
            above = set(layers[: layers.index(package)])
            for path in sorted((ROOT / top / package).rglob("*.py")):
                for name in sorted(imports(path)):
                    if name.startswith(f"{top}.") and name.split(".")[1] in above:
                        found.append(f"{path.relative_to(ROOT)} imports {name}")
    return found


def cycles() -> list[list[str]]:
    """Groups of modules that import each other, directly or by way of others (Tarjan)."""
    graph = {name: _imported(name) for name in modules()}
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(name: str) -> None:
        order[name] = lowest[name] = len(order)
        stack.append(name)
        for other in graph[name]:
            if other not in order:
                visit(other)
                lowest[name] = min(lowest[name], lowest[other])
            elif other in stack:
                lowest[name] = min(lowest[name], order[other])
        if lowest[name] == order[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for name in graph:
        if name not in order:
            visit(name)
    return found


def _imported(module: str) -> list[str]:
    """The product's modules that a module imports itself."""
    found = set()
    for name in imports(modules()[module]):
        while name and name not in modules():
            name = name.rpartition(".")[0]
        found.add(name)
    return sorted(found - {module, ""})


def arrows(top: str) -> set[tuple[str, str]]:
    """Which package imports which other, within one top-level package."""
    return {
        (package, entered)
        for package in PACKAGES[top]
        for path in (ROOT / top / package).rglob("*.py")
        for name in imports(path)
        if name.startswith(f"{top}.")
        and (entered := name.split(".")[1]) in PACKAGES[top]
        and entered != package
    }


def drawn(top: str) -> list[tuple[str, str]]:
    """The arrows that do not follow from others."""
    all_ = arrows(top)
    layers = PACKAGES[top]

    def reaches(above: str, below: str) -> bool:
        return any(
            a == above and b != below and (b == below or (b, below) in all_ or reaches(b, below))
            for a, b in all_
        )

    order = [(a, b) for a in layers for b in layers if (a, b) in all_]
    return [(a, b) for a, b in order if not reaches(a, b)]


def page() -> str:
    """What docs/architecture.md shows: packages, the purpose of each, and the arrows."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    for top in reversed(PACKAGES):
        yield f"### `{top}/`"
        yield ""
        yield _docstring(ROOT / top)
        yield ""
        yield "| package | purpose |"
        yield "|---|---|"
        for package in PACKAGES[top]:
            yield f"| `{package}` | {_docstring(ROOT / top / package)} |"
        yield ""
        yield "```mermaid"
        yield "flowchart TD"
        for above, below in drawn(top):
            yield f"  {above} --> {below}"
        yield "```"
        yield ""


def _docstring(folder: Path) -> str:
    """The first paragraph of a package's docstring."""
    tree = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
    return " ".join((ast.get_docstring(tree) or "").partition("\n\n")[0].split())


if __name__ == "__main__":
    print(page())
