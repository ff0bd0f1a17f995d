# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a point comes to, and what a worker keeps of one that takes long."""

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from processes import family, gone, until
from small_campaign import ROOT, campaign_tree, write_campaign

from ns3_scenarios.trace import Replay, load_trace
from orchestrator.campaigning.cluster import _jobs, compute_points, plain_point, run_campaign
from orchestrator.campaigning.folder import CampaignFolder
from orchestrator.campaigning.spec import Campaign, cells, load_campaign, narrowed
from orchestrator.campaigning.verify import verify
from orchestrator.campaigning.worker import Files, play
from orchestrator.records.manifest import source_sha256
from orchestrator.rounds.loop import predict
from orchestrator.scenario.profiles import profile_of
from testbed.host.dask_cluster import Cluster, has_worker

PAPER = load_campaign(ROOT / "campaigns" / "paper.yaml")


def small(folder: Path, **changes: Any) -> Campaign:
    return load_campaign(write_campaign(folder, **changes))


def table(files: Files, name: str) -> pd.DataFrame:
    return pd.read_parquet(io.BytesIO(files[f"{name}.parquet"]))


def test_rounds_computed_at_once_are_those_of_the_prediction_bit_for_bit(tmp_path: Path) -> None:
    campaign = small(tmp_path, steps_rounds=2)
    source = Replay(load_trace(tmp_path / "trace.npz"))
    points = {cell.point.id: cell.point for cell in cells(campaign)}
    for answer in compute_points(list(points.values()), 1, Cluster(workers=0)):
        scenario = points[answer["id"]].scenario
        timeline = predict(scenario, source, profile_of(scenario))
        rounds = table(answer["files"], "rounds")
        pd.testing.assert_frame_equal(
            rounds, timeline.summary().assign(kind="predicted"), check_exact=True
        )
        energy = table(answer["files"], "energy")
        wanted_j = np.mean([round_.energy_j for round_ in timeline], axis=0)
        assert energy["energy_j"].tolist() == wanted_j.tolist()
        assert set(table(answer["files"], "predicted")["round"]) == {0, 1}


def test_what_goes_wrong_is_predicted_round_by_round(tmp_path: Path) -> None:
    fault = {"kind": "slow-node", "nodes": ["uav1"], "round": 1, "at_s": 0, "duration_s": 60}
    tree = campaign_tree(tmp_path)["scenario"] | {"faults": {"events": [fault]}}
    campaigns = [small(tmp_path), small(tmp_path, scenario=tree)]
    usual, slow = (
        [
            table(a["files"], "rounds")["latency_s"]
            for a in compute_points(points, 1, Cluster(workers=0))
        ]
        for points in ([cell.point for cell in cells(campaign)][:1] for campaign in campaigns)
    )
    assert usual[0][0] == slow[0][0]
    assert usual[0][1] < slow[0][1]


def test_processes_and_this_process_answer_alike(tmp_path: Path) -> None:
    points = [cell.point for cell in cells(small(tmp_path))]
    answers = [
        {a["id"]: {n: f for n, f in a["files"].items() if n.endswith("parquet")} for a in came}
        for came in (
            compute_points(points, 1, Cluster(workers=0)),
            compute_points(points, 1, Cluster(workers=2, pool=True)),
        )
    ]
    assert answers[0] == answers[1]
    assert len(answers[0]) == 8


def test_processes_end_with_who_started_them_even_if_it_is_killed(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    program = f"""
from pathlib import Path
from orchestrator.campaigning.cluster import run_jobs
from testbed.host.dask_cluster import Cluster
[*run_jobs(Path.read_text, Path({str(pipe)!r}), [None, None], Cluster(workers=2, pool=True))]
"""
    # Who opens the pipe waits for who reads: they are at work then, and find nothing to read.
    with subprocess.Popen([sys.executable, "-c", program]) as process, pipe.open("w"):
        until(lambda: len(family(process)) == 3)  # Both, and who looks after what they share.
        processes = family(process)
        process.kill()
        until(lambda: gone(processes))


@pytest.mark.parametrize(
    ("said", "there"),
    [({}, False), ({"workers": {}}, False), ({"workers": {"a": {"resources": {"slot": 1}}}}, True)],
)
def test_a_scheduler_that_has_just_gone_has_no_worker(said: Any, there: bool) -> None:
    class Client:
        def scheduler_info(self, n_workers: int) -> Any:
            return said

    assert has_worker(Client(), {"slot": 1}) is there
    assert not has_worker(Client(), {"other": 1})


def test_points_of_a_channel_stay_together_while_all_workers_have_work() -> None:
    points = [c.point for c in cells(narrowed(PAPER, studies=["fig4", "fig6"], seeds=[1, 2, 3]))]
    two, many = (_jobs(points, np.random.default_rng(1), workers) for workers in (2, 64))
    assert sorted(len(job) for job in two) == [70, 70, 70]
    for job in two:
        assert len({point.scenario.seed for point in job}) == 1
    assert len(many) >= 50
    assert {p.id for job in many for p in job} == {p.id for p in points}


def training(folder: Path, rounds: int) -> dict[str, Any]:
    """A point in which an agent learns, as a worker takes it."""
    tree = campaign_tree(folder)["scenario"]
    study = {"axes": {"who": {"points": {"drl": {"train": "drl-"}}}}}
    campaign = small(
        folder, scenario=tree, set={"rounds": rounds}, studies={"s": study}, repeats=[1]
    )
    (cell,) = cells(campaign)
    return plain_point(cell.point)


def test_a_training_that_was_killed_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from orchestrator.policies import agent

    point = training(tmp_path, 36)
    task = {
        "source_sha256": source_sha256(),
        "argv": ["testbed"],
        "command": "testbed",
        "unfinished": None,
    }
    (whole,) = play(task, [point])
    updates = []
    usual = agent.Agent.update

    def killed(self: Any, *batch: Any) -> Any:
        updates.append(1)
        if len(updates) == 3:
            raise KeyboardInterrupt
        return usual(self, *batch)

    monkeypatch.setattr(agent.Agent, "update", killed)
    monkeypatch.setattr(
        agent.train, "__kwdefaults__", agent.train.__kwdefaults__ | {"checkpoint_every": 1}
    )
    kept = task | {"unfinished": str(tmp_path / "unfinished")}
    with pytest.raises(KeyboardInterrupt):
        play(kept, [point])
    assert (tmp_path / "unfinished" / point["id"] / "agent.pt").is_file()
    (resumed,) = play(kept, [point])
    assert len(updates) == 4  # two before, one that was killed, one after
    for name in ("rounds", "deterministic"):
        here, there = (table(answer["files"], name) for answer in (whole, resumed))
        pd.testing.assert_frame_equal(
            here.drop(columns="decision_s", errors="ignore"),
            there.drop(columns="decision_s", errors="ignore"),
            check_exact=True,
        )


def test_what_is_finished_leaves_nothing_unfinished_and_can_be_verified(tmp_path: Path) -> None:
    training(tmp_path, 12)
    campaign = load_campaign(tmp_path / "small.yaml")
    folder = CampaignFolder(tmp_path / "out")
    outcome = run_campaign(campaign, folder, cluster=Cluster(workers=0))
    assert (outcome.made, outcome.failed) == (1, {})
    assert not list(folder.unfinished.glob("*"))
    (replay,) = verify(folder, cluster=Cluster(workers=0)).replays
    assert replay.verdict == "equal"
