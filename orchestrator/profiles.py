"""What the splits of a scenario's workload cost."""

from dataclasses import fields

from orchestrator.scenario import Profile, Scenario
from workloads.profile import SplitProfile, counted, profile_for


def profile_of(scenario: Scenario) -> SplitProfile:
    """The scenario's own figures, the paper's table II for its model, or what the model counts to.

    Raises:
        InputError: No such model.
    """
    workload = scenario.workload
    if isinstance(workload.profile, Profile):
        return SplitProfile(
            **{f.name: tuple(getattr(workload.profile, f.name)) for f in fields(SplitProfile)}
        )
    count = counted if workload.profile == "counted" else profile_for
    return count(workload.model, workload.classes, workload.lora_rank)
