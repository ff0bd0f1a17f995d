# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The documentation is true: keys are as the models say, links lead somewhere, blocks have names.

`test_doc_commands.py` runs its commands.
"""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from documents import PAGES, ROOT, read
from typer.main import get_command

import orchestrator
from orchestrator import api_reference
from orchestrator.analytical import models
from orchestrator.cli import reference as cli_reference
from orchestrator.cli.main import app
from orchestrator.reporting.charts import TIME_CHARTS
from orchestrator.reporting.run_plots import PLOTS
from orchestrator.scenario import combinations
from orchestrator.scenario.reference import reference
from testbed.core.registry import CHANNELS, ORDERS, PARADIGMS, POLICIES, TRANSPORTS


def test_every_scenario_key_is_documented_as_it_is() -> None:
    assert (ROOT / "docs" / "scenario.md").read_text(encoding="utf-8") == reference()
    assert "|  |" not in reference()


def test_every_command_is_documented_as_it_is() -> None:
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == cli_reference.reference()


def test_every_combination_is_documented_as_it_is() -> None:
    written = (ROOT / "docs" / "combinations.md").read_text(encoding="utf-8")
    assert written == combinations.reference()


def test_every_public_name_is_documented_as_it_is() -> None:
    written = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert written == api_reference.reference()
    shown = re.findall(r"^### (\w+)$", written, re.MULTILINE)
    assert sorted(shown) == list(orchestrator.__all__)


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("docs/round.md", PARADIGMS.built_in),
        ("docs/service-orders.md", ORDERS.built_in),
        ("docs/channels.md", CHANNELS.built_in),
        ("docs/overheads.md", TRANSPORTS.built_in),
        ("docs/scenario.md", POLICIES.built_in),
        ("docs/validate.md", [*models.EQUATIONS, *models.COMPOSED]),
        ("docs/report.md", PLOTS),
    ],
)
def test_a_page_names_all_that_is_built_in(page: str, names: Iterable[str]) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert [name for name in names if f"`{name}`" not in text] == []


def test_the_page_of_the_report_names_its_sections_of_curves() -> None:
    text = (ROOT / "docs" / "report.md").read_text(encoding="utf-8")
    assert [c.title for c in TIME_CHARTS.values() if f"| {c.title} |" not in text] == []


def test_every_command_is_shown() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    commands = {name for name, each in get_command(app).commands.items() if not each.hidden}
    assert {name for name in commands if not re.search(rf"testbed {name}\b", text)} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_code_block_says_what_it_is(page: Path) -> None:
    faults = read(page).faults
    assert not faults, "\n".join(faults)
