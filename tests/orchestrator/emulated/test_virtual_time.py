# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Runs in virtual time: exact to a microsecond, and as the command line has them otherwise."""

import json
import os
import re
import signal
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from console import TESTBED
from processes import until
from small_scenario import TEXT

import orchestrator as tb
from ns3_scenarios.trace import RateTrace
from orchestrator.campaigning.cluster import run_campaign
from orchestrator.campaigning.folder import CampaignFolder
from orchestrator.campaigning.spec import load_campaign
from orchestrator.emulated import virtual
from orchestrator.emulated.stage import share_process
from orchestrator.engine.plan import link_bytes, payload_bytes
from orchestrator.records.directory import MANIFEST
from orchestrator.scenario.loading import load
from testbed.core.errors import InputError
from testbed.host.dask_cluster import Cluster
from testbed.network.pcap import frames
from testbed.system import leftovers
from testbed.system.files import sha256_of
from testbed.system.folders import cache_folder
from testbed.virtual import guest, kernel

VIRTUAL = ["--set", "emulation.clock=virtual"]
pytestmark = pytest.mark.timeout(1200)  # PointOptions others, it is they that a guest waits for.


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    path.write_text(TEXT)
    return path


def call(*words: object, timeout_s: float = 1000) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*TESTBED, *map(str, words)], capture_output=True, text=True, timeout=timeout_s
    )


def test_both_predictions_are_compiled_before_a_guest_begins(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiling in a guest takes virtual time, so that the first run would differ."""
    sizings = []
    monkeypatch.setattr(virtual, "predict", lambda *_, sizing, rounds: sizings.append(sizing))
    virtual.prepare(load(small), None)
    assert set(sizings) == {payload_bytes, link_bytes}


@pytest.mark.parametrize(
    ("changes", "shared"),
    [
        ({}, False),
        ({"emulation.clock": "virtual"}, True),
        ({"emulation.clock": "virtual", "workload.compute": "real"}, False),
        ({"emulation.clock": "virtual", "emulation.transport": "tls"}, False),
        ({"emulation.clock": "virtual", "faults.random": {"count": 1}}, False),
    ],
    ids=str,
)
def test_uavs_share_a_process_unless_one_trains_or_may_end(
    small: Path, changes: dict[str, Any], shared: bool
) -> None:
    assert share_process(tb.load(small, {"workload.compute": "none"} | changes)) is shared


@pytest.mark.guest
def test_gradients_over_slow_uplinks_follow_each_other_as_predicted(tmp_path: Path) -> None:
    """Downlinks are 800 times as fast as uplinks, as with 1,000 UAVs: the receipt of a gradient
    waits for acknowledgements of packets, whose sizes the prediction has to know."""
    file, slots = tmp_path / "rates.npz", (2, 2000)
    RateTrace(np.full(slots, 0.24e6), np.full(slots, 200e6), 0.1).save(file)
    changes = {
        **{"uavs.count": 2, "uavs.tx_power_w": 0.4, "emulation.clock": "virtual"},
        **{"workload.compute": "none", "workload.batch_size": 1, "workload.local_iterations": 1},
        "emulation.initial_window": 150,
    }
    done = tb.run(tb.load("paper", changes), file, out=tmp_path / "run")
    assert done.valid

    def apart_s(kind: str) -> float:
        steps = pd.read_parquet(tmp_path / "run" / f"{kind}.parquet")
        return float(np.ptp(steps.loc[steps["step"] == "SG", "start_s"]))

    assert apart_s("measured") == pytest.approx(apart_s("predicted_wire"), abs=1e-5)


@pytest.mark.guest
def test_equal_runs_measure_the_same_bytes_whoever_asks_and_from_wherever(
    small: Path, tmp_path: Path
) -> None:
    out, result = tmp_path / "one", tmp_path / "one.json"
    done = call("run", small, *VIRTUAL, "--rounds", 2, "--capture", "--out", out, "--json", result)
    assert done.returncode == 0, done.stderr
    assert "valid: every check is within its limit" in done.stdout
    rounds = json.loads(result.read_text())
    for predicted, seen in zip(rounds["predicted_wire"], rounds["measured"], strict=True):
        assert seen["latency_s"] == pytest.approx(predicted["latency_s"], rel=1e-3)
    transfers = pd.read_parquet(out / "transfers.parquet")
    # Three transfers of 9 ms that start at one moment; by credit, they are off by 1.4 %.
    assert (transfers.loc[transfers["step"] == "SM", "error"].abs() < 5e-3).all()
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["clock"] == "virtual"
    assert manifest["dilation"] == 1
    found = kernel.find()
    assert found is not None
    assert manifest["virtual_kernel"] == found.to_json()
    assert "cpu_steal" not in {check["check"] for check in manifest["validity"]}

    # The Python API, from elsewhere, while the files of other runs lie about.
    other = tmp_path / "another" / "place"
    other.mkdir(parents=True)
    notes = leftovers.notes() / f"0-0-0-{os.getpid()}"
    notes.parent.mkdir(parents=True, exist_ok=True)
    notes.write_text("[]")
    try:
        scenario = tb.load(small, {"emulation.clock": "virtual"})
        again = tb.run(scenario, out=other / "two", rounds=2, capture="frames")
    finally:
        notes.unlink(missing_ok=True)
    assert again.valid
    assert not (out / "calibration.parquet").exists()
    page = (out / "report.html").read_text()
    assert "emulation.clock is virtual, so no link can be late: the links were not calib" in page
    for name in ("measured", "accounts", "transfers"):
        one, two = (folder / f"{name}.parquet" for folder in (out, other / "two"))
        assert one.read_bytes() == two.read_bytes(), name
    assert len(list(frames(out / "pcap" / "uav1.pcap"))) > 200


@pytest.mark.guest
@pytest.mark.full
@pytest.mark.parametrize("transport", ["grpc", "tls"])
def test_rounds_and_their_captures_repeat_from_elsewhere(
    small: Path, tmp_path: Path, transport: str
) -> None:
    found = []
    for place, settings in ((tmp_path / "one", ""), (tmp_path / "a" / "longer" / "way", "[")):
        place.mkdir(parents=True)
        # Whom git answers nothing, as in a folder of another user's, starts fewer programs.
        (place / ".gitconfig").write_text(settings)
        words = ["run", small, *VIRTUAL, "--set", f"emulation.transport={transport}", "--capture"]
        words += ["--out", place / "out", "--json", place / "run.json"]
        done = subprocess.run(
            [*TESTBED, *map(str, words)],
            cwd=place,
            env={**os.environ, "XDG_CACHE_HOME": str(cache_folder().parent), "HOME": str(place)},
            capture_output=True,
            text=True,
            timeout=1000,
        )
        assert done.returncode == 0, done.stderr
        captures = [place / f"out/pcap/uav{client}.pcap" for client in (1, 2, 3)]
        # OpenSSL draws by where its memory lies, too, and that moves with the length of paths.
        same = sha256_of if transport == "grpc" else lambda path: [*frames(path)]
        measured = json.loads((place / "run.json").read_text())["measured"]
        found.append((measured, [*map(same, captures)]))
    assert found[0] == found[1]


@pytest.mark.guest
@pytest.mark.full
def test_a_campaigns_workers_emulate_beside_each_other(small: Path, tmp_path: Path) -> None:
    file = tmp_path / "campaign.yaml"
    tree = {
        "name": "beside",
        "mode": "run",
        "scenario": str(small),
        "set": {"emulation.clock": "virtual", "emulation.calibrate": False},
        "studies": {"split": {"axes": {"u": {"key": "workload.split", "values": [2, 3]}}}},
    }
    file.write_text(yaml.safe_dump(tree))
    campaign, folder = load_campaign(file), CampaignFolder(tmp_path / "out")
    done = run_campaign(campaign, folder, cluster=Cluster(workers=2, pool=True))
    assert (done.made, done.failed, done.invalid) == (2, {}, 0)
    began = {json.loads(p.read_text())["process"] for p in (tmp_path / "out").rglob(MANIFEST)}
    assert len(began) == 2


def test_a_policy_that_is_a_function_is_refused_there(small: Path) -> None:
    with pytest.raises(InputError, match="`policy`: must be a name where"):
        tb.run(tb.load(small, {"emulation.clock": "virtual"}), policy=lambda situation: None)


@pytest.mark.guest
def test_a_run_is_watched_as_it_goes_and_a_closed_terminal_ends_it_in_order(
    small: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process = subprocess.Popen(
        [*TESTBED, "run", str(small), *VIRTUAL, "--rounds", "500", "--live", "--out", str(out)],
        stderr=subprocess.PIPE,
        text=True,
        # These tests may run under `nohup`, whose children outlive a terminal.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )
    assert process.stderr is not None
    found = None
    while found is None:
        line = process.stderr.readline()
        assert line, "it has ended"
        found = re.search(r"http://\S+", line)

    def state() -> dict[str, Any]:
        with urllib.request.urlopen(f"{found[0]}state?round=-1&steps=0", timeout=10) as answer:
            return dict(json.loads(answer.read()))

    until(lambda: state()["round"] >= 1, 1000)
    seen = state()
    assert seen["rounds"] == 500
    assert len(seen["latencies_s"]) >= 1
    assert {row[0] for row in seen["predicted"]} == {1, 2, 3}
    assert len(seen["position_m"]) == len(seen["up_kbps"]) == 3
    process.send_signal(signal.SIGHUP)
    rest = process.stderr.read()
    assert process.wait(600) == 129, rest
    assert rest.splitlines()[-1] == "testbed: ended by SIGHUP"
    about = json.loads((out / "manifest.json").read_text())
    assert (about["status"], about["failure"]) == ("failed", "ended by SIGHUP")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("emulation.runtime=docker", "emulation.runtime: must be 'namespace' where emulation."),
        ("workload.compute_time=measured", "workload.compute_time: must be 'modelled' where emu"),
        ("workload.clients_per_pass=2", "workload.clients_per_pass: must be 1 where emulation.cl"),
    ],
)
def test_what_has_no_meaning_in_virtual_time_is_refused(
    small: Path, override: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        load(small, ["emulation.clock=virtual", "workload.compute=real", override])


@pytest.mark.parametrize(
    "given", ["5", "0", "true", "tomorrow", "1999-12-31", "2200-01-01", "2026-11-25T10:00:00"]
)
def test_what_is_no_date_is_refused(small: Path, given: str) -> None:
    with pytest.raises(
        InputError, match=r"emulation\.virtual_date: must be a date from 2000-01-01"
    ):
        load(small, ["emulation.clock=virtual", f"emulation.virtual_date={given}"])


def test_the_date_is_for_virtual_time_alone(small: Path) -> None:
    date = "emulation.virtual_date=2026-11-25"
    with pytest.raises(
        InputError,
        match=r"emulation\.virtual_date: must be absent where emulation\.clock is 'real'",
    ):
        load(small, [date])
    scenario = load(small, ["emulation.clock=virtual", date])
    assert scenario.emulation.starts_ns == 1_795_564_800 * 10**9
    usual = load(small, ["emulation.clock=virtual", "emulation.virtual_date=2026-01-01"])
    assert usual.emulation.starts_ns == guest.STARTED_NS
    assert "virtual_date" not in usual.model_dump()["emulation"]


def test_without_a_kernel_one_line_says_how_to_get_one(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    done = call("run", small, *VIRTUAL)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("testbed: emulation.clock: 'virtual' needs a kernel")
    assert "`testbed kernel build`" in line


def test_a_real_scenario_is_written_as_before(small: Path) -> None:
    assert "clock" not in load(small).model_dump()["emulation"]
    virtual = load(small, ["emulation.clock=virtual"])
    assert virtual.model_dump()["emulation"]["clock"] == "virtual"
