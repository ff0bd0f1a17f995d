# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Bundles: what is in one, that it is checked before it is believed, and what verifying says."""

import hashlib
import io
import json
import re
import shutil
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from forged_bundle import rewritten
from small_campaign import write_campaign
from synthetic_run import make_run

from ns3_scenarios.trace import load_trace
from orchestrator.archive.bundle import SUMS, bundle
from orchestrator.archive.unpack import unpack
from orchestrator.archive.verify import CampaignVerification, RunVerification, verify
from orchestrator.campaigning.cluster import run_campaign
from orchestrator.campaigning.folder import CampaignFolder
from orchestrator.campaigning.spec import load_campaign
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError, RunError
from testbed.host.dask_cluster import Cluster

HERE = Cluster(workers=0)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("made") / "run")


@pytest.fixture(scope="module")
def packed(run_dir: Path) -> Path:
    bundle(run_dir, run_dir.with_name("run.zip"))
    return run_dir.with_name("run.zip")


@pytest.fixture(scope="module")
def campaign_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("campaign")
    made = CampaignFolder(folder / "small")
    run_campaign(load_campaign(write_campaign(folder)), made, cluster=HERE)
    return made.path


def never(scenario: Scenario, trace: Path, folder: Path) -> None:
    raise AssertionError("emulated")


def test_a_bundle_says_what_is_in_it_and_is_the_same_each_time(run_dir: Path, packed: Path) -> None:
    again = packed.with_name("again.zip")
    bundle(run_dir, again)
    assert again.read_bytes() == packed.read_bytes()
    with zipfile.ZipFile(packed) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    sums = dict(line.split("  ")[::-1] for line in content.pop(SUMS).decode().splitlines())
    assert sums == {name: hashlib.sha256(data).hexdigest() for name, data in content.items()}
    for path in run_dir.iterdir():
        assert content[f"run/{path.name}"] == path.read_bytes()
    assert {"CITATION.cff", "README.md", "environment.json", "inputs.json"} <= content.keys()
    graph = json.loads(content["ro-crate-metadata.json"])["@graph"]
    entities = {entity["@id"]: entity for entity in graph}
    assert len(entities) == len(graph)
    root, action = entities["./"], entities["#action"]
    assert {part["@id"] for part in root["hasPart"]} == content.keys() - {"ro-crate-metadata.json"}
    for part in root["hasPart"]:
        assert entities[part["@id"]]["sha256"] == sums[part["@id"]]
    assert root["mainEntity"] == action["instrument"] == {"@id": "run/scenario.json"}
    assert "ComputationalWorkflow" in entities["run/scenario.json"]["@type"]
    assert action["object"] == {"@id": "run/trace.npz"}
    assert {"@id": "run/measured.parquet"} in action["result"]
    assert action["startTime"] == "2026-11-21T08:00:00+00:00"
    named = re.findall(r'"@id": "([^"]*)"', json.dumps(graph))
    assert {id_ for id_ in named if not id_.startswith("http")} <= entities.keys()


def test_a_run_is_predicted_again_bit_for_bit(packed: Path) -> None:
    done = verify(packed, never, sample=0)
    assert isinstance(done, RunVerification)
    assert done.ok
    assert done.predicted == {"predicted": "", "predicted_wire": ""}
    lines = list(done.lines())
    assert lines[:2] == [f"{k}: 2 rounds equal bit for bit" for k in done.predicted]
    assert "environment: python: 3.11.99 there" in "\n".join(lines)
    assert json.loads(json.dumps(done.to_json()))["not_emulated"] == "no sample was requested"


@pytest.mark.parametrize("column", ["start_s", "bytes"])
def test_a_prediction_that_was_touched_up_is_found(
    packed: Path, tmp_path: Path, column: str
) -> None:
    def touch(content: dict[str, bytes]) -> None:
        table = pd.read_parquet(io.BytesIO(content["run/predicted_wire.parquet"]))
        table.loc[table.index[7], column] += 1e-6 if column == "start_s" else 1
        buffer = io.BytesIO()
        table.to_parquet(buffer)
        content["run/predicted_wire.parquet"] = buffer.getvalue()

    done = verify(rewritten(packed, tmp_path / "b.zip", touch), never, sample=0)
    assert isinstance(done, RunVerification)
    assert not done.ok
    assert done.predicted["predicted"] == ""
    assert f"DIFFERS, round 0: {column}" in done.predicted["predicted_wire"]


def slower(run_dir: Path, by: dict[str, float]) -> Callable[[Scenario, Path, Path], None]:
    """An emulation whose rounds take longer, for these parts of the budget."""

    def emulate(scenario: Scenario, trace: Path, folder: Path) -> None:
        assert scenario.rounds == 1
        assert load_trace(trace).uavs == 3
        shutil.copytree(run_dir, folder)
        rounds = pd.read_parquet(folder / "rounds.parquet")
        rounds = rounds[rounds["round"] < scenario.rounds]
        rounds.loc[rounds["kind"] == "measured", "latency_s"] += sum(by.values())
        rounds.to_parquet(folder / "rounds.parquet")
        budget = pd.read_parquet(folder / "budget.parquet")
        budget["seconds"] += budget["part"].map(by).fillna(0.0)
        budget.to_parquet(folder / "budget.parquet")

    return emulate


def test_what_a_round_differs_by_is_told_by_parts(run_dir: Path, packed: Path) -> None:
    done = verify(packed, slower(run_dir, {"compute": 0.2, "injection": -0.05}), clock="virtual")
    assert isinstance(done, RunVerification)
    assert done.ok
    (measured,) = done.measured
    assert measured.here_s - measured.there_s == pytest.approx(0.15)
    assert sum(measured.parts_s.values()) == pytest.approx(0.15)
    (line,) = (line for line in done.lines() if line.startswith("measured"))
    assert "in virtual time" in line
    assert line.endswith(": compute +200.0 ms, injection -50.0 ms")
    done = verify(packed, slower(run_dir, {"rest": 0.06 * measured.there_s}))
    assert not done.ok
    assert any("DIFFERS: rest" in line for line in done.lines())


def test_a_machine_that_cannot_emulate_still_verifies(packed: Path) -> None:
    def fails(scenario: Scenario, trace: Path, folder: Path) -> None:
        raise RunError("no namespaces here")

    done = verify(packed, fails)
    assert done.ok
    assert "not emulated again: no namespaces here" in list(done.lines())


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"data.source": "/etc/shadow"}, "it needs /etc/shadow"),
        ({"weights": "/dev/zero"}, "it needs /dev/zero"),
    ],
)
def test_nothing_of_this_machine_is_read_for_a_bundle(
    packed: Path, tmp_path: Path, keys: dict[str, str], why: str
) -> None:
    def ask(content: dict[str, bytes]) -> None:
        tree = json.loads(content["run/scenario.json"])
        tree["workload"]["compute"] = "real"
        if "weights" in keys:
            tree["workload"]["weights"] = keys["weights"]
        else:
            tree["workload"]["data"]["source"] = keys["data.source"]
        content["run/scenario.json"] = json.dumps(tree).encode()

    done = verify(rewritten(packed, tmp_path / "b.zip", ask), never)
    assert isinstance(done, RunVerification)
    assert done.not_emulated == f"{why}, which is not in the bundle"


def test_an_image_that_a_bundle_names_is_not_run(packed: Path, tmp_path: Path) -> None:
    def ask(content: dict[str, bytes]) -> None:
        tree = json.loads(content["run/scenario.json"])
        tree["emulation"] |= {"runtime": "docker", "docker_image": "evil"}
        content["run/scenario.json"] = json.dumps(tree).encode()

    done = verify(rewritten(packed, tmp_path / "b.zip", ask), never)
    assert isinstance(done, RunVerification)
    assert done.not_emulated == "it needs the image evil, which is not trusted"


def test_a_run_that_failed_is_not_bundled(run_dir: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run_dir, tmp_path / "run"))
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps(manifest | {"status": "failed"}))
    with pytest.raises(InputError, match="its status is 'failed'"):
        bundle(copy, tmp_path / "b.zip")
    assert not (tmp_path / "b.zip").exists()
    (copy / "manifest.json").write_text(json.dumps(manifest))
    (copy / "secrets").symlink_to("/etc")
    with pytest.raises(InputError, match="secrets: is not a regular file"):
        bundle(copy, tmp_path / "b.zip")


# --- campaigns ------------------------------------------------------------------------------------


def test_a_campaign_brings_its_trace_and_is_computed_again_elsewhere(
    campaign_dir: Path, tmp_path: Path
) -> None:
    packed = tmp_path / "campaign.zip"
    assert bundle(campaign_dir, packed) == []
    trace = campaign_dir.parent / "trace.npz"
    aside = trace.rename(tmp_path / "aside.npz")
    try:
        done = verify(packed, never, cluster=HERE)
    finally:
        aside.rename(trace)
    assert isinstance(done, CampaignVerification)
    assert done.ok
    assert not done.skipped
    assert next(iter(done.lines())) == "8 points equal bit for bit"


def test_a_points_number_that_was_touched_up_is_found(campaign_dir: Path, tmp_path: Path) -> None:
    bundle(campaign_dir, tmp_path / "campaign.zip")

    def touch(content: dict[str, bytes]) -> None:
        name = min(name for name in content if name.endswith("rounds.parquet"))
        table = pd.read_parquet(io.BytesIO(content[name]))
        table["latency_s"] *= 0.99
        buffer = io.BytesIO()
        table.to_parquet(buffer)
        content[name] = buffer.getvalue()

    done = verify(
        rewritten(tmp_path / "campaign.zip", tmp_path / "b.zip", touch), never, cluster=HERE
    )
    assert not done.ok
    assert done.points is not None
    assert [r.verdict for r in done.points.replays].count("differs") == 1


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("point.json", b"{}"),
        ("point.json", b"[" * 200_000),
        ("manifest.json", b"[]"),
        ("rounds.parquet", b"PAR1"),
        ("rounds.parquet", None),
    ],
)
def test_a_broken_point_is_refused_in_one_line(
    campaign_dir: Path, tmp_path: Path, name: str, data: bytes | None
) -> None:
    bundle(campaign_dir, tmp_path / "campaign.zip")

    def spoil(content: dict[str, bytes]) -> None:
        path = min(path for path in content if path.endswith(f"/{name}") and "points" in path)
        if data is None:
            del content[path]
        else:
            content[path] = data

    spoilt = rewritten(tmp_path / "campaign.zip", tmp_path / "b.zip", spoil)
    with pytest.raises(InputError) as error:
        verify(spoilt, never, cluster=HERE)
    line = str(error.value)
    assert line.startswith(f"{spoilt}: campaign/points/")
    assert len(line) < 500 + len(str(tmp_path))
    assert "\n" not in line


# --- hostile files --------------------------------------------------------------------------------


def entry(name: str, mode: int = stat.S_IFREG | 0o644) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = mode << 16
    return info


def hostile(folder: Path, *entries: tuple[zipfile.ZipInfo, bytes]) -> Path:
    sums = "".join(
        f"{hashlib.sha256(data).hexdigest()}  {info.filename}\n" for info, data in entries
    )
    path = folder / "hostile.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for info, data in [*entries, (entry(SUMS), sums.encode())]:
            archive.writestr(info, data, zipfile.ZIP_DEFLATED)
    return path


def refused(path: Path) -> str:
    with pytest.raises(InputError) as error:
        verify(path, never)
    line = str(error.value)
    assert line.startswith(f"{path}: ")
    assert "\n" not in line
    return line.removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("../evil", "leads outside the folder"),
        ("run/../../evil", "leads outside the folder"),
        ("/tmp/evil", "leads outside the folder"),
        ("run//x", "leads outside the folder"),
        ("./run", "leads outside the folder"),
        ("run\\evil", "is not a valid file name"),
        ("run/\x1b[31m", "is not a valid file name"),
        ("run/" + "x" * 300, "is not a valid file name"),
        ("run/", "leads outside the folder"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_names_that_lead_elsewhere(tmp_path: Path, name: str, why: str) -> None:
    (inner := tmp_path / "inner").mkdir()
    assert why in refused(hostile(inner, (entry(name), b"evil")))
    assert {path.name for path in tmp_path.rglob("*")} == {"inner", "hostile.zip"}


@pytest.mark.parametrize("mode", [stat.S_IFLNK | 0o777, stat.S_IFCHR | 0o666, stat.S_IFDIR])
def test_links_and_devices(tmp_path: Path, mode: int) -> None:
    assert "is not a regular file" in refused(hostile(tmp_path, (entry("run", mode), b"/etc")))


def test_a_file_that_is_a_folder_too(tmp_path: Path) -> None:
    path = hostile(tmp_path, (entry("run"), b""), (entry("run/x"), b""))
    assert "'run' is both file and folder" in refused(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_entries_of_one_name(tmp_path: Path) -> None:
    assert "has two entries 'a'" in refused(hostile(tmp_path, (entry("a"), b""), (entry("a"), b"")))


def test_a_bomb_is_not_unfolded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.archive.unpack.SAFE_BYTES", 1 << 20)
    path = hostile(tmp_path, (entry("run/zeros"), bytes(32 << 20)))
    assert path.stat().st_size < 100_000
    assert "expands from" in refused(path)


def test_a_file_that_is_longer_than_it_says(tmp_path: Path) -> None:
    path = hostile(tmp_path, (entry("run/zeros"), bytes(1 << 20)))
    data = bytearray(path.read_bytes())
    at = data.index(b"PK\x01\x02")
    data[at + 24 : at + 28] = (1000).to_bytes(4, "little")
    path.write_bytes(data)
    assert "zip file, or is broken" in refused(path) or "does not have its digest" in refused(path)


def test_entries_that_lie_over_each_other(tmp_path: Path) -> None:
    path = hostile(tmp_path, (entry("a"), b"x" * 50), (entry("b"), b"y" * 50))
    data = bytearray(path.read_bytes())
    second = data.index(b"PK\x01\x02", data.index(b"PK\x01\x02") + 4)
    data[second + 42 : second + 46] = (0).to_bytes(4, "little")
    path.write_bytes(data)
    assert "overlapping zip entries" in refused(path)


def test_a_changed_byte_is_found(packed: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(packed) as archive, zipfile.ZipFile(other, "w") as changed:
        for name in archive.namelist():
            data = archive.read(name)
            changed.writestr(name, data[:-1] + b" " if name == "run/scenario.json" else data)
    assert "run/scenario.json: does not have its digest in SHA256SUMS" in refused(other)


@pytest.mark.parametrize("name", ["run/extra", "manifest"])
def test_files_and_digests_are_the_same(packed: Path, tmp_path: Path, name: str) -> None:
    other = Path(shutil.copy(packed, tmp_path / "other.zip"))
    with zipfile.ZipFile(other, "a") as archive:
        archive.writestr(name, "x")
    assert refused(other) == f"'{name}' is not in SHA256SUMS"


@pytest.mark.parametrize("place", ["../../etc/passwd", "/etc/passwd", "inputs/none", "run", 3])
def test_inputs_are_those_of_the_bundle(packed: Path, tmp_path: Path, place: Any) -> None:
    def point(content: dict[str, bytes]) -> None:
        content["inputs.json"] = json.dumps({"/data": place}).encode()

    other = rewritten(packed, tmp_path / "other.zip", point)
    assert "is not in the bundle" in refused(other)


def test_what_is_no_bundle(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    assert "not a zip file" in refused(tmp_path / "text")
    assert "cannot be read" in refused(tmp_path / "none")
    assert "not a regular file" in refused(Path("/dev/zero"))
    with zipfile.ZipFile(tmp_path / "empty.zip", "w") as archive:
        archive.writestr("x", "y")
    assert "is not a bundle" in refused(tmp_path / "empty.zip")


def test_fuzzed_bundles_never_end_in_a_traceback(packed: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    original = packed.read_bytes()
    said = []
    for index in range(150):
        data = bytearray(original)
        tail = rng.random() < 0.6  # the directory, where a zip says what it holds
        low = len(data) - 3000 if tail else 0
        for at in rng.integers(low, len(data), rng.integers(1, 6)):
            data[at] = rng.integers(256)
        if rng.random() < 0.2:
            del data[int(rng.integers(len(data))) :]
        path = tmp_path / "fuzzed.zip"
        path.write_bytes(data)
        (folder := tmp_path / str(index)).mkdir()
        try:
            unpack(path, folder)
        except InputError as error:
            said.append(str(error))
        shutil.rmtree(folder)
    assert len(said) > 100
    assert all(line.startswith(f"{path}: ") and "\n" not in line for line in said)
