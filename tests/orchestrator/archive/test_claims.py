# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a verdict covers: each number of a bundle is compared, or named as not checked."""

import io
import json
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import warm
from console import run_testbed
from forged_bundle import rewritten
from small_campaign import write_campaign
from small_scenario import TEXT, TREE
from synthetic_run import make_run

from orchestrator.archive import claims
from orchestrator.archive.bundle import bundle
from orchestrator.archive.claims import (
    AGAIN,
    COLUMNS,
    COPIED,
    EXCEPT,
    FILES,
    FOLLOWS,
    MADE_AGAIN,
    MANIFEST,
    SOMETIMES,
    Extent,
    examine,
    examine_point,
)
from orchestrator.archive.unpack import Unpacked
from orchestrator.archive.verify import RunVerification, _point, verify
from orchestrator.campaigning.cluster import run_campaign
from orchestrator.campaigning.folder import CampaignFolder
from orchestrator.campaigning.spec import load_campaign
from orchestrator.emulated.validity import CHECKS
from orchestrator.records.manifest import manifest
from orchestrator.records.reader import read_run
from orchestrator.records.tables import OPTIONAL, TABLES
from orchestrator.scenario.loading import validate
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from testbed.host.dask_cluster import Cluster

NAME = "first & last"
"""Name of the run's folder, which a bundle does not have."""
RUN = f"{TEXT}rounds: 2\nemulation: {{dilation: 2}}\n"


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on links of this machine."""
    folder = tmp_path_factory.mktemp("honest")
    (folder / "s.yaml").write_text(RUN)
    done = warm.run("run", folder / "s.yaml", "--out", folder / NAME)
    assert (folder / NAME / "measured.parquet").exists(), done.stderr
    return folder / NAME


@pytest.fixture(scope="module")
def packed(honest: Path) -> Path:
    bundle(honest, honest.with_name("honest.zip"))
    return honest.with_name("honest.zip")


@pytest.fixture(scope="module")
def known(honest: Path) -> Extent:
    return examine(read_run(honest), honest)


@pytest.fixture
def forged(honest: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(honest, tmp_path / "run"))


@pytest.fixture
def without_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most tests ask for the numbers only."""
    monkeypatch.setattr(claims, "_compare_page", lambda *_: None)


def never(scenario: Scenario, trace: Path, folder: Path) -> None:
    raise AssertionError("emulated")


def change(folder: Path, name: str, forge: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    file = folder / f"{name}.parquet"
    forge(pd.read_parquet(file)).to_parquet(file, index=False)


def edit(folder: Path, forge: Callable[[dict[str, Any]], object]) -> None:
    file = folder / "manifest.json"
    tree = json.loads(file.read_text())
    forge(tree)
    file.write_text(json.dumps(tree))


def differences(folder: Path) -> list[str]:
    return examine(read_run(folder), folder).differences


def test_the_name_of_a_folder_is_no_claim(packed: Path) -> None:
    done = verify(packed, never, sample=0)
    assert done.ok, done.extent.differences
    assert "report.html: name of the folder" in done.extent.not_checked
    assert "report.html (of another version of the testbed)" not in done.extent.not_checked


def test_an_honest_run_is_equal_in_all_that_follows(known: Extent) -> None:
    assert known.differences == []
    named = " ".join(known.not_checked)
    for each in ("measured.parquet: end_s", "lateness_s", "ack_bytes", "revision", "cpu_others"):
        assert each in named
    assert not [name for name in known.not_checked if "unknown" in name or "belong" in name]


@pytest.mark.parametrize("name", sorted({*TABLES, "transfers", "air"}))
def test_every_column_is_in_one_class(name: str, honest: Path) -> None:
    columns = {*TABLES.get(name, {})}
    if (file := honest / f"{name}.parquet").exists():
        columns |= {*pd.read_parquet(file)}
    columns |= {"edge", "edge_round"} if name in {"rates", "accounts", "learning"} else set()
    assert columns <= COLUMNS[name].keys(), "a new column: how does `verify` check it?"
    assert {*COLUMNS[name].values()} <= {AGAIN, FOLLOWS, COPIED}


def test_every_table_and_entry_is_in_one_class(honest: Path) -> None:
    assert COLUMNS.keys() == {*TABLES, "transfers", "air"}
    assert {column for columns in COLUMNS.values() for column in columns} >= OPTIONAL.keys()
    made = {
        *manifest(validate(TREE, "test"), ""),
        *json.loads((honest / "manifest.json").read_text()),
    }
    assert made <= MANIFEST.keys(), "a new entry of the manifest: how does `verify` check it?"
    of_runs = {name for name, check in CHECKS.items() if check.of_run is not None}
    assert {*MADE_AGAIN, *SOMETIMES} <= of_runs
    for name, columns, _ in EXCEPT:
        assert {*columns.split()} <= COLUMNS[name].keys()
    for file in (path.name for path in honest.iterdir() if path.is_file()):
        assert [pattern for pattern in FILES if re.fullmatch(pattern, file)], file


def other(value: Any, column: str) -> Any:
    """Another value that a reader accepts."""
    if isinstance(value, str):
        words = {"up": "down", "down": "up", "measured": "predicted", "uplink": "downlink"}
        return words.get(value, {"SM": "CM", "cpsfl": "pipesfl"}.get(value, f"{value}x"))
    if column in ("alpha", "beta", "rho"):
        return value / 2
    return value + 1 if isinstance(value, int | np.integer) else value * 1.01 + 0.001


@pytest.mark.usefixtures("without_page")
@pytest.mark.parametrize("name", sorted(COLUMNS))
def test_a_column_is_compared_or_named(
    honest: Path, forged: Path, known: Extent, name: str
) -> None:
    file = honest / f"{name}.parquet"
    table = pd.read_parquet(file) if file.exists() else pd.DataFrame()
    for column, how in COLUMNS[name].items():
        if column not in table or not len(table):
            continue
        if how == COPIED:
            assert f"{name}.parquet: {column}" in known.not_checked
        if how != FOLLOWS:
            continue
        wrong = table.copy()
        if wrong[column].dtype == "category":
            wrong[column] = wrong[column].astype(object)
        row = len(table) - 1 if name != "accounts" else int((table["kind"] == "SMASHED").argmax())
        wrong.loc[wrong.index[row], column] = other(wrong[column].iloc[row], column)
        wrong.to_parquet(forged / f"{name}.parquet", index=False)
        try:
            found = differences(forged)
        except InputError as error:  # refused by the reader
            found = [str(error)]
        assert any(f"{name}.parquet" in line for line in found), (column, found)


@pytest.mark.usefixtures("without_page")
@pytest.mark.parametrize(
    ("entry", "value"),
    [
        *(("seed", 7), ("runtime", "docker"), ("congestion_control", "bbr"), ("mtu", 9000)),
        *(("clock", "virtual"), ("dilation", 1.0), ("status", "failed"), ("failure", "none")),
        *(("valid", None), ("valid", "yes"), ("data", "cifar10"), ("calibration", [])),
        ("faults", [{"kind": "crash"}]),
        ("calibration", [{"direction": "up"}]),
    ],
)
def test_an_entry_of_the_manifest_is_compared(forged: Path, entry: str, value: Any) -> None:
    edit(forged, lambda tree: tree.update({entry: value}))
    try:
        found = differences(forged)
    except InputError as error:
        found = [str(error)]
    if entry == "faults":  # more than the planned ones: they have happened
        return
    assert any(entry in line for line in found), found


@pytest.mark.usefixtures("without_page")
@pytest.mark.parametrize("verdict", [True, False])
def test_the_verdict_follows_from_the_checks(forged: Path, verdict: bool) -> None:
    def turn(tree: dict[str, Any]) -> None:
        for check in tree["validity"]:
            check["ok"] = check["value"] <= check["limit"]
        tree["validity"][-1] |= {"value": 0.0 if not verdict else 1e9, "ok": not verdict}
        if not verdict:
            for check in tree["validity"]:
                check["ok"], check["value"] = True, min(check["value"], check["limit"])
        tree["valid"] = verdict

    edit(forged, turn)
    assert any("manifest.json: DIFFERS: valid" in line for line in differences(forged))


@pytest.mark.usefixtures("without_page")
@pytest.mark.parametrize("name", MADE_AGAIN)
@pytest.mark.parametrize("key", ["value", "limit", "ok"])
def test_a_check_is_made_again(forged: Path, name: str, key: str) -> None:
    def turn(tree: dict[str, Any]) -> None:
        for check in tree["validity"]:
            if check["check"] == name:
                check[key] = not check["ok"] if key == "ok" else check[key] + 0.001
                check["ok"] = check["ok"] if key == "ok" else check["value"] <= check["limit"]
        tree["valid"] = all(check["ok"] for check in tree["validity"])

    edit(forged, turn)
    assert any(f"validity: DIFFERS: {name}" in line for line in differences(forged))


@pytest.mark.usefixtures("without_page")
@pytest.mark.parametrize("name", ["cpu_others", "transfer_error", "backlog_bytes"])
@pytest.mark.parametrize("how", ["left out", "twice", "other limit"])
def test_a_check_cannot_be_left_out(forged: Path, name: str, how: str) -> None:
    def turn(tree: dict[str, Any]) -> None:
        (check,) = (each for each in tree["validity"] if each["check"] == name)
        if how == "left out":
            tree["validity"].remove(check)
        elif how == "twice":
            tree["validity"].append(check)
        else:
            check["limit"] *= 2
        tree["valid"] = all(each["ok"] for each in tree["validity"])

    edit(forged, turn)
    assert any(f"{name}" in line for line in differences(forged))


@pytest.mark.usefixtures("without_page")
def test_a_step_that_ends_before_it_begins(forged: Path) -> None:
    change(forged, "measured", lambda t: t.assign(end_s=t["end_s"].where(t.index != 5, -1.0)))
    assert any("ends at -1.0 s" in line for line in differences(forged))


@pytest.mark.usefixtures("without_page")
def test_a_curve_of_a_run_without_training(forged: Path) -> None:
    row = (1, "held-out", 0, 0, 1.0, 0.01, 0.999, 0.0, 0.0)
    names = [*COLUMNS["learning"]]
    names = ["round", "data", "client", "iteration", "time_s", "loss", "accuracy", *names[-4:-2]]
    pd.DataFrame([row], columns=names).to_parquet(forged / "learning.parquet")
    says = "learning.parquet: has rows, although workload.compute is 'none'"
    assert says in differences(forged)


@pytest.mark.usefixtures("without_page")
@pytest.mark.parametrize("name", ["resource_blocks", "air", "air_slots", "grants", "cells"])
def test_a_table_that_such_a_run_does_not_have(honest: Path, forged: Path, name: str) -> None:
    like = {column: "up" if column == "direction" else "SM" for column in COLUMNS[name]}
    row = {c: v if c in ("direction",) else 1 for c, v in like.items()} | {"asked_loss": 0.5}
    pd.DataFrame([{c: row[c] for c in COLUMNS[name]}]).to_parquet(forged / f"{name}.parquet")
    extent = examine(read_run(forged), forged)
    assert any(f"{name}.parquet" in line for line in [*extent.differences, *extent.not_checked])


@pytest.mark.usefixtures("without_page")
@pytest.mark.parametrize(
    ("name", "column", "says"),
    [
        ("accounts", "framing_bytes", "tables (accounts.parquet lacks framing_bytes)"),
        ("decisions", "beta", "tables (decisions.parquet is missing)"),
        ("transfers", "due_s", "transfers.parquet: DIFFERS: lacks due_s"),
        ("energy", "energy_j", "energy.parquet (is missing)"),
        ("waterfall", "seconds", "waterfall.parquet (is missing)"),
    ],
)
def test_nothing_is_hidden_by_leaving_it_out(
    forged: Path, name: str, column: str, says: str
) -> None:
    change(forged, name, lambda table: table.drop(columns=column))
    extent = examine(read_run(forged), forged)
    assert any(line.startswith(says) for line in [*extent.differences, *extent.not_checked])


@pytest.mark.usefixtures("without_page")
def test_what_is_unknown_is_named(forged: Path) -> None:
    change(forged, "rounds", lambda table: table.assign(prize=1.0))
    edit(forged, lambda tree: tree.update({"award\x1b": 1}))
    (forged / "surplus.exe").write_text("MZ")
    (forged / "more").mkdir()
    (forged / "more" / "x").write_text("")
    (forged / "adapters.safetensors").write_text("")
    extent = examine(read_run(forged), forged)
    assert extent.differences == []
    for name in (
        "rounds.parquet: prize (unknown)",
        "manifest.json: award\\x1b (unknown)",
        "surplus.exe (does not belong to a run)",
        "more/x (does not belong to a run)",
        "adapters.safetensors (does not belong to a run)",
    ):
        assert name in extent.not_checked


def test_the_page_is_made_anew(forged: Path, tmp_path: Path) -> None:
    (forged / "report.html").write_text("<h1>Measured 0.001 s</h1>")
    page = "report.html: DIFFERS from the one that follows from the data"
    assert differences(forged) == [page]
    edit(forged, lambda tree: tree.update({"source_sha256": "0" * 64}))
    extent = examine(read_run(forged), forged)
    assert extent.differences == []
    assert "report.html (of another version of the testbed)" in extent.not_checked
    bundle(forged, tmp_path / "b.zip")
    done = verify(tmp_path / "b.zip", never, sample=0)
    assert "report.html (of another version of the testbed)" in done.to_json()["not_checked"]


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("README.md", b"# verified by an independent laboratory\n", "README.md: DIFFERS"),
        ("CITATION.cff", b"cff-version: 1.2.0\n", "CITATION.cff: DIFFERS"),
        ("run/logs/bs.log", b"fine\n", "has other digests of run/logs/bs.log"),
        ("ro-crate-metadata.json", b'{"@graph": []}', "has other digests of CITATION.cff"),
        ("ro-crate-metadata.json", b'{"@graph": 1}', "has other digests of CITATION.cff"),
    ],
)
def test_what_a_bundle_says_about_itself(
    packed: Path, tmp_path: Path, name: str, data: bytes, says: str
) -> None:
    done = verify(
        rewritten(packed, tmp_path / "b.zip", lambda c: c.update({name: data})), never, sample=0
    )
    assert not done.ok
    assert any(says in line for line in done.lines())


def test_metadata_that_was_touched_up(packed: Path, tmp_path: Path) -> None:
    def touch(content: dict[str, bytes]) -> None:
        data = content["ro-crate-metadata.json"]
        assert b"the testbed runs" in data
        content["ro-crate-metadata.json"] = data.replace(b"the testbed runs", b"a lab ran")

    done = verify(rewritten(packed, tmp_path / "b.zip", touch), never, sample=0)
    assert [*done.to_json()["differences"]] == [
        "ro-crate-metadata.json: DIFFERS from the one that follows from the data"
    ]


def test_a_file_that_does_not_belong_to_a_bundle_is_named(packed: Path, tmp_path: Path) -> None:
    done = verify(
        rewritten(packed, tmp_path / "b.zip", lambda c: c.update({"evil.exe": b"MZ"})),
        never,
        sample=0,
    )
    assert "evil.exe (does not belong to a bundle)" in done.to_json()["not_checked"]


def test_sums_with_two_lines_for_a_file(packed: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(packed) as archive, zipfile.ZipFile(tmp_path / "b.zip", "w") as twice:
        for name in archive.namelist():
            data = archive.read(name)
            if name == "SHA256SUMS":
                data += b"0" * 64 + b"  README.md\n"
            twice.writestr(name, data)
    with pytest.raises(InputError, match=r"SHA256SUMS: has two lines for 'README\.md'"):
        verify(tmp_path / "b.zip", never, sample=0)


def test_a_verdict_names_its_extent_on_the_terminal_and_in_json(
    packed: Path, forged: Path, tmp_path: Path
) -> None:
    words = ("--sample", 0, "--json", tmp_path / "v.json")
    done = run_testbed("verify", packed, *words)
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("not checked: "))
    tree = json.loads((tmp_path / "v.json").read_text())
    assert tree["ok"] is True
    assert tree["differences"] == []
    assert "measured.parquet: rounds 0 to 1 (not emulated again)" in tree["not_checked"]
    for name in tree["not_checked"]:
        assert all(part in line for part in name.split(": "))
    change(forged, "energy", lambda table: table.assign(energy_j=0.001))
    bundle(forged, tmp_path / "forged.zip")
    done = run_testbed("verify", tmp_path / "forged.zip", *words, check=False)
    assert done.returncode == 1
    assert (
        "energy.parquet: DIFFERS, kind measured, round 0, client 1: energy_j 0.001" in done.stdout
    )
    assert json.loads((tmp_path / "v.json").read_text())["ok"] is False


def test_rounds_that_were_emulated_again_are_not_listed(packed: Path, honest: Path) -> None:
    def emulate(scenario: Scenario, trace: Path, folder: Path) -> None:
        shutil.copytree(honest, folder)
        change(folder, "rounds", lambda table: table[table["round"] < scenario.rounds])

    for sample, says in ((1, ["round 1"]), (2, [])):
        done = verify(packed, emulate, sample=sample)
        assert isinstance(done, RunVerification)
        named = [name for name in done.extent.not_checked if "not emulated again" in name]
        assert named == [f"measured.parquet: {each} (not emulated again)" for each in says]


def test_a_run_of_an_earlier_version_is_only_copied(tmp_path: Path) -> None:
    """Its accounts lack the columns that parts of latencies follow from."""
    run = make_run(tmp_path / "run")
    extent = examine(read_run(run), run)
    assert extent.differences == []
    assert extent.not_checked[0] == "tables (accounts.parquet lacks framing_bytes)"
    assert "energy.parquet: energy_j" in extent.not_checked


@pytest.mark.parametrize(
    ("name", "column", "says"),
    [
        ("energy", "energy_j", "rounds.parquet: DIFFERS, round 0: predicted max_energy_j"),
        ("rounds", "start_s", "rounds.parquet: DIFFERS, round 1: predicted start_s"),
        ("rounds", "latency_s", "rounds.parquet: DIFFERS, round 1: predicted start_s"),
        ("budget", "seconds", "budget.parquet: DIFFERS, round 0: seconds"),
        ("waterfall", "seconds", "waterfall.parquet: DIFFERS, round 0: seconds"),
        ("measured", "end_s", "measured.parquet: DIFFERS, round 0, client 1, SM: begins at"),
    ],
)
def test_sums_hold_in_every_run(tmp_path: Path, name: str, column: str, says: str) -> None:
    run = make_run(tmp_path / "run")
    by = -2.0 if name == "measured" else 0.1

    file = run / f"{name}.parquet"
    table = pd.read_parquet(file)
    table[column] = table[column] + by * (1 + np.arange(len(table)) % 3)
    table.to_parquet(file)
    assert any(line.startswith(says) for line in differences(run)), differences(run)


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign of predicted points."""
    folder = tmp_path_factory.mktemp("campaign")
    made = CampaignFolder(folder / "small")
    run_campaign(load_campaign(write_campaign(folder)), made, cluster=Cluster(workers=0))
    return made.path


@pytest.mark.parametrize(
    ("name", "forge", "says"),
    [
        ("energy.parquet", lambda t: t.assign(energy_j=0.001), "energy, client 1: energy_j 0.001"),
        ("rounds.parquet", lambda t: t.assign(objective=1.0), "objective 1.0 there"),
    ],
)
def test_a_predicted_point_is_compared(
    campaign: Path, tmp_path: Path, name: str, forge: Callable[[pd.DataFrame], Any], says: str
) -> None:
    folder = Path(shutil.copytree(campaign, tmp_path / "small"))
    file = min(folder.glob(f"points/*/{name}"))
    forge(pd.read_parquet(file)).to_parquet(file, index=False)
    bundle(folder, tmp_path / "b.zip")
    done = verify(tmp_path / "b.zip", never, cluster=Cluster(workers=0))
    assert not done.ok
    assert any(says in line for line in done.lines())


@pytest.mark.parametrize(
    ("entry", "value"), [("valid", False), ("seed", 99), ("validity", [1]), ("status", "failed")]
)
def test_the_manifest_of_a_point_is_compared(
    campaign: Path, tmp_path: Path, entry: str, value: Any
) -> None:
    folder = Path(shutil.copytree(campaign, tmp_path / "small"))
    point = min(folder.glob("points/*"))
    edit(point, lambda tree: tree.update({entry: value}))
    bundle(folder, tmp_path / "b.zip")
    done = verify(tmp_path / "b.zip", never, cluster=Cluster(workers=0))
    says = f"{point.name}/manifest.json: DIFFERS: {entry} {value!r} there"
    assert any(line.startswith(says) for line in done.lines())
    assert done.to_json()["ok"] is False


def test_a_campaign_names_what_was_only_copied(campaign: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(campaign, tmp_path / "small"))
    point = min(folder.glob("points/*"))
    (point / "learning.parquet").write_bytes(b"invented")
    (folder / "results").mkdir(exist_ok=True)
    (folder / "results" / "points.parquet").write_bytes(b"invented")
    (folder / "report.html").write_text("invented")
    bundle(folder, tmp_path / "b.zip")
    done = verify(tmp_path / "b.zip", never, cluster=Cluster(workers=0))
    assert done.ok
    named = done.to_json()["not_checked"]
    for name in (
        *("points/*/learning.parquet", "campaign/results/", "campaign/report.html", "inputs/"),
        *("points/*/manifest.json: revision", "points/*/manifest.json: wall_s", "environment.json"),
    ):
        assert name in named
    (line,) = (line for line in done.lines() if line.startswith("not checked: "))
    assert "campaign/results/" in line


def test_a_model_that_only_a_points_run_names_is_not_opened(honest: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(honest, tmp_path / "0123456789abcdef"))
    named = json.loads((folder / "scenario.json").read_text())
    about = {"mode": "run", "scenario": json.dumps(named), "trace": None, "steps_rounds": 1}
    (folder / "point.json").write_text(json.dumps(about))
    (tmp_path / "config.json").write_text("{}")  # a file of this machine
    named["workload"] |= {"model": f"hf:{tmp_path}"}
    named["workload"].pop("classes", None)
    (folder / "scenario.json").write_text(json.dumps(named))
    with pytest.raises(InputError, match="which is not in the bundle"):
        _point(folder, Unpacked(tmp_path, "campaign", {}, {}))


def test_an_emulated_point_is_made_again(honest: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(honest, tmp_path / "0123456789abcdef"))
    (folder / "report.html").unlink()
    (folder / "point.json").write_text("{}")
    scenario = read_run(folder).scenario
    extent = examine_point(folder, "run", scenario)
    assert extent.differences == []
    change(folder, "energy", lambda table: table.assign(energy_j=0.001))
    assert "energy.parquet: DIFFERS" in examine_point(folder, "run", scenario).differences[0]
    refused = examine_point(folder, "run", scenario, "it needs /data, which is not in the bundle")
    assert refused.differences == []
    assert "energy.parquet: energy_j" in refused.not_checked


def test_nothing_is_compared_that_needs_what_is_not_here(packed: Path, tmp_path: Path) -> None:
    def ask(content: dict[str, bytes]) -> None:
        tree = json.loads(content["run/scenario.json"])
        tree["workload"] |= {"compute": "real", "weights": "/dev/zero"}
        content["run/scenario.json"] = json.dumps(tree).encode()

    done = verify(rewritten(packed, tmp_path / "b.zip", ask), never)
    assert isinstance(done, RunVerification)
    assert done.extent.differences == []
    why = "tables (it needs /dev/zero, which is not in the bundle)"
    assert {why, "report.html", "README.md", "energy.parquet: energy_j"} <= {
        *done.extent.not_checked
    }


def test_hostile_tables_end_in_words(forged: Path) -> None:
    rng = np.random.default_rng(1)
    ended = 0
    for name in ("measured", "decisions", "accounts", "transfers", "injector", "energy", "rounds"):
        original = (forged / f"{name}.parquet").read_bytes()
        for _ in range(1):
            table = pd.read_parquet(io.BytesIO(original))
            numbers = table.select_dtypes("number").columns
            column = str(rng.choice(numbers))
            row = int(rng.integers(len(table)))
            extreme = rng.choice([0, 1, 2**31 - 1, 10**9, -1])
            table[column] = table[column].astype(float)
            table.loc[table.index[row], column] = float(extreme)
            if table[column].eq(table[column].round()).all():
                table[column] = table[column].astype("int64")
            table.to_parquet(forged / f"{name}.parquet", index=False)
            try:
                ended += bool(differences(forged))
            except InputError:
                ended += 1
        (forged / f"{name}.parquet").write_bytes(original)
    assert ended > 3
