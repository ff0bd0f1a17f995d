"""The documentation is true: the key reference is what the models say, links lead somewhere."""

import re
from pathlib import Path

import pytest

from orchestrator.reference import reference

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_every_scenario_key_is_documented_as_it_is() -> None:
    assert (ROOT / "docs" / "scenario.md").read_text(encoding="utf-8") == reference()
    assert "|  |" not in reference()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target
