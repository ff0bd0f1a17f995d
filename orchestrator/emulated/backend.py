# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The emulated network as a backend of an environment, which tries a policy on real links."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from orchestrator.emulated.dilation import settle
from orchestrator.emulated.rounds import open_rounds
from orchestrator.policies.environment import MakeBackend
from orchestrator.records.emulation import Emulation
from orchestrator.rounds.loop import Backend
from orchestrator.scenario.channel import Channel
from orchestrator.scenario.profiles import profile_of
from orchestrator.scenario.schema import Scenario


def emulated_backend(folder: Path) -> MakeBackend:
    """Rounds that are emulated with real links and processes; an episode has the number of rounds
    of its scenario.

    Args:
        folder: Existing folder for the logs of the nodes.
    """

    @contextlib.contextmanager
    def backend(scenario: Scenario, channel: Channel) -> Iterator[Backend]:
        profile = profile_of(scenario)
        resolved, _, _ = settle(scenario, channel, profile)
        with open_rounds(Emulation(resolved, channel), profile, folder) as rounds:
            yield rounds

    return backend
