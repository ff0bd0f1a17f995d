# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Run directories that are broken: one line that names what, no memory, no waiting."""

import io
import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fuzz
import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import warm
from synthetic_run import make_run, make_session

from orchestrator.records.reader import read_run
from orchestrator.records.session_reader import read_session
from orchestrator.reporting.report import render
from orchestrator.reporting.session_report import write_session_report
from testbed.core.errors import InputError


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("made") / "run")


@pytest.fixture
def run_dir(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


def refused(run_dir: Path, name: str) -> str:
    """What is said about a file of the directory, after its name."""
    with pytest.raises(InputError) as error:
        read_run(run_dir)
    line = str(error.value)
    assert "\n" not in line
    assert len(line) < 500 + len(str(run_dir))
    assert line.startswith(f"{run_dir / name}: ")
    return line.removeprefix(f"{run_dir / name}: ")


def set_value(path: Path, column: str, value: Any) -> None:
    table = pd.read_parquet(path).reset_index(drop=True)
    if isinstance(value, str):
        table[column] = table[column].astype(str)
    elif isinstance(value, float):
        table[column] = table[column].astype(float)
    table.loc[1, column] = value
    table.to_parquet(path)


VALUES = {
    ("measured", "start_s", float("nan")): "start_s: must be -1000000000 to 1000000000, not nan",
    ("measured", "end_s", float("inf")): "end_s: must be .* not inf",
    ("predicted", "end_s", 1e300): "end_s: must be .* not 1e",
    ("measured", "step", "ZZ"): "step: 'ZZ' is not one of SM, CF, CA, S, SG, CB, CM",
    ("measured", "client", 4): "client: must be 1 to 3, not 4",
    ("measured", "client", 0): "client: must be 1 to 3, not 0",
    ("measured", "client", 1.5): "client: contains double, not integers",
    ("measured", "round", 2): "round: must be 0 to 1, not 2",
    ("measured", "iteration", 4): "iteration: must be 1 to 3, not 4",
    ("measured", "start_s", "soon"): "start_s: contains .*string.*, not numbers",
    ("measured", "bytes", -1): "bytes: must be 0 to",
    ("rounds", "latency_s", float("nan")): "latency_s: must be",
    ("rounds", "round", 1): "has two rows with kind predicted, round 1",
    ("rates", "uplink_bps", float("inf")): "uplink_bps: must be",
    ("injector", "lateness_s", float("nan")): "lateness_s: must be",
    ("budget", "seconds", float("nan")): "seconds: must be",
    ("learning", "time_s", float("nan")): "time_s: must be",
    ("calibration", "error", float("inf")): "error: must be",
    ("accounts", "header_bytes", float("nan")): "header_bytes: must be",
    ("waterfall", "part", "w" * 2000): "part: contains too many or too long texts",
}


@pytest.mark.parametrize(("place", "said"), VALUES.items(), ids=str)
def test_what_no_run_has_is_refused(run_dir: Path, place: tuple[str, str, Any], said: str) -> None:
    stem, column, value = place
    if (stem, column, value) == ("rounds", "round", 1):  # rows 0 and 1 are the rounds 0 and 1
        table = pd.read_parquet(run_dir / "rounds.parquet").reset_index(drop=True)
        table.assign(round=1).to_parquet(run_dir / "rounds.parquet")
    else:
        set_value(run_dir / f"{stem}.parquet", column, value)
    line = refused(run_dir, f"{stem}.parquet")
    assert re.match(said, line), line


@pytest.mark.parametrize("stem", ["resource_blocks", "grants"])
def test_a_carrier_has_at_most_275_resource_blocks(run_dir: Path, stem: str) -> None:
    slots = {"round": 0, "slot": [0, 1], "time_s": [0.0, 0.1], "client": 1, "direction": "up"}
    own = {"active_s": 0.1, "layers": 1}
    if stem == "grants":
        own = {"blocks": 1, "granted_bytes": 1, "lost_blocks": 0, "waiting_s": 0.0}
    used = pd.DataFrame(slots | own | {"resource_blocks": 275.0, "mcs": 28})
    used.to_parquet(run_dir / f"{stem}.parquet")
    assert (read_run(run_dir).tables[stem]["resource_blocks"] == 275).all()
    set_value(run_dir / f"{stem}.parquet", "resource_blocks", 275.01)
    assert refused(run_dir, f"{stem}.parquet") == "resource_blocks: must be 0 to 275, not 275.01"


def test_a_loss_that_diverged_is_no_fault(run_dir: Path) -> None:
    set_value(run_dir / "learning.parquet", "loss", float("inf"))
    set_value(run_dir / "learning.parquet", "accuracy", float("nan"))
    assert np.isinf(read_run(run_dir).tables["learning"]["loss"]).sum() == 1


def test_a_null_is_no_number(run_dir: Path) -> None:
    table = pd.read_parquet(run_dir / "measured.parquet").astype({"bytes": "Int64"})
    table.loc[table.index[0], "bytes"] = pd.NA
    table.to_parquet(run_dir / "measured.parquet")
    assert "bytes: must be" in refused(run_dir, "measured.parquet")


def bomb(values: pa.Array, name: str, **options: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table({name: values}), out, **options)
    return out.getvalue()


def test_a_small_file_of_many_values_takes_no_memory(run_dir: Path) -> None:
    rows = 40_000_000
    part = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int8)), pa.array([1.0]))
    out = io.BytesIO()
    schema = pa.schema([("time_s", pa.float64())])
    with pq.ParquetWriter(out, schema) as writer:
        for _ in range(2):
            writer.write_table(pa.table({"time_s": part.cast(pa.float64())}, schema))
    data = out.getvalue()
    assert len(data) < 400_000
    (run_dir / "rates.parquet").write_bytes(data)
    before = psutil.Process().memory_info().rss
    assert f"claims {2 * rows * 8:,} bytes of values in a file of {len(data):,}" in refused(
        run_dir, "rates.parquet"
    )
    assert psutil.Process().memory_info().rss - before < 100e6


def test_pages_whose_size_nobody_knows_are_refused(run_dir: Path) -> None:
    zeros = pa.array(np.zeros(1_000_000))
    data = bomb(zeros, "time_s", compression="zstd", use_dictionary=False)
    (run_dir / "rates.parquet").write_bytes(data)
    assert refused(run_dir, "rates.parquet") == "is compressed with ZSTD, not with SNAPPY"


def test_long_texts_are_not_written_out(run_dir: Path) -> None:
    words = pa.array(["x" * 900] * 1_000_000)
    table = pa.table({"round": np.zeros(len(words), int), "part": words, "seconds": words})
    table = table.set_column(2, "seconds", pa.array(np.zeros(len(words))))
    pq.write_table(table, run_dir / "budget.parquet")
    assert "claims 908,000,000 bytes of values" in refused(run_dir, "budget.parquet")


def test_more_than_the_memory_that_is_free_is_refused(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = type("Memory", (), {"available": 10_000})
    monkeypatch.setattr("orchestrator.records.tables.psutil.virtual_memory", lambda: free)
    assert "bytes of memory, but only 10,000 are free" in refused(run_dir, "predicted.parquet")


@pytest.mark.parametrize("cut", [0, 4, 11, -1, -8, 200])
def test_half_a_table_is_refused(run_dir: Path, cut: int) -> None:
    path = run_dir / "measured.parquet"
    path.write_bytes(path.read_bytes()[:cut])
    assert refused(run_dir, "measured.parquet") == "is not a complete Parquet file"


def npz(**members: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return out.getvalue()


def test_a_trace_that_unfolds_is_refused_first(run_dir: Path) -> None:
    """Zeros shrink to a thousandth; the header alone tells how many there are."""
    header = io.BytesIO()
    says = {"descr": "<f8", "fortran_order": False, "shape": (3, 15_000_000)}
    np.lib.format.write_array_header_1_0(header, says)
    data = npz(gain=header.getvalue() + bytes(3 * 15_000_000 * 8), slot_s=b"")
    assert len(data) < 500_000
    (run_dir / "trace.npz").write_bytes(data)
    before = psutil.Process().memory_info().rss
    assert "gain claims 360,000,1" in refused(run_dir, "trace.npz")
    assert psutil.Process().memory_info().rss - before < 100e6


def test_a_trace_of_other_uavs_is_refused(run_dir: Path) -> None:
    np.savez(run_dir / "trace.npz", gain=np.ones((2, 9)), slot_s=0.1)
    assert refused(run_dir, "trace.npz") == "has 2 UAVs, the scenario 3"


JSON = {
    "nested": b'{"a":' * 200_000 + b"1" + b"}" * 200_000,
    "nested lists": b"[" * 200_000,
    "infinite": b'{"dilation": 1e999}',
    "not a number": b'{"anything": NaN}',
    "half a letter": b'{"cpu": "\\ud800"}',
    "not text": b'{"cpu": "\xff"}',
    "long": b'{"a": "' + b"a" * (17 << 20) + b'"}',
    "long number": b'{"a": ' + b"1" * 5000 + b"}",
    "large number": b'{"memory_bytes": ' + b"1" * 400 + b"}",
    "no object": b"[1]",
    "faults": b'{"faults": [{"kind": "uav-crash"}]}',
    "checks": b'{"validity": [{"check": "a", "limit": [1], "value": 2, "ok": true}]}',
    "words": b'{"validity": "yes"}',
    "packages": b'{"packages": ["numpy"]}',
    "valid": b'{"valid": "perhaps"}',
}


@pytest.mark.parametrize("text", JSON.values(), ids=JSON)
def test_a_broken_manifest_is_refused(run_dir: Path, text: bytes) -> None:
    (run_dir / "manifest.json").write_bytes(text)
    assert refused(run_dir, "manifest.json")


@pytest.mark.parametrize(
    "name", ["manifest.json", "scenario.json", "measured.parquet", "trace.npz"]
)
@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        os.mkdir,
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to("/proc/self/maps"),
        lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 1 << 42),
    ],
    ids=["pipe", "folder", "device", "endless", "sparse"],
)
def test_what_is_no_file_is_not_waited_for(
    run_dir: Path, name: str, make: Callable[[Path], None]
) -> None:
    (run_dir / name).unlink()
    make(run_dir / name)
    assert refused(run_dir, name)


@pytest.mark.parametrize("words", [["report"], ["perfetto", "--out", "trace.json"]])
def test_commands_refuse_in_one_line_and_write_nothing(
    run_dir: Path, tmp_path: Path, words: list[str]
) -> None:
    set_value(run_dir / "measured.parquet", "start_s", float("nan"))
    before = sorted(tmp_path.rglob("*"))
    done = warm.run(words[0], run_dir, *words[1:], cwd=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"testbed: {run_dir / 'measured.parquet'}: start_s: must be")
    assert done.stdout == ""
    assert sorted(tmp_path.rglob("*")) == before


def test_nothing_but_named_refusals() -> None:
    outcomes, crashes = fuzz.folders(60, seed=4)
    assert crashes == []
    assert sum(outcomes.values()) == 60
    assert 0 < outcomes["taken"] < 60


def test_a_check_without_a_verdict_was_not_judged(run_dir: Path) -> None:
    manifest = json.loads((run_dir / "manifest.json").read_text())
    del manifest["validity"][0]["ok"]
    (run_dir / "manifest.json").write_text(json.dumps(manifest))
    assert "? not judged" in render(read_run(run_dir))


def test_a_number_is_no_text(run_dir: Path) -> None:
    table = pd.read_parquet(run_dir / "measured.parquet")
    table.assign(paradigm=7).to_parquet(run_dir / "measured.parquet")
    assert refused(run_dir, "measured.parquet") == "paradigm: contains int64, not texts"


PROGRAM = {"node": "uav1", "argv": ["true"], "start_s": 0, "end_s": 1, "status": 0}
OF_SESSIONS = [
    ({"kind": "run"}, "kind: must be 'session', not 'run'"),
    ({"downlink": 3}, "downlink: "),
    ({"valid": "yes"}, "valid: "),
    ({"validity": [{"check": "exhausted_slots", "limit": 0}]}, r"validity\.0\.value: "),
    ({"validity": 7}, "validity: "),
    ({"programs": [PROGRAM]}, r"programs\.0\.stopped: "),
    ({"programs": [PROGRAM | {"stopped": False, "argv": "true"}]}, r"programs\.0\.argv: "),
    ({"programs": [PROGRAM | {"stopped": False, "end_s": "late"}]}, r"programs\.0\.end_s: "),
    ({"calibration": [{"direction": "uplink"}]}, r"calibration\.0\.level: "),
]


@pytest.mark.parametrize(("entry", "said"), OF_SESSIONS, ids=str)
def test_what_no_manifest_of_a_session_has_is_refused(
    tmp_path: Path, entry: dict[str, Any], said: str
) -> None:
    manifest = make_session(tmp_path / "s") / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | entry))
    with pytest.raises(InputError) as error:
        write_session_report(tmp_path / "s")
    assert re.fullmatch(f"{re.escape(str(manifest))}: {said}.*", str(error.value))
    assert not (tmp_path / "s/report.html").exists()


def test_a_session_has_no_row_twice(tmp_path: Path) -> None:
    path = make_session(tmp_path / "s") / "session.parquet"
    table = pd.read_parquet(path)
    pd.concat([table, table[:1]]).to_parquet(path)
    with pytest.raises(InputError, match=r"session\.parquet: has two rows with slot 0, client 1"):
        read_session(tmp_path / "s")


def test_a_sparse_manifest_of_a_session_has_a_page(tmp_path: Path) -> None:
    """Whatever is optional may be missing, and checks may be unknown."""
    make_session(tmp_path / "s")
    check = {"check": "of_tomorrow", "limit": 1, "value": 2}
    (tmp_path / "s/manifest.json").write_text(json.dumps({"validity": [check]}))
    assert "of_tomorrow" in write_session_report(tmp_path / "s").read_text(encoding="utf-8")


def test_sessions_that_are_broken_in_any_way_are_refused_by_name() -> None:
    outcomes, crashes = fuzz.sessions(60, seed=4)
    assert crashes == []
    assert 20 < outcomes["InputError"] < 60
