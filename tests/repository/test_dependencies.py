# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What loads what: emulation no report, nobody but pages Jinja, nobody but figures Matplotlib."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def loaded(*modules: str) -> set[str]:
    """All modules that a fresh interpreter has once it has imported these."""
    code = f"import sys, {', '.join(modules)}; print(*sys.modules)"
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, timeout=250, check=True, cwd=ROOT)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("modules", "never"),
    [
        (
            (
                "orchestrator.emulated.rounds",
                "orchestrator.rounds.packet_rounds",
                "orchestrator.emulated.run",
                "orchestrator.records.summary",
                "orchestrator.records.comparison",
            ),
            {"jinja2", "markupsafe", "matplotlib", "orchestrator.reporting"},
        ),
        (
            (
                "orchestrator.campaigning.plots",
                "orchestrator.campaigning.report",
                "orchestrator.reporting.report",
                "orchestrator.reporting.comparison",
                "orchestrator.reporting.live",
                "orchestrator.reporting.perfetto",
            ),
            {"matplotlib"},
        ),
        (
            ("orchestrator.studies.validation.worker", "testbed.host.pool"),
            {"pandas", "pyarrow", "scipy", "matplotlib", "orchestrator.campaigning"},
        ),
        (("orchestrator.campaigning.worker",), {"scipy", "matplotlib", "distributed"}),
        (("orchestrator.studies.validation.page",), {"matplotlib"}),
    ],
    ids=["runs", "pages", "validations", "points", "page of a validation"],
)
def test_what_is_not_needed_is_not_loaded(modules: tuple[str, ...], never: set[str]) -> None:
    found = loaded(*modules)
    assert found >= set(modules)
    assert not {name for name in found for part in never if f"{name}.".startswith(f"{part}.")}


def test_only_pages_know_of_jinja() -> None:
    knows = re.compile(r"^\s*(from|import) (jinja2|markupsafe)\b", re.M)
    files = {
        path for path in (ROOT / "orchestrator").rglob("*.py") if knows.search(path.read_text())
    }
    assert files == {ROOT / "orchestrator" / "reporting" / "pages.py"}
