# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What is run on a stock kernel, and what must come of it: behaviour, never accuracy.

An emulated processor is tens of times too slow for any run to be valid, so emulated time is
dilated, and no check looks at how late anything was.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from machine import MADE, Outcome, Step

from orchestrator.records.reader import read_run

DILATION = 50
LOSS = 0.02
BUNDLE = "bundle.zip"
"""Made on the host, into the machine's folder of results."""
VERIFIED = "verified.json"
"""What `testbed verify` finds there; files of a step's name are the machine's."""
TOLERANCE = 0.5
"""Relative, of a measured round on an emulated processor."""
_QUICK = ["scenarios/quickstart.yaml", "--set", f"emulation.dilation={DILATION}"]
_LONG_DILATION = 10
_BYTES = [*_QUICK, "--set", "workload.compute=none", "--set", "rounds=1"]
_LONG = [
    *("scenarios/quickstart.yaml", "--set", f"emulation.dilation={_LONG_DILATION}"),
    *("--set", "workload.compute=none", "--set", "workload.batch_size=128", "--set", "rounds=1"),
]
"""Transfers of some MB, which overflow a queue that TCP does not feel."""


Judge = Callable[[Path], Iterable[str]]
"""What speaks against a run, given its directory."""


@dataclass(frozen=True)
class Check:
    """A step, and what speaks against how it ended."""

    step: Step
    judge: Callable[[Outcome, Path], Iterator[str]]
    """Given the outcome and the results' folder."""


def checks(results: Path) -> list[Check]:
    """All of them, what takes least first; each is one command in the machine."""

    def run(
        name: str, words: list[str], judge: Callable[[Path], Iterable[str]], **more: Any
    ) -> Check:
        step = Step(name, ["testbed", "run", *words, "--out", f"{MADE}/{name}"], **more)
        return Check(step, lambda outcome, _: iter(fine(outcome) or judge(results / name)))

    def set_(**keys: object) -> list[str]:
        return [w for key, value in keys.items() for w in ("--set", f"{key}={value}")]

    delay = set_(**{"links.one_way_delay_s": 0.02})
    loss = set_(**{"links.loss": LOSS})
    bbr = set_(**{"emulation.congestion_control": "bbr"})
    return [
        _doctor(results, "doctor", user=False),
        _doctor(results, "doctor-user", user=True),
        run("bytes", _BYTES, sound),
        run("bytes-user", _BYTES, sound, user=True),
        run("delay", [*_LONG, *delay], delayed),
        run("loss", [*_LONG, *loss], lost),
        Check(Step("bbr-refused", ["testbed", "run", *_BYTES, *bbr]), _names_modprobe),
        Check(Step("modprobe", ["modprobe", "-a", "tcp_bbr", "sch_fq"]), _fine),
        run("bbr", [*_BYTES, *bbr], sound, sysctl={"net/core/default_qdisc": "fq"}),
        Check(
            Step(
                "verify",
                [
                    *("testbed", "verify", str(results / BUNDLE), "--json", f"{MADE}/{VERIFIED}"),
                    *("--clock", "real", "--tolerance", str(TOLERANCE)),
                ],
            ),
            _verified,
        ),
        Check(
            Step(
                "network-tests",
                ["pytest", "-q", "-p", "no:cacheprovider", "tests/testbed/network"],
                environment={"TEST_SLOWNESS": "10"},
            ),
            _fine,
        ),
        run("docker", _BYTES + set_(**{"emulation.runtime": "docker"}), sound, docker=True),
        run("quickstart", _QUICK, learned, learning=True),
        run("quickstart-user", _QUICK, learned, learning=True, user=True),
        run(
            "quickstart-docker",
            _QUICK + set_(**{"emulation.runtime": "docker"}),
            learned,
            learning=True,
            docker=True,
        ),
    ]


def fine(outcome: Outcome) -> list[str]:
    """What is wrong with a command that is to end with status 0."""
    if outcome.status == 0:
        return []
    last = (outcome.err.strip() or outcome.out.strip() or "said nothing").splitlines()[-1]
    return [f"status {outcome.status}: {last}"]


def _fine(outcome: Outcome, _: Path) -> Iterator[str]:
    yield from fine(outcome)


def sound(folder: Path) -> Iterator[str]:
    """Each step of each round was there, and no queue dropped a frame."""
    run = read_run(folder)
    if len(run.measured.frame()) != len(run.predicted.frame()):
        yield f"{len(run.measured.frame())} steps, not {len(run.predicted.frame())}"
    (dropped,) = [c for c in run.manifest["validity"] if c["check"] == "dropped_frames"]
    if dropped["value"]:
        yield f"queues dropped {dropped['value']:.2%} of the frames of {dropped['where']}"


def delayed(folder: Path) -> Iterator[str]:
    """The kernel's netem delays, and behind the queue, which TCP still feels."""
    yield from sound(folder)
    run = read_run(folder)
    if "netem" not in json.dumps(run.manifest["air"]):
        yield f"who delays frames is not the kernel but {run.manifest['air']}"
    if _air(folder)["lost_frames"].any():
        yield "frames were lost where none were to be"


def lost(folder: Path) -> Iterator[str]:
    """As many frames as asked, within five standard deviations of the binomial distribution."""
    yield from sound(folder)
    air = _air(folder)
    gone = int(air["lost_frames"].sum())
    frames = gone + int(air["arrived_frames"].sum())
    if abs(gone - LOSS * frames) > 5 * (frames * LOSS * (1 - LOSS)) ** 0.5:
        yield f"{gone} of {frames} frames were lost, {LOSS:.0%} were asked for"


def _air(folder: Path) -> pd.DataFrame:
    """Frames lost and arrived, of which reports show the slots' alone."""
    return pd.read_parquet(folder / "air.parquet")


def learned(folder: Path) -> Iterator[str]:
    """What UAVs learn does not depend on the runtime, nor on who runs it."""
    yield from sound(folder)
    digests = {
        path.parent.name: hashlib.sha256(path.read_bytes()).hexdigest()[:12]
        for path in folder.parent.glob("*/adapters.safetensors")
    }
    if len(set(digests.values())) != 1:
        yield f"adapters differ: {digests}"


def _doctor(results: Path, name: str, *, user: bool) -> Check:
    file = results / f"{name}-findings.json"
    wanted = ["namespaces", "links", "other qdiscs", "congestion control", "Landlock"]
    wanted += [] if user else ["tunnels", "docker", "real-time scheduling"]

    def judge(outcome: Outcome, _: Path) -> Iterator[str]:
        if not file.exists():
            yield from fine(outcome) or ["wrote no findings"]
            return
        found = {finding["name"]: finding for finding in json.loads(file.read_text())}
        for finding in (found[each] for each in wanted):
            if not finding["ok"]:
                yield f"{finding['name']}: {finding['detail']}"
        if "modprobe tcp_bbr" not in found["congestion control"]["detail"]:
            yield "does not say how to get bbr"

    return Check(
        Step(name, ["testbed", "doctor", "--json", f"{MADE}/{file.name}"], user, not user), judge
    )


def _names_modprobe(outcome: Outcome, _: Path) -> Iterator[str]:
    if outcome.status != 2 or "modprobe tcp_bbr" not in outcome.err:
        yield f"status {outcome.status}, not one line that names modprobe: {outcome.err[-200:]}"


def _verified(outcome: Outcome, results: Path) -> Iterator[str]:
    """Predictions come out equal, and what differs is told."""
    yield from fine(outcome)
    done = json.loads((results / VERIFIED).read_text())
    if not done["ok"] or done["not_emulated"]:
        yield f"not verified: {done['not_emulated'] or outcome.out}"
    if not {"kernel", "cpu"} <= done["environment"].keys():
        yield f"does not say that kernel and processor differ: {list(done['environment'])}"
