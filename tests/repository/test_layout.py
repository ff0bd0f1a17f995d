"""No import runs upward: the rooms of the house and who may enter which."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAY_IMPORT = {
    "testbed": set(),
    "ns3_scenarios": set(),
    "workloads": {"testbed"},
    "orchestrator": {"testbed", "ns3_scenarios", "workloads"},
}


def imports(path: Path) -> set[str]:
    """Top-level names of all modules that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_no_import_runs_upward(room: str) -> None:
    files = list((ROOT / room).rglob("*.py"))
    assert files
    for path in files:
        ours = imports(path) & MAY_IMPORT.keys() - {room}
        assert ours <= MAY_IMPORT[room], f"{path.relative_to(ROOT)} imports {ours}"


def test_nothing_is_ever_unpickled() -> None:
    for room in MAY_IMPORT:
        for path in (ROOT / room).rglob("*.py"):
            assert not imports(path) & {"pickle", "marshal", "shelve", "dill", "cloudpickle"}, path
