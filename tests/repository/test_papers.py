# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What stands beside the code says the same as the code: version, checks, licences."""

import re
import shlex
import tomllib
from pathlib import Path

import yaml
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]


def test_only_one_file_states_the_version_that_is_developed() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert "version" not in citation  # a release's archive adds it
    scm = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools_scm"]
    developed = Version(scm["fallback_version"])
    assert developed.is_devrelease
    changes = (ROOT / "CHANGELOG.md").read_text()
    assert all(Version(r) < developed for r in re.findall(r"^## \[([\d.]+)\]", changes, re.M))


def test_the_citation_names_the_paper() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    (paper,) = citation["references"]
    assert paper["title"].startswith("Communication-Pipelined Split Federated Learning")
    assert len(paper["authors"]) == 4


def test_hooks_before_commits_are_what_lint_runs() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    hooked = {tuple(shlex.split(hook["entry"])[:2]) for hook in hooks}
    recipe = (ROOT / "Makefile").read_text().partition("\nlint:")[2].partition("\n\n")[0]
    lines = [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe.splitlines()[1:]]
    assert hooked == {tuple(shlex.split(line)[:2]) for line in lines}


def test_each_licence_that_a_file_names_has_its_text() -> None:
    for source, licence in {
        "ns3_scenarios/cpp/channel/channel.cc": "GPL-2.0-only",
        "testbed/core/clock.py": "MIT",
    }.items():
        head = (ROOT / source).read_text().splitlines()[:3]
        assert any(line.endswith(f"-License-Identifier: {licence}") for line in head)
        assert (ROOT / "LICENSES" / f"{licence}.txt").stat().st_size > 900
