"""The emulated network as what plays an environment's rounds: a policy tried on real links."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from ns3_scenarios.trace import ChannelSource
from orchestrator.emulation.dilation import settle
from orchestrator.emulation.session import emulate
from orchestrator.policies.environment import Backend, Play
from orchestrator.prediction.plan import Allocation
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario
from testbed.core.errors import InputError
from testbed.core.timeline import Round


def emulated_backend(folder: Path) -> Backend:
    """Rounds emulated with real links and processes; an episode has as many as its scenario.

    Args:
        folder: Existing folder that takes the nodes' logs.
    """

    @contextlib.contextmanager
    def backend(scenario: Scenario, source: ChannelSource) -> Iterator[Play]:
        decided: list[Allocation] = []
        profile = profile_of(scenario)
        scenario, _, _ = settle(scenario, source, profile)
        rounds = emulate(scenario, source, profile, folder, decide=lambda now: decided[now.index])

        def play(index: int, start_s: float, allocation: Allocation) -> Round:
            if index != len(decided):
                raise InputError(
                    f"backend: emulated rounds begin with the first, they cannot go on at {index}"
                )
            decided.append(allocation)
            return next(rounds).measured[-1]

        with contextlib.closing(rounds):
            yield play

    return backend
