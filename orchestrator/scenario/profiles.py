# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What the splits of a scenario's workload cost."""

from orchestrator.scenario.schema import Profile, Scenario
from workloads.costs.lookup import counted, profile_for
from workloads.costs.profile import SplitProfile


def profile_of(scenario: Scenario) -> SplitProfile:
    """The scenario's own figures, the paper's table II for its model, or what the model counts to.

    Raises:
        InputError: No such model.
    """
    workload = scenario.workload
    if isinstance(workload.profile, Profile):
        return SplitProfile(**{k: tuple(v) for k, v in workload.profile.model_dump().items()})
    count = counted if workload.profile == "counted" else profile_for
    return count(workload.model, workload.classes, workload.lora_rank, workload.image_size)
