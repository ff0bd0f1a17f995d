# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The weights and data that a run reads: what they are, and whether a resumed run has the same."""

from orchestrator.scenario.profiles import model_of
from orchestrator.scenario.schema import Scenario
from testbed.system.folders import cache_folder
from workloads.learning.cached import backbone_file
from workloads.learning.remarks import remarks_on


def lines(scenario: Scenario) -> list[str]:
    """What a run says about its weights before the first round, in lines.

    Raises:
        InputError: The model or its weights are unavailable.
    """
    if scenario.workload.compute == "none":
        return []
    model = model_of(scenario)
    return remarks_on(model, backbone_file(model, cache_folder()))
