# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Small scenarios for the packet simulation."""

import numpy as np
from small_scenario import TREE

from ns3_scenarios.trace import ChannelTrace, Replay
from orchestrator.scenario.loading import validate
from orchestrator.scenario.schema import Scenario


def small(emulation: dict[str, object] | None = None, **top: object) -> Scenario:
    return validate({**TREE, **top, "emulation": emulation or {}}, "test")


def fading(clients: int = 3, slots: int = 4000) -> Replay:
    """Gains of the rings, each slot another."""
    rng = np.random.default_rng(3)
    mean = 10 ** -np.linspace(9.0, 10.3, clients)[:, None]
    return Replay(ChannelTrace(mean * rng.lognormal(0, 0.5, (clients, slots)), 0.1))
