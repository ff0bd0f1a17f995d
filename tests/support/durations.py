# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Which tests are slow: measured durations, in `tests/durations.json`.

    python tests/support/durations.py [RECORD]

updates that file by what `suite.py` has recorded (by default `build/durations.json`).
"""

import dataclasses
import json
import sys
import time
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import pytest

TESTS = Path(__file__).resolve().parents[1]
TABLE = TESTS / "durations.json"
ESSENTIAL = TESTS / "essential.toml"
RECORD = Path("build/durations.json")
TEST = "test"
"""Name of the property that holds a test's name."""
SLOW_S = 1.0
"""A test is slow from this duration on, and whatever uses such a fixture."""
FULL_S = 4.0
"""From this duration of its own on, a test is too long for CI."""


_made: list[tuple[str, object]] = []
"""Shared fixtures that the running test has set up, each with its seconds."""


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
    """Measure what tests share: it belongs to all of them, and not to the first one."""
    began = time.perf_counter()
    made = yield
    if fixturedef.scope != "function":
        name = fixture_name(fixturedef.baseid, fixturedef.argname)
        _made.append((name, time.perf_counter() - began))
    return made


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Properties of a test in the record that `suite.py` reads: its name, and `_made`."""
    if not item.user_properties:
        item.user_properties.append((TEST, name_of(item)))
    item.user_properties.extend(_made)
    _made.clear()
    return (yield)


def _placed(nodeid: str) -> str:
    return nodeid.removeprefix(f"{TESTS.name}/")


def name_of(item: pytest.Item) -> str:
    """A test's file in `tests`, and its name with parameters."""
    return _placed(item.nodeid)


def fixture_name(baseid: str, name: str) -> str:
    """A fixture's file in `tests`, and its name."""
    return f"fixture {_placed(baseid)}::{name}"


def fixtures_of(item: pytest.Item) -> list[str]:
    """The fixtures that a test uses, directly or not."""
    info = getattr(item, "_fixtureinfo", None)
    if info is None:
        return []
    found = (info.name2fixturedefs.get(name) for name in info.names_closure)
    return [fixture_name(made[-1].baseid, made[-1].argname) for made in found if made]


@dataclasses.dataclass(frozen=True)
class Table:
    """Seconds of slow tests and fixtures, and the tests that run all the same."""

    seconds: Mapping[str, float]
    essential: Iterable[str]

    @classmethod
    def read(cls) -> Self:
        """The table of this folder; without one, nothing is slow."""
        seconds = json.loads(TABLE.read_text("utf-8")) if TABLE.exists() else {}
        return cls(seconds, frozenset(essential()))

    def slow(self, name: str, fixtures: Iterable[str]) -> bool:
        """Whether a test or what it needs takes long, and it is not essential."""
        return name not in self.essential and any(
            part in self.seconds for part in (name, *fixtures)
        )

    def full(self, name: str) -> bool:
        """Whether a test is too long for CI, and it is not essential."""
        return name not in self.essential and self.seconds.get(name, 0) >= FULL_S


def essential() -> list[str]:
    """Names of the tests of `essential.toml`, in its order."""
    if not ESSENTIAL.exists():
        return []
    kinds = tomllib.loads(ESSENTIAL.read_text("utf-8"))
    return [name for names in kinds.values() for name in names.values()]


def measured(root: ET.Element) -> dict[str, float]:
    """Seconds of tests without their shared fixtures, and of these, in pytest's record."""
    seconds: dict[str, float] = {}
    for case in root.iter("testcase"):
        own_s = float(case.get("time", 0))
        name = None
        for entry in case.iter("property"):
            if entry.get("name") == TEST:
                name = entry.get("value", "")
                continue
            fixture, took_s = entry.get("name", ""), float(entry.get("value", 0))
            own_s -= took_s
            seconds[fixture] = max(took_s, seconds.get(fixture, 0))
        if name is not None:
            seconds[name] = max(own_s, 0)
    return seconds


def add(seconds: Mapping[str, float], record: Path = RECORD) -> None:
    """Add the seconds of some tests to those that the record holds."""
    before = json.loads(record.read_text("utf-8")) if record.exists() else {}
    record.parent.mkdir(exist_ok=True)
    record.write_text(json.dumps(before | dict(seconds), indent=0), "utf-8")


def main() -> None:
    """Update the table by a record of some tests, or all."""
    record = json.loads(Path(sys.argv[1] if sys.argv[1:] else RECORD).read_text("utf-8"))
    known = json.loads(TABLE.read_text("utf-8")) if TABLE.exists() else {}
    slow = {
        name: round(took_s, 1)
        for name, took_s in sorted((known | record).items())
        if took_s >= SLOW_S
    }
    TABLE.write_text(json.dumps(slow, indent=0) + "\n", "utf-8")
    spent_s = sum(took_s for name, took_s in record.items() if name not in slow)
    print(
        f"{len(slow.keys() & record)} of {len(record)} are slow; "
        f"the others take {spent_s:.0f} s of all workers"
    )


if __name__ == "__main__":
    main()
