# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Campaigns run: spread, stored whole, resumed, kept from each other, and none twice."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import distributed
import pandas as pd
import psutil
import pytest
import warm
import yaml
from small_campaign import ROOT, campaign_tree, write_campaign

from orchestrator.campaigning import cluster as campaign_run
from orchestrator.campaigning.cluster import Outcome, run_campaign
from orchestrator.campaigning.folder import CampaignFolder, distinct, manifest_of
from orchestrator.campaigning.spec import cells, load_campaign
from orchestrator.scenario.unused import _log_once
from testbed.core.errors import InputError, RunError
from testbed.host.dask_cluster import Cluster


def run(file: Path, folder: Path, workers: int = 0) -> Outcome:
    """In this process, where it does not matter who computes: workers take seconds to come up."""
    return run_campaign(
        load_campaign(file), CampaignFolder(folder), cluster=Cluster(workers=workers)
    )


def content(folder: Path) -> dict[str, bytes]:
    """Everything that a point's numbers are in."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted((folder / "points").rglob("*"))
        if path.suffix == ".parquet" or path.name == "point.json"
    }


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished campaign; small.yaml is beside it."""
    base = tmp_path_factory.mktemp("small")
    (base / "temporary").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(base / "temporary"))
        outcome = run(write_campaign(base), base / "done", workers=2)
    assert outcome == Outcome(points=8, made=8, failed={}, invalid=0)
    return base / "done"


def test_workers_leave_no_temporary_files(small: Path) -> None:
    assert list((small.parent / "temporary").iterdir()) == []


def test_finished_points_hold_their_rounds_steps_and_what_made_them(small: Path) -> None:
    points = distinct(cells(load_campaign(small)))
    finished = CampaignFolder(small).finished(points.values())
    assert len(finished) == len(points) == 8
    for id_, path in finished.items():
        assert path.name == id_
        scenario = points[id_].scenario
        rounds = pd.read_parquet(path / "rounds.parquet")
        assert rounds["round"].tolist() == [0, 1, 2]
        assert set(rounds["paradigm"]) == {scenario.paradigm}
        steps = pd.read_parquet(path / "predicted.parquet")
        assert set(steps["round"]) == {0}
        manifest = manifest_of(path)
        assert manifest["seed"] == scenario.seed
        assert {"revision", "dirty", "source_sha256", "kernel", "cpu"} <= set(manifest)
        assert {"sysctls", "packages", "python", "host", "wall_s"} <= set(manifest)
        assert (manifest["status"], manifest["valid"]) == ("complete", True)


def test_points_of_a_time_when_scenarios_had_fewer_keys_are_found(
    tmp_path: Path, small: Path
) -> None:
    shutil.copytree(small, tmp_path / "old")
    for number, path in enumerate(sorted((tmp_path / "old" / "points").iterdir())):
        about = json.loads((path / "point.json").read_text())
        scenario = json.loads(about["scenario"])
        del scenario["emulation"]["mtu"]
        about["scenario"] = json.dumps(scenario)
        (path / "point.json").write_text(json.dumps(about))
        path.rename(path.with_name(f"{number:016x}"))
    folder = CampaignFolder(tmp_path / "old")
    assert len(folder.finished(distinct(cells(folder.campaign())).values())) == 8
    assert run(tmp_path / "old", tmp_path / "old").made == 0


def test_a_finished_campaign_computes_nothing_again(small: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (small / "points").rglob("*")}
    assert run(small, small) == Outcome(points=8, made=0, failed={}, invalid=0)
    assert before == {path: path.stat().st_mtime_ns for path in (small / "points").rglob("*")}


@pytest.mark.parametrize("name", ["manifest.json", "point.json", "rounds.parquet"])
def test_a_damaged_point_is_computed_again(
    tmp_path: Path, small: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    shutil.copytree(small, tmp_path / "cut")
    file = sorted((tmp_path / "cut" / "points").iterdir())[0] / name
    before = pd.read_parquet(file.with_name("rounds.parquet"))
    os.truncate(file, 30)
    assert run(tmp_path / "cut", tmp_path / "cut") == Outcome(8, 1, {}, 0)
    assert any(
        str(file) in line and "computes this point again" in line for line in caplog.messages
    )
    pd.testing.assert_frame_equal(pd.read_parquet(file.with_name("rounds.parquet")), before)
    assert run(tmp_path / "cut", tmp_path / "cut").made == 0


def test_keys_of_a_campaign_without_effect_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _log_once.cache_clear()
    tree = campaign_tree(tmp_path, repeats=[1])
    tree["studies"]["split"]["emulate"] = {"set": {"rounds": 1}}
    tree["scenario"]["links"] = {"queue": "pie"}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(tree))
    run(tmp_path / "c.yaml", tmp_path / "out")
    assert "studies.split.emulate: no effect; the mode is 'predict'" in caplog.messages
    assert "links.queue: no effect; only the emulation has queues" in caplog.messages


def test_a_campaign_that_grew_computes_what_is_new(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "orchestrator.scenario.channel")
    file = write_campaign(tmp_path, repeats=[1])
    assert run(file, tmp_path / "out").made == 4
    assert len([line for line in caplog.messages if "trace.npz: 2 UAVs, " in line]) == 1
    write_campaign(tmp_path, repeats=[1, 2])
    assert run(file, tmp_path / "out").made == 4
    assert load_campaign(tmp_path / "out").repeats == [1, 2]


def test_what_failed_is_remembered_and_tried_again(tmp_path: Path) -> None:
    # The trace ends within the rounds that the long points ask for.
    tree = campaign_tree(tmp_path)
    tree["studies"]["split"]["axes"] = {"rounds": [2, 100_000]}
    tree["studies"]["split"] |= {"compare": None, "plot": []}
    tree["set"] = {}
    with pytest.raises(InputError, match="column of the results"):
        load_campaign(write_campaign(tmp_path, studies=tree["studies"]))
    tree["studies"]["split"]["axes"] = {"n": {"key": "rounds", "values": [2, 100_000]}}
    file = write_campaign(tmp_path, studies=tree["studies"], set={}, repeats=[1])
    for _ in range(2):
        outcome = run(file, tmp_path / "out")
        (why,) = outcome.failed.values()
        assert "give a longer trace" in why
    assert (outcome.points, outcome.made) == (2, 0)
    folder = CampaignFolder(tmp_path / "out")
    points = distinct(cells(folder.campaign()))
    (failure,) = folder.failures(points.values()).values()
    assert failure["failure"] == why
    assert len(folder.finished(points.values())) == 1


def test_one_orchestration_at_a_time(tmp_path: Path, small: Path) -> None:
    folder = CampaignFolder(small)
    with folder.held(folder.campaign()):
        done = warm.run("campaign", "run", small)
    assert done.returncode == 2
    assert f"process {os.getpid()} already uses" in done.stderr


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("x")
    with pytest.raises(InputError, match="contains no campaign"):
        run(write_campaign(tmp_path), tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["thesis.tex"]


def test_links_in_a_folder_that_others_may_write_are_not_followed(tmp_path: Path) -> None:
    campaign, folder = load_campaign(write_campaign(tmp_path)), CampaignFolder(tmp_path / "out")
    with folder.held(campaign):
        pass
    precious = tmp_path / "precious"
    (precious / ".thesis.part").mkdir(parents=True)
    (precious / "thesis.tex").write_text("all of it")
    lock, points = tmp_path / "out" / ".lock", tmp_path / "out" / "points"
    lock.unlink()
    lock.symlink_to(precious / "thesis.tex")
    with pytest.raises(InputError, match="cannot be written"), folder.held(campaign):
        pass
    assert (precious / "thesis.tex").read_text() == "all of it"
    lock.unlink()
    points.rmdir()
    points.symlink_to(precious)
    with pytest.raises(InputError, match="points is a symbolic link"), folder.held(campaign):
        pass
    assert (precious / ".thesis.part").is_dir()
    points.unlink()
    with folder.held(campaign):
        (points / ".a.part").symlink_to(precious)
        folder.store("a", {"rounds.parquet": b"PAR1"})
    assert not (precious / "rounds.parquet").exists()


def killed_until_done(file: Path, folder: Path, moments_s: list[float]) -> int:
    """Run the campaign, kill it at each of the moments; answers how many were killed in time."""
    words = [sys.executable, "-m", "orchestrator", "campaign", "run", file, "--out", folder]
    killed = 0
    for moment_s in [*moments_s, None]:
        process = subprocess.Popen(
            words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        try:
            _, said = process.communicate(timeout=moment_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            killed += 1
        else:
            assert process.returncode == 0, said
    return killed


@pytest.mark.full
def test_killed_and_gone_on_with_it_is_as_if_nothing_had_been(tmp_path: Path, small: Path) -> None:
    file = small.parent / "small.yaml"
    assert killed_until_done(file, tmp_path / "out", [2.5, 3.5, 4.5]) >= 1
    assert content(tmp_path / "out") == content(small)
    assert not list((tmp_path / "out" / "points").glob(".*"))


def test_half_written_points_are_not_seen(tmp_path: Path, small: Path) -> None:
    file = small.parent / "small.yaml"
    assert run(file, tmp_path / "out").made == 8
    point = next((tmp_path / "out" / "points").iterdir())
    point.rename(point.with_name(f".{point.name}.part"))
    (point.with_name(f".{point.name}.part") / "rounds.parquet").write_bytes(b"PAR1")
    assert run(file, tmp_path / "out").made == 1
    assert content(tmp_path / "out") == content(small)


@pytest.mark.full
def test_workers_die_with_a_killed_orchestrator(tmp_path: Path, small: Path) -> None:
    file = write_campaign(tmp_path, set={"rounds": 60}, repeats=list(range(1, 200)))
    words = ["campaign", "run", str(file), "--out", str(tmp_path / "out")]
    process = subprocess.Popen([sys.executable, "-m", "orchestrator", *words])
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("out/points/*")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) >= 2
    process.send_signal(signal.SIGKILL)
    process.wait()
    _, alive = psutil.wait_procs(children, timeout=20)
    assert not alive
    stored = list((tmp_path / "out" / "points").glob("[!.]*"))
    assert stored
    for folder in stored:
        assert json.loads((folder / "manifest.json").read_text())["status"] == "complete"
        assert len(pd.read_parquet(folder / "rounds.parquet")) == 60


@pytest.mark.parametrize(
    ("victim", "words"),
    [
        ("worker", r"no worker is left after waiting for 0\.2 s"),
        ("scheduler", "lost the connection to the scheduler$"),
    ],
)
def test_a_campaign_whose_workers_or_scheduler_are_lost_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, victim: str, words: str
) -> None:
    monkeypatch.setattr(campaign_run, "CHECK_INTERVAL_S", 0.1)
    dask = [sys.executable, "-m", "distributed.cli"]
    connect = ["--scheduler-file", str(tmp_path / "scheduler.json")]
    here = ["--host", "127.0.0.1", "--no-dashboard"]
    commands = {
        "scheduler": [*dask[:-1], f"{dask[-1]}.dask_scheduler", *here, "--port", "0", *connect],
        "worker": [*dask[:-1], f"{dask[-1]}.dask_worker", *here, "--no-nanny", *connect],
    }
    processes = {
        name: subprocess.Popen(command, stderr=subprocess.DEVNULL)
        for name, command in commands.items()
    }

    def kill(done: int, total: int) -> None:
        if done:
            # A scheduler that has just died still seems to be there, without workers.
            monkeypatch.setattr(
                campaign_run, "NO_WORKER_TIMEOUT_S", 0.2 if victim == "worker" else 30.0
            )
            processes[victim].kill()
            processes[victim].wait()

    try:
        address = tmp_path / "scheduler.json"
        deadline = time.monotonic() + 60
        while not address.exists():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        cluster = Cluster(json.loads(address.read_text())["address"])
        with distributed.Client(cluster.scheduler) as client:
            client.wait_for_workers(1, timeout=60)
        # Points that take a while: the planner decides on each of their rounds.
        slow = {"rounds": 3, "allocation.policy": "planner"}
        campaign = load_campaign(write_campaign(tmp_path, repeats=list(range(1, 101)), set=slow))
        with pytest.raises(RunError, match=f"^campaign: {words}"):
            run_campaign(campaign, CampaignFolder(tmp_path / "out"), cluster=cluster, progress=kill)
    finally:
        for process in processes.values():
            process.kill()
            process.wait()
    stored = list((tmp_path / "out" / "points").glob("[!.]*"))
    assert 0 < len(stored) < len(distinct(cells(campaign)))


@pytest.mark.full
def test_a_worker_of_another_network_is_lost_midway(tmp_path: Path, small: Path) -> None:
    """A scheduler and two workers in namespaces of their own; nothing is lost, nothing twice."""
    enter = ["unshare", "--user", "--map-root-user", "--net", "--pid", "--mount-proc"]
    enter += ["--fork", "--kill-child"]
    if subprocess.run([*enter, "true"], capture_output=True).returncode != 0:
        pytest.skip("this machine allows no user namespaces")
    file = write_campaign(tmp_path, repeats=list(range(1, 26)), set={"rounds": 30})
    script = ROOT / "tests" / "support" / "dask_over_namespaces.py"
    done = subprocess.run(
        [*enter, sys.executable, script, file, tmp_path / "spread"],
        stdout=subprocess.PIPE,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["points"], found["made"], found["failed"]) == (100, 100, {})
    assert found["stored_twice"] == 0
    assert found["lost_worker_status"] == -signal.SIGKILL
    assert len(found["by_process"]) == 2
    # Nothing of this machine's; the lost worker's link ended with its namespace.
    assert set(found["links"]) <= {"here1", "here2", "lo"}
    # As if one machine had done it.
    assert run(file, tmp_path / "one").made == 100
    assert content(tmp_path / "spread") == content(tmp_path / "one")
