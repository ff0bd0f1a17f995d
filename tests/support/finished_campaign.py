# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A campaign that is finished, with results, figures and report, at little cost."""

import json
from pathlib import Path

from small_campaign import campaign_tree, write_campaign
from synthetic_run import make_run

from orchestrator.campaigning.cluster import run_campaign
from orchestrator.campaigning.folder import CampaignFolder
from orchestrator.campaigning.report import write_campaign_report
from orchestrator.campaigning.results import write_results
from orchestrator.campaigning.spec import cells, load_campaign
from testbed.host.dask_cluster import Cluster


def finished_campaign(base: Path) -> CampaignFolder:
    """Its predicted points are computed; its emulated ones are made up."""
    tree = campaign_tree(base)
    tree["studies"]["split"] |= {
        "mode": "both",
        "emulate": {"where": {"u": [3]}, "repeats": [1], "set": {"rounds": 1}},
    }
    emulated = write_campaign(base, studies=tree["studies"])
    campaign = load_campaign(emulated)
    predicted = campaign.model_copy(
        update={
            "studies": {
                name: study.model_copy(update={"mode": "predict"})
                for name, study in campaign.studies.items()
            }
        }
    )
    folder = CampaignFolder(base / "done")
    run_campaign(predicted, folder, cluster=Cluster(workers=0))
    points = {c.point.id: c.point for c in cells(campaign) if c.point.mode == "run"}
    with folder.held(campaign):
        for number, (id_, point) in enumerate(points.items()):
            made = make_run(base / id_, uavs=2, rounds=1, seed=number)
            files = {path.name: path.read_bytes() for path in made.iterdir()}
            manifest = json.loads(files["manifest.json"])
            manifest |= {"valid": number > 0, "host": "h", "wall_s": 1.0}
            manifest["validity"] = [
                {"check": "cpu_steal", "limit": 0.05, "value": 0.1 - 0.09 * number,
                 "ok": number > 0, "detail": "round 0"}
            ]  # fmt: skip
            files["manifest.json"] = json.dumps(manifest).encode()
            about = {"id": id_, "mode": "run", "trace": point.trace, "files": point.files,
                     "scenario": point.scenario.model_dump_json(), "steps_rounds": 1}  # fmt: skip
            files["point.json"] = json.dumps(about).encode()
            folder.store(id_, files)
    write_results(folder, campaign)
    write_campaign_report(folder, campaign)
    return folder
