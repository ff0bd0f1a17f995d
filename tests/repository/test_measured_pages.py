# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Published tables name the revision that was measured, and are not older than what they measure.

Values that a revision determines, as predictions and virtual time, are computed again from the
smallest row: `RECOMPUTED` names the tests, which compare them with the page as it is printed. All
that depends on a machine can only be bound by its age.
"""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").glob("measured*.md")), ROOT / "docs" / "performance.md"]
REVISION = re.compile(r"[Rr]evision:?\s+`?([0-9a-f]{7,40})(\+?)")
CHANGED = {"06b714507b37"}
"""Measured with uncommitted changes: these rows need an hour on an idle machine."""
MOST_DAYS = 180
"""Between the commit that was measured and the last one."""
SMALLEST, NR = "test_smallest.py", "test_nr_radio.py"
RECOMPUTED = {
    "Accuracy of the emulated links": ("test_fidelity.py", "test_the_page_shows_the_record"),
    "Virtual time": (SMALLEST, "test_a_run_in_virtual_time_repeats_elsewhere_within_the_published"),
    "LTE against ns-3": (SMALLEST, "test_an_lte_cell_of_ns3_has_the_published_goodput"),
    "Handovers of LTE": (SMALLEST, "test_handovers_of_ns3_take_as_long_as_published"),
    "Wi-Fi against ns-3": (SMALLEST, "test_wifi_of_ns3_has_the_published_goodput"),
    "NR against 5G-LENA": (NR, "test_the_page_has_the_tables_that_are_printed"),
    "TCP over delay and loss": (SMALLEST, "test_rounds_over_delays_last_as_published"),
    "Delay and loss of emulated links": (SMALLEST, "test_a_link_delays_frames_by_as_much_as_asked"),
    "Service orders": (SMALLEST, "test_each_order_takes_as_long_as_published"),
}
"""By section: a file of the tests of benchmarks, and how the name of the test begins."""
BY_AGE = {
    "Commands of the paper": "CPU time",
    "Installation": "time and size of packages",
    "CPU time of ns-3's radio": "CPU time",
    "GPUs": "needs a GPU",
    "Sessions": "real time",
    "Short messages": "real time",
    "Several machines": "real time",
    "Tests of the tests": "hours",
    "Analytical models": "hours; another test has the smallest study",
    "The paper's statements under 5G NR": "an hour",
    "Two flights": "the logs of the flights are not in the repository",
}
"""By section: why no row is computed again. All of the page of performance is CPU time."""


def git(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=False)


def sections() -> dict[str, str]:
    """The text of each section with a table, by its title: the nearest heading of level two."""
    found = {}
    for page in PAGES:
        for section in page.read_text(encoding="utf-8").split("\n## ")[1:]:
            title, _, text = section.partition("\n")
            if re.search(r"^\|( ?---)", text, re.M):
                found[title] = text
    return found


def faults_of(title: str, text: str, days_old: dict[str, float | None]) -> list[str]:
    """What is wrong with the revisions of a section.

    Args:
        days_old: By revision: by how many days it is older than the last commit; None: it is not
            one of this history.
    """
    revisions = REVISION.findall(" ".join(text.split()))
    faults = [] if revisions else [f"{title}: no revision"]
    for revision, plus in revisions:
        days = days_old[revision]
        if plus and revision not in CHANGED:
            faults.append(f"{title}: {revision} was measured with uncommitted changes")
        if days is None:
            faults.append(f"{title}: {revision} is not in the history")
        elif days > MOST_DAYS:
            faults.append(f"{title}: {revision} is {days:.0f} days older than the last commit")
    return faults


def test_tables_come_from_committed_revisions_that_are_not_old() -> None:
    texts = sections()
    revisions = {revision for text in texts.values() for revision, _ in REVISION.findall(text)}
    days_old: dict[str, float | None] = dict.fromkeys(revisions, 0.0)
    if git("rev-parse", "--is-shallow-repository").stdout.strip() == "false":
        last_s = int(git("show", "-s", "--format=%ct", "HEAD").stdout)
        for revision in revisions:
            known = git("merge-base", "--is-ancestor", revision, "HEAD").returncode == 0
            said = git("show", "-s", "--format=%ct", revision).stdout if known else ""
            days_old[revision] = (last_s - int(said)) / 86400 if known else None
    faults = [fault for title, text in texts.items() for fault in faults_of(title, text, days_old)]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize(
    ("text", "days", "fault"),
    [
        ("revision abcdef12, 2026-11-26", 10, ""),
        ("Revision: `abcdef12+`", 10, "uncommitted"),
        ("no number", 10, "no revision"),
        ("revision\nabcdef12", None, "not in the history"),
        ("revision abcdef12", 181, "181 days older"),
    ],
)
def test_a_table_that_is_old_or_not_committed_would_be_found(
    text: str, days: float | None, fault: str
) -> None:
    assert fault in "".join(faults_of("X", text, {"abcdef12": days}) or [""])
    assert bool(faults_of("X", text, {"abcdef12": days})) == bool(fault)


def test_each_section_with_a_table_is_computed_again_or_says_why_not() -> None:
    counted = {title for title, text in sections().items() if "performance.py" not in text}
    assert RECOMPUTED.keys() | BY_AGE.keys() == counted
    assert not RECOMPUTED.keys() & BY_AGE.keys()
    for file, name in RECOMPUTED.values():
        text = (ROOT / "tests/benchmarks" / file).read_text(encoding="utf-8")
        assert f"\ndef {name}" in text, name


@pytest.mark.parametrize("title", sections())
def test_each_table_has_a_command(title: str) -> None:
    assert re.search(r"benchmarks/\w+\.py|tests/trials/|testbed \w|make \w", sections()[title])
