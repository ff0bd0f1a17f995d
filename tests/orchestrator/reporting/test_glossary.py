# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What stands on a page in letters is explained on it, and in the documentation."""

import re
from pathlib import Path

import pytest
from synthetic_run import make_run, make_session

from orchestrator.reporting.comparison import write_comparison
from orchestrator.reporting.glossary import STEPS, TERMS, page, terms_on
from orchestrator.reporting.report import write_report
from testbed.core import timeline
from testbed.core.paradigm import BUILT_IN, Paradigm, title_of

ROOT = Path(__file__).parents[3]


def explained(html: str) -> list[str]:
    return re.findall(r"<dt>([^<]*)</dt><dd>", html.partition('id="glossary"')[2])


def test_pages_explain_what_stands_on_them_and_nothing_else(tmp_path: Path) -> None:
    report = write_report(make_run(tmp_path / "run")).read_text()
    names = explained(report)
    assert names[:7] == list(timeline.STEPS)
    assert {"u", "slot", "CPSFL", "dilation", "error budget", "with frames", "valid"} <= set(names)
    assert not {"PipeSFL", "gate", "τ2, τ3, τ_PP"} & set(names)
    assert '<a href="#glossary">' in report
    session = make_session(tmp_path / "session")
    write_comparison([session], path := tmp_path / "page.html")
    # It names no step of a round.
    assert not set(timeline.STEPS) & set(explained(path.read_text()))


def test_terms_are_found_where_they_are_read() -> None:
    assert [term.name for term in terms_on("<p>the lags of two gates</p>")] == ["lag", "gate"]
    assert terms_on("<style>.slot { }</style><script>lag()</script><p class='gate'>x</p>") == []
    assert [term.name for term in terms_on('<script type="application/json">"CM"</script>')] == [
        *timeline.STEPS
    ]


@pytest.mark.parametrize("paradigm", BUILT_IN, ids=lambda paradigm: paradigm.name)
def test_every_paradigm_is_explained(paradigm: Paradigm) -> None:
    for said in (paradigm.name, title_of(paradigm.name)):
        assert terms_on(f"<p>{said}</p>"), said


def test_the_page_of_the_documentation_has_all() -> None:
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    assert text == page(), "python -m orchestrator.reporting.glossary > docs/glossary.md"
    assert all(text.count(f"| {t.name} | ") == 1 for terms in TERMS.values() for t in terms)


def test_pages_of_the_documentation_that_name_steps_lead_to_it() -> None:
    found = []
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        words = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
        if re.search(STEPS, words) and path.name != "glossary.md":
            found.append(path.name)
            assert "glossary.md" in text, path
    assert len(found) > 2
