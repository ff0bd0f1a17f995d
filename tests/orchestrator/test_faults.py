# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A table of faults: how a command ends, what it says last, and what is left.

Each fault meets a copy of the same folder, with results of every kind. Its command ends with the
status and the line of the table; nothing but the named files is new, changed or gone.
"""

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import warm
from killed_run import killed
from small_campaign import write_campaign
from small_scenario import TEXT
from synthetic_run import make_run

from orchestrator.campaigning.cluster import run_campaign
from orchestrator.campaigning.folder import CampaignFolder
from orchestrator.campaigning.spec import load_campaign
from testbed.host.dask_cluster import Cluster

POINT = "c/points/*"
VALIDATE = "validate s.yaml --model tau2 --samples 16 --packets 0 --workers 1 --out r"
RESUME = "run s.yaml --trace t.npz --rounds 9 --out k --resume"
PREDICT = "predict s.yaml --trace t.npz"
AGAIN = r"{}: `testbed campaign run` computes this point again"
STARTS = ".k.part/checkpoint/sessions.json"
"""Every start of a run is noted there."""
PARQUET = "is not a complete Parquet file"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of every kind: of a run, a killed run, a campaign."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "s.yaml").write_text(TEXT)
    gain = 10 ** np.random.default_rng(1).uniform(-10.5, -9, (3, 3000))
    np.savez(folder / "t.npz", gain=gain, slot_s=0.1)
    make_run(folder / "r")
    campaign = load_campaign(write_campaign(folder, repeats=[1]))
    run_campaign(campaign, CampaignFolder(folder / "c"), cluster=Cluster(workers=0))
    words = "run", folder / "s.yaml", "--trace", folder / "t.npz", "--rounds", "9"
    killed(*words, out=folder / "k", rounds=2, after_s=0)
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of it, into which nothing may be written that is not ours."""
    shutil.copytree(whole, tmp_path / "copy", symlinks=True)
    yield tmp_path / "copy"
    # A file without rights must not keep the folder.
    for path in (tmp_path / "copy").rglob("*"):
        if path.is_dir():
            path.chmod(0o755)


def cut(pattern: str, size: int = 30) -> Callable[[Path], None]:
    """The first such file ends after so many bytes, as after a power failure."""

    def damage(folder: Path) -> None:
        os.truncate(sorted(folder.glob(pattern))[0], size)

    return damage


def zeros(pattern: str) -> Callable[[Path], None]:
    """The end of the first such file is zero, as of a file whose blocks were never written."""

    def damage(folder: Path) -> None:
        path = sorted(folder.glob(pattern))[0]
        size = path.stat().st_size
        os.truncate(path, size // 2)
        os.truncate(path, size)

    return damage


def gone(pattern: str) -> Callable[[Path], None]:
    return lambda folder: sorted(folder.glob(pattern))[0].unlink()


def text(name: str, content: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        sorted(folder.glob(name))[0].write_text(content)

    return damage


@dataclass(frozen=True)
class Fault:
    """One row of the table."""

    name: str
    command: str
    status: int
    says: str
    """Pattern of the last line on stderr; empty: nothing is said."""
    damage: Callable[[Path], object] = lambda _: None
    left: str = ""
    """Files, as patterns, that may be new, changed or gone."""


FAULTS = [
    # A point of a campaign that was cut is computed again, and nothing else stops for it.
    *(
        Fault(f"{what} {file} {how.__name__}", line, 0, says, how(f"{POINT}/{file}"), left)
        for how in (cut, zeros)
        for file, why in (
            ("manifest.json", r"manifest.json: is not JSON \(.*\)"),
            ("point.json", r"point.json: is not JSON \(.*\)"),
            ("rounds.parquet", f"rounds.parquet: {PARQUET}"),
            ("energy.parquet", f"energy.parquet: {PARQUET}"),
        )
        for what, line, says, left in (
            ("status", "campaign status c", AGAIN.format(why), ""),
            ("report", "campaign report c", AGAIN.format(why), "c/[fr]*"),
        )
        if what == "status" or (file, how) == ("energy.parquet", cut)  # Figures take seconds.
    ),
    Fault("status without manifest", "campaign status c", 0, "manifest.json is missing.*again$",
          gone(f"{POINT}/manifest.json")),
    Fault("campaign.yaml cut", "campaign status c", 2, "c/campaign.yaml: ",
          cut("c/campaign.yaml")),
    # A killed run whose checkpoint was cut.
    Fault("sessions cut", RESUME, 2, "--resume: .*sessions.json: is not JSON .* earlier starts",
          text(".k.part/checkpoint/sessions.json", "[")),
    Fault("inputs cut", RESUME, 2, "--resume: .*inputs.json: is not JSON .* comparison",
          text(".k.part/checkpoint/inputs.json", "{")),
    Fault("round cut", RESUME, 2, "--resume: .*round-000000.npz: cannot be read",
          cut(".k.part/checkpoint/round-000000.npz"), STARTS),
    Fault("round zero", RESUME, 2, "--resume: .*round-000000.npz: cannot be read",
          zeros(".k.part/checkpoint/round-000000.npz"), STARTS),
    Fault("killed run not resumed", RESUME[:-9], 2, "--out: a run of k was killed after . rounds"),
    Fault("scenario of the part cut", RESUME, 2, r"\.k.part/scenario.json: ",
          cut(".k.part/scenario.json")),
    # A run whose files were cut.
    *(
        Fault(f"report, {name} cut", "report r", 2, f"r/{name}: ", cut(f"r/{name}"))
        for name in ("manifest.json", "scenario.json", "rounds.parquet", "measured.parquet",
                     "energy.parquet", "trace.npz", "calibration.parquet")
    ),
    Fault("bundle of a cut run", "bundle r --out b.zip", 2, "r/rounds.parquet: ",
          cut("r/rounds.parquet")),
    Fault("compare with a cut run", "compare r r", 2, "r/rounds.parquet: ",
          cut("r/rounds.parquet")),
    Fault("resume a complete run", "run s.yaml --out r --resume", 2, "--resume: r holds no run"),
    # Inputs and outputs.
    Fault("trace cut", PREDICT, 2, "t.npz: ", cut("t.npz")),
    Fault("trace empty", PREDICT, 2, "t.npz: ", cut("t.npz", 0)),
    Fault("trace zero", PREDICT, 2, "t.npz: ", zeros("t.npz")),
    Fault("scenario cut", PREDICT, 2, "testbed: s.yaml, line", cut("s.yaml", 40)),
    Fault("scenario is a folder", "predict c", 2, "c: "),
    Fault("results are a folder", f"{PREDICT} --json c", 2, "--json: c is a directory"),
    Fault("results in no folder", f"{PREDICT} --json no/x.json", 2, "--json: the folder no does"),
    Fault("results in a file", f"{PREDICT} --json t.npz/x.json", 2, "--json: "),
    Fault("a run in a file", "run s.yaml --out t.npz/x", 2, "--out: "),
    Fault("a run in a folder of others", "run s.yaml --out c", 2, "--out: c exists already"),
    Fault("a run in a link", "run s.yaml --out l", 2, "--out: l is a symbolic link",
          lambda folder: (folder / "l").symlink_to("c")),
    Fault("a campaign in a run", "campaign run small.yaml --out r", 2, "--out: r exists already"),
    Fault("a session in a run", "up s.yaml --out r", 2, "--out: r exists already"),
    Fault("a validation in a run", VALIDATE, 2, "--out: r exists already"),
    Fault("a session in a campaign", "up s.yaml --out c", 2, "--out: c exists already"),
    Fault("no scenario", "predict none.yaml", 2, "none.yaml: no such scenario file"),
    Fault("no session", "exec r uav1 true", 2, "r: no session runs there"),
    Fault("no run", "report none", 2, "none: not the directory of a run"),
]  # fmt: skip


def contents(folder: Path) -> dict[str, str]:
    """By path: the digest of each file, and the target of each link."""
    found = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        name = str(path.relative_to(folder))
        if stat.S_ISREG(mode):
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        elif stat.S_ISLNK(mode):
            found[name] = str(path.readlink())
    return found


def test_the_table_is_long_enough() -> None:
    names = [fault.name for fault in FAULTS]
    assert len(names) == len(set(names)) >= 45


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_ends_in_a_line_and_loses_nothing(folder: Path, fault: Fault) -> None:
    fault.damage(folder)
    before = contents(folder)
    quiet = os.environ | {"TESTBED_LOG": "warning"}  # Traces are not described.
    done = warm.run(*fault.command.split(), cwd=folder, env=quiet)
    assert "Traceback" not in done.stderr
    lines = done.stderr.splitlines()
    assert done.returncode == fault.status, lines
    if fault.status:
        assert len(lines) == 1
    if fault.says:
        assert any(re.search(fault.says, line) for line in lines[-1:]), lines
    after = contents(folder)
    changed = {name for name in before | after if before.get(name) != after.get(name)}
    allowed = {str(p.relative_to(folder)) for at in fault.left.split() for p in folder.glob(at)}
    assert not {name for name in changed if not any(_within(name, at) for at in allowed)}


def _within(name: str, place: str) -> bool:
    return name == place or name.startswith(f"{place}/")
