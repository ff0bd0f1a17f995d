# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`tests/trials/unplanned.py`: what it would find, and that what its plug-ins do is refused."""

import random

import pytest
import unplanned


def of_command(script: str, monkeypatch: pytest.MonkeyPatch) -> unplanned.Trial:
    """The trial of a command that is a shell's."""

    def kind(dice: random.Random, place: unplanned.Place) -> None:
        place.start(before=["sh", "-c", script, "sh"])
        place.finish(0.5 if "sleep 60" in script else 20)

    monkeypatch.setattr(unplanned, "KINDS", {"shell": (kind, 1)})
    monkeypatch.setattr(unplanned, "GONE_S", 0.1)
    return unplanned.trial(1, 7, ["shell"])


@pytest.mark.parametrize(
    ("script", "untrue"),
    [
        ("exit 0", ""),
        ("echo working >&2; echo 'testbed: no: because' >&2; exit 2", ""),
        ("echo 'testbed: Traceback (most recent call last)' >&2; exit 1", "a traceback: "),
        ("exit 1", "no word why: []"),
        ("echo well >&2; exit 2", "no word why: ['well']"),
        ("exit 3", "status 3"),
    ],
)
def test_what_a_command_says_is_judged(
    script: str, untrue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = of_command(script, monkeypatch)
    assert found.untrue.startswith(untrue)
    assert bool(found.untrue) is bool(untrue)
    assert found.left == []
    assert found.ok is not bool(untrue)


def test_what_it_leaves_and_that_it_does_not_end_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    found = of_command('touch "$TMPDIR/x"; exec 2>&-; sleep 3 & exit 0', monkeypatch)
    assert found.statuses == [0]
    assert sorted(line.split()[0] for line in found.left) == ["file", "process"]
    assert not found.ok
    found = of_command("exec sleep 60", monkeypatch)
    assert (found.statuses, found.ok) == ([None], False)


def test_a_trial_is_drawn_by_seed_and_number(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: dict[str, list[float]] = {"often": [], "seldom": []}
    kinds = {
        name: (lambda dice, place, name=name: drawn[name].append(dice.random()), weight)
        for name, weight in (("often", 4), ("seldom", 1))
    }
    monkeypatch.setattr(unplanned, "KINDS", kinds)
    for run in [*range(40), *range(40)]:
        assert unplanned.trial(3, run, list(kinds)).ok
    for values in drawn.values():
        half = len(values) // 2
        assert values[:half] == values[half:]
        assert len(set(values)) == half
    assert len(drawn["often"]) > 2 * len(drawn["seldom"]) > 0
