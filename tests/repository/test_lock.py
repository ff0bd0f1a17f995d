"""What is installed is pinned by version and hash, and complete."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PIN = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>\S+)(?P<rest>.*(?:\n    --hash=.*)*)", re.M)


LOCK = (ROOT / "constraints.txt").read_text()


def pins():
    return {canonicalize_name(found["name"]): found for found in PIN.finditer(LOCK)}


def test_every_dependency_is_pinned_and_within_its_bounds():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = pins()
    for text in [*project["dependencies"], *project["optional-dependencies"]["dev"]]:
        wanted = Requirement(text)
        assert pinned[canonicalize_name(wanted.name)]["version"] in wanted.specifier, text


def test_every_pin_has_a_hash():
    assert len(pins()) > 100
    assert not [name for name, pin in pins().items() if "--hash=sha256:" not in pin["rest"]]


def test_the_lock_names_no_index():
    assert not re.findall(r"^\s*(?:-i|--\S*index|--find-links|.*://).*", LOCK, re.M)
