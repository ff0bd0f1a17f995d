# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Decisions, predictions, emulated runs, comparisons and campaigns.

The code for links is in `testbed`, and the code for nodes is in `workloads`.

This package is also the public interface: `import orchestrator as tb`, then `tb.predict("paper")`.
Names are imported when they are first used; `docs/api.md` describes them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ns3_scenarios.trace import both_ways as both_ways
    from orchestrator.analytical.models import Interval as Interval
    from orchestrator.api import compare as compare
    from orchestrator.api import comparison as comparison
    from orchestrator.api import load as load
    from orchestrator.api import predict as predict
    from orchestrator.api import read_run as read_run
    from orchestrator.api import run as run
    from orchestrator.engine.access import RadioAccess as RadioAccess
    from orchestrator.engine.fdma import Fdma as Fdma
    from orchestrator.engine.fdma import ShannonFdma as ShannonFdma
    from orchestrator.engine.plan import Allocation as Allocation
    from orchestrator.engine.plan import RoundPlan as RoundPlan
    from orchestrator.interface.campaigns import campaign as campaign
    from orchestrator.interface.campaigns import report as report
    from orchestrator.interface.channels import trace as trace
    from orchestrator.interface.figures import plot as plot
    from orchestrator.interface.flights import fit as fit
    from orchestrator.interface.flights import forecast as forecast
    from orchestrator.interface.learning import evaluate as evaluate
    from orchestrator.interface.learning import export as export
    from orchestrator.interface.learning import learn as learn
    from orchestrator.interface.learning import train as train
    from orchestrator.interface.results import StudyResult as StudyResult
    from orchestrator.interface.studies import cross_check as cross_check
    from orchestrator.interface.studies import overhead as overhead
    from orchestrator.interface.studies import theory as theory
    from orchestrator.interface.studies import validate as validate
    from orchestrator.network import Network as Network
    from orchestrator.policies.environment import UavSflEnv as UavSflEnv
    from orchestrator.records.reader import Run as Run
    from orchestrator.rounds.loop import Situation as Situation
    from orchestrator.rounds.selection import RoundStart as RoundStart
    from orchestrator.scenario.schema import Scenario as Scenario
    from testbed.core.errors import InputError as InputError
    from testbed.core.errors import RunError as RunError
    from testbed.core.orders import ServiceRequest as ServiceRequest
    from testbed.core.paradigm import Paradigm as Paradigm
    from testbed.core.timeline import Round as Round
    from testbed.core.timeline import Timeline as Timeline
    from testbed.transport.interface import TransportKind as TransportKind
    from testbed.transport.streams import StreamTransport as StreamTransport
    from testbed.transport.tcp import TcpStream as TcpStream
    from workloads.aggregation.local import LocalStep as LocalStep
    from workloads.aggregation.local import Part as Part
    from workloads.aggregation.rules import Algorithm as Algorithm
    from workloads.aggregation.rules import Sender as Sender
    from workloads.aggregation.rules import Update as Update
    from workloads.codecs.codec import Codec as Codec
    from workloads.codecs.codec import Stream as Stream
    from workloads.models.chain import Chain as Chain
    from workloads.models.chain import Images as Images
    from workloads.models.chain import Tokens as Tokens

_HOMES = {
    "Allocation": "orchestrator.engine.plan",
    "Chain": "workloads.models.chain",
    "Codec": "workloads.codecs.codec",
    "Images": "workloads.models.chain",
    "InputError": "testbed.core.errors",
    "Interval": "orchestrator.analytical.models",
    "Network": "orchestrator.network",
    "Paradigm": "testbed.core.paradigm",
    "RadioAccess": "orchestrator.engine.access",
    "Fdma": "orchestrator.engine.fdma",
    "ShannonFdma": "orchestrator.engine.fdma",
    "Round": "testbed.core.timeline",
    "RoundPlan": "orchestrator.engine.plan",
    "RoundStart": "orchestrator.rounds.selection",
    "Run": "orchestrator.records.reader",
    "RunError": "testbed.core.errors",
    "Scenario": "orchestrator.scenario.schema",
    "ServiceRequest": "testbed.core.orders",
    "Situation": "orchestrator.rounds.loop",
    "Stream": "workloads.codecs.codec",
    "StreamTransport": "testbed.transport.streams",
    "TcpStream": "testbed.transport.tcp",
    "Timeline": "testbed.core.timeline",
    "Tokens": "workloads.models.chain",
    "TransportKind": "testbed.transport.interface",
    "UavSflEnv": "orchestrator.policies.environment",
    "Algorithm": "workloads.aggregation.rules",
    "LocalStep": "workloads.aggregation.local",
    "Part": "workloads.aggregation.local",
    "Sender": "workloads.aggregation.rules",
    "Update": "workloads.aggregation.rules",
    "both_ways": "ns3_scenarios.trace",
    "StudyResult": "orchestrator.interface.results",
    "campaign": "orchestrator.interface.campaigns",
    "cross_check": "orchestrator.interface.studies",
    "evaluate": "orchestrator.interface.learning",
    "export": "orchestrator.interface.learning",
    "fit": "orchestrator.interface.flights",
    "forecast": "orchestrator.interface.flights",
    "learn": "orchestrator.interface.learning",
    "overhead": "orchestrator.interface.studies",
    "plot": "orchestrator.interface.figures",
    "report": "orchestrator.interface.campaigns",
    "theory": "orchestrator.interface.studies",
    "trace": "orchestrator.interface.channels",
    "train": "orchestrator.interface.learning",
    "validate": "orchestrator.interface.studies",
    "compare": "orchestrator.api",
    "comparison": "orchestrator.api",
    "load": "orchestrator.api",
    "predict": "orchestrator.api",
    "read_run": "orchestrator.api",
    "run": "orchestrator.api",
}
"""The module of each public name."""

__all__ = [
    "Algorithm",
    "Allocation",
    "Chain",
    "Codec",
    "Fdma",
    "Images",
    "InputError",
    "Interval",
    "LocalStep",
    "Network",
    "Paradigm",
    "Part",
    "RadioAccess",
    "Round",
    "RoundPlan",
    "RoundStart",
    "Run",
    "RunError",
    "Scenario",
    "Sender",
    "ServiceRequest",
    "ShannonFdma",
    "Situation",
    "Stream",
    "StreamTransport",
    "StudyResult",
    "TcpStream",
    "Timeline",
    "Tokens",
    "TransportKind",
    "UavSflEnv",
    "Update",
    "both_ways",
    "campaign",
    "compare",
    "comparison",
    "cross_check",
    "evaluate",
    "export",
    "fit",
    "forecast",
    "learn",
    "load",
    "overhead",
    "plot",
    "predict",
    "read_run",
    "report",
    "run",
    "theory",
    "trace",
    "train",
    "validate",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
