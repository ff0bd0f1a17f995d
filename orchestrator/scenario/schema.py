# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The keys of a scenario, their types, bounds and defaults, validated when a file is loaded.

Every key carries its unit in its name; `orchestrator.scenario.loading` reads scenario files.
"""

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import cache, cached_property
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    Tag,
    field_validator,
    model_serializer,
    model_validator,
)

from ns3_scenarios.aerial import AERIAL, LOG_DISTANCE, check_exponent
from ns3_scenarios.mobility import FARTHEST_M
from ns3_scenarios.radio import WIFI_WIDTHS_MHZ
from ns3_scenarios.rma_av import FARTHEST_GROUND_NLOS_M, GROUND_BS_HEIGHT_M, GROUND_HEIGHT_M
from orchestrator.scenario.combinations import refusals
from orchestrator.scenario.fleet import Array, Fleet, Spread, each, ends
from testbed.core import orders
from testbed.core.errors import InputError
from testbed.core.node import BS, NodeId
from testbed.core.node import PATTERN as NODE
from testbed.core.paradigm import Paradigm, Sharing, UploadOrder, paradigm, title_of
from testbed.core.registry import (
    ANALYTICAL_MODELS,
    CHANNELS,
    MOBILITY,
    MODELS,
    PARTICIPATION,
    POLICIES,
    RADIOS,
)
from testbed.core.words import not_one_of
from testbed.transport import kind_of
from testbed.transport.interface import TransportKind
from workloads.aggregation.rules import (
    Algorithm,
    Travelling,
    algorithm_of,
    local_steps,
    travelling,
)
from workloads.codecs.codec import DIRECTIONS, Codec, Direction, varies
from workloads.codecs.formats import TopK
from workloads.codecs.registry import codec_of
from workloads.data.partitions import check_partition
from workloads.models.language import LanguageModel, is_language, language_model

# Bounds lie far beyond real hardware, and no product of values within them overflows.
Finite = Annotated[float, Field(allow_inf_nan=False)]
Watts = Annotated[float, Field(ge=1e-6, le=1e6)]
Power = Annotated[float, Field(ge=0, le=1e6)]
Flops = Annotated[float, Field(ge=1e3, le=1e21)]
Hertz = Annotated[float, Field(ge=1e3, le=1e11)]
Metres = Annotated[float, Field(ge=-1e5, le=1e5)]
Radius = Annotated[float, Field(ge=0, le=10_000)]
"""The channel model RMa-AV holds up to 10 km."""
Speed = Annotated[float, Field(ge=0, le=1000)]
Duration = Annotated[float, Field(ge=1e-3, le=1e9)]
Work = Annotated[float, Field(ge=0, le=1e21)]
Bytes = Annotated[int, Field(ge=1, le=10**12)]
Limit = Annotated[float, Field(ge=0, le=1e12)]
Share = Annotated[float, Field(ge=1e-6, le=1)]
Height = Annotated[float, Field(ge=1.5, le=300)]
Device = Annotated[str, Field(pattern=r"^(auto|cpu|cuda(:\d+)?)$")]

ALL_UAVS = "uav*"
"""Stands for every UAV where a node's name is expected."""
MOST_SPLITS = 1000
MOST_CLASSES = 1_000_000
SplitPoint = Annotated[int, Field(ge=1, le=MOST_SPLITS)]
BatchSize = Annotated[int, Field(ge=1, le=4096)]
MOST_ITERATIONS = 1000
Iterations = Annotated[int, Field(ge=1, le=MOST_ITERATIONS)]
Epochs = Annotated[int, Field(ge=1, le=1000)]
Rank = Annotated[int, Field(ge=1, le=1024)]
LearningRate = Annotated[float, Field(ge=1e-12, le=100)]
PER_CLIENT = ("batch_size", "local_iterations", "lora_rank", "learning_rate", "local_epochs")
"""Keys of `Workload` that take one value for all UAVs, or a list of one per UAV."""
LOADS = PER_CLIENT[:3]
"""Those of them on which the times of a round depend."""
SWIN_STAGES = 4
GAUSS_MARKOV, STEERED, GUIDED = "gauss-markov", "steered", "guided"
RMA = "rma-av"
PLAIN = ("free-space", "two-ray")
MOBILITY.add({GAUSS_MARKOV: None, STEERED: None, GUIDED: None})
FITTED = "fitted"
CHANNELS.add({RMA: None, **AERIAL, **dict.fromkeys(PLAIN), FITTED: None})
RADIOS.add(dict.fromkeys(("shannon", "lte", "nr", "wifi")))
CHANNELS.add({LOG_DISTANCE: "ns3_scenarios.modelled:log_distance"})
COUNTED_RULES = ("random", "by-channel", "round-robin")
"""Rules of participation that choose as many clients as the scenario says."""
PARTICIPATION.add(
    {
        "random": "orchestrator.rounds.selection:random",
        "by-channel": "orchestrator.rounds.selection:by_channel",
        "round-robin": "orchestrator.rounds.selection:round_robin",
        "fedcs": "orchestrator.rounds.fedcs:fedcs",
    }
)
POLICIES.add(
    {
        "fixed": "orchestrator.policies.registry:fixed",
        "equal": "orchestrator.policies.registry:equal",
        "static": "orchestrator.policies.registry:static",
        "planner": "orchestrator.policies.planner:planner",
        "per-client-planner": "orchestrator.policies.registry:per_client_planner",
        "agent": "orchestrator.policies.registry:trained",
    }
)


@dataclass(frozen=True)
class RadioKind:
    """Properties of a radio access; the defaults are those of the rate model of a package."""

    divides: bool = False
    """Whether the UAVs that send contend for one channel, so that no link has a share of its
    own."""
    has_rho: bool = True
    """Whether `allocation.rho` changes the power of a downlink."""
    invertible: bool = False
    """Whether planners can compute the share of the band that a rate needs."""
    ns3: Literal["lte", "nr", "wifi"] | None = None
    """The radio access of ns-3 that simulates it."""
    cell: Literal["lte", "nr"] | None = None
    """The section of `Radio` with a cell that assigns resource blocks."""
    waits: bool = False
    """Whether packets wait for slots of the radio on links, too, where ns-3 does not carry them."""


RADIO_KINDS = {
    "shannon": RadioKind(invertible=True),
    "lte": RadioKind(has_rho=False, ns3="lte", cell="lte"),
    "nr": RadioKind(has_rho=False, ns3="nr", cell="nr", waits=True),
    "wifi": RadioKind(divides=True, has_rho=False, ns3="wifi"),
}


@dataclass(frozen=True)
class PolicyKind:
    """Properties of a policy; the defaults are those of the policy of a package."""

    decides: bool = True
    """Whether it decides split points or shares, instead of taking those of the scenario."""
    takes_shares: bool = False
    """Whether it takes `allocation.alpha`, `beta` and `rho`."""
    moves_splits: bool = True
    """Whether split points may differ from round to round."""
    forecasts: bool = False
    """Whether it forecasts gains from the flight of the UAVs."""
    splits_clients: bool = False
    """Whether it chooses a split point for each client."""
    observes: bool = True
    """Whether it observes the channel."""
    is_trained: bool = False
    """Whether it is a trained agent, which knows rounds of all UAVs with one split point."""


POLICY_KINDS = {
    "fixed": PolicyKind(decides=False, takes_shares=True, moves_splits=False, observes=False),
    "equal": PolicyKind(decides=False, moves_splits=False, observes=False),
    "static": PolicyKind(moves_splits=False, observes=False),
    "planner": PolicyKind(forecasts=True),
    "per-client-planner": PolicyKind(forecasts=True, splits_clients=True),
    "agent": PolicyKind(is_trained=True),
}


def _shares(value: list[float]) -> list[float]:
    if abs(sum(value) - 1) > 1e-6:
        raise ValueError(f"must sum to 1, not {sum(value):.6g}")
    return value


Shares = Literal["equal"] | Annotated[list[Share], AfterValidator(_shares)]
"""Fractions of a resource, one per client; `equal` is 1/K each."""


def _one_per_uav(name: str, value: object, count: int) -> None:
    """Refuse a list that does not have one value per UAV."""
    if isinstance(value, list) and len(value) != count:
        raise ValueError(f"{name}: must have one entry per UAV: {count}, not {len(value)}")


@contextmanager
def _within(section: str) -> Iterator[None]:
    """Pass an `InputError` on to pydantic, which puts the section's name before the message."""
    try:
        yield
    except InputError as error:
        raise ValueError(str(error).removeprefix(section).lstrip(".: ")) from None


class Section(BaseModel):
    """A part of a scenario; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _kinds_are_not_mixed(cls, tree: Any) -> Any:
        """Refuse truth values and texts as numbers, and texts as truth values.

        Pydantic takes `true` as 1, and the texts `1_000` and `yes` as 1000 and true.
        """
        for name, value in tree.items() if isinstance(tree, dict) else ():
            kinds = set(map(type, _leaves(value))) & {bool, str}
            if name not in cls.model_fields or not kinds:
                continue
            allowed = _allowed(cls, name)
            if bool in kinds and allowed & {"int", "float"} and "bool" not in allowed:
                raise ValueError(f"{name}: must be a number, not true or false")
            for text in () if "str" in allowed else _leaves(value):
                if "bool" in allowed and isinstance(text, str):
                    raise ValueError(f"{name}: must be true or false, not {text[:60]!r}")
                if allowed & {"int", "float"} and isinstance(text, str) and _is_number(text):
                    raise ValueError(f"{name}: must be a number, not the text {text[:60]!r}")
        return tree


@cache
def _allowed(section: type[Section], name: str) -> frozenset[str]:
    """The kinds of single values that a field takes; cached because writing types takes long."""
    annotation = str(section.model_fields[name].annotation)
    return frozenset(re.findall(r"\b(?:bool|int|float|str)\b", annotation))


def _leaves(value: object) -> Iterator[object]:
    """The values in nested lists."""
    if isinstance(value, list | tuple):
        for each in value:
            yield from _leaves(each)
    else:
        yield value


def _is_number(text: str) -> bool:
    """Whether pydantic would take a text as a number."""
    with suppress(ValueError):
        float(text)
        return True
    return False


class BaseStation(Section):
    """The base station, which acts as the server of split learning."""

    position_m: tuple[Metres, Metres, Metres] = (0.0, 0.0, 30.0)
    """Coordinates x, y, z; the rings are centred at x, y."""
    tx_power_w: Watts = 40.0
    """Total transmit power, P_S."""
    compute_flops: Flops = 195e12
    """Computing speed κ_S f_S, in FLOP/s."""
    device: Device = "cpu"
    """Device on which the emulated server computes: `cpu`, `cuda`, `cuda:N`, or `auto`, a GPU if
    there is one. In virtual time, this is a device of the host: processes outside the guest compute
    on it."""
    threads: Annotated[int, Field(ge=1, le=1024)] = 1
    """Number of CPU threads with which the emulated server computes."""


class Uavs(Section):
    """The UAVs. A value per UAV may be one number for all, a list of K numbers, or a distribution
    such as `{uniform: [0.1, 1]}`, from which each UAV's value is drawn (see
    docs/heterogeneous-uavs.md); the random seed determines these values."""

    _one_each: ClassVar = ("tx_power_w", "height_m", "compute_flops", "compute_power_w", "ring")

    tx_power_w: Watts | Annotated[list[Watts], Field(min_length=1)] | Spread[Watts]
    """Transmit power of each UAV, p_k."""
    count: Annotated[int, Field(ge=1, le=10_000)] = None  # type: ignore[assignment]  # _counted
    """Number of UAVs, K. Default: the length of the lists in this section."""
    height_m: Height | list[Height] | Spread[Height] = 20.0
    """Height of each UAV above ground. At low heights, the channel models are those for users on
    the ground (see docs/channels.md)."""
    rings_m: list[tuple[Radius, Radius]] = Field(
        default=[(100.0, 550.0), (550.0, 820.0), (820.0, 1000.0)], min_length=1
    )
    """Inner and outer radius of each ring around the base station."""
    ring: list[Annotated[int, Field(ge=1)]] | None = None
    """Index of the ring in which each UAV flies, starting from 1. Default: the UAVs are distributed
    evenly, and the remaining ones are in the last ring."""
    compute_flops: Flops | list[Flops] | Spread[Flops] = 2.5e12
    """Computing speed of each UAV, κ_k f_k, in FLOP/s."""
    compute_power_w: Power | list[Power] | Spread[Power] = 16.0
    """Power that each UAV consumes while it computes, ω f³."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] | None = Field(
        default=None, exclude_if=lambda seed: seed is None
    )
    """Random seed for the distributions in this section and in `mobility`. Default: the scenario's
    seed."""
    device: Device = "cpu"
    """Device on which the emulated UAVs compute; see `base_station.device`."""
    threads: Annotated[int, Field(ge=1, le=1024)] = 1
    """Number of CPU threads with which each emulated UAV computes."""

    @field_validator("rings_m")
    @classmethod
    def _rings_open(cls, rings: list[tuple[float, float]]) -> list[tuple[float, float]]:
        for inner, outer in rings:
            if inner >= outer:
                raise ValueError(f"inner radius {inner:g} must be below the outer one {outer:g}")
            if outer - inner < 1:
                raise ValueError(f"a ring must be 1 m wide or more, not {outer - inner:g} m")
        return rings

    @model_validator(mode="before")
    @classmethod
    def _counted(cls, tree: Any) -> Any:
        """Take K from the lists where `count` is not given."""
        if not isinstance(tree, dict) or tree.get("count") is not None:
            return tree
        lists = (tree.get(name) for name in cls._one_each)
        counts = [len(value) for value in lists if isinstance(value, list)]
        if counts:
            return tree | {"count": max(1, counts[0])}
        if "tx_power_w" in tree:
            raise ValueError("count: is missing; how many UAVs are there?")
        return tree | {"count": 1}  # it is tx_power_w that is missing

    @model_validator(mode="after")
    def _one_value_each(self) -> "Uavs":
        for name in self._one_each:
            _one_per_uav(name, getattr(self, name), self.count)
        if self.ring is not None and max(self.ring) > len(self.rings_m):
            raise ValueError(f"ring: there are only {len(self.rings_m)} rings")
        return self

    @model_serializer(mode="wrap")
    def _count_where_needed(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit `count` where lists give it, so that a list of another length changes K."""
        tree: dict[str, Any] = plain(self)
        if any(isinstance(getattr(self, name), list) for name in self._one_each):
            tree.pop("count", None)
        return tree

    @property
    def ring_m(self) -> list[tuple[float, float]]:
        """Inner and outer radius for each UAV."""
        if self.ring is not None:
            return [self.rings_m[index - 1] for index in self.ring]
        each, rings = self.count // len(self.rings_m), len(self.rings_m)
        return [
            self.rings_m[min(k // each, rings - 1) if each else rings - 1]
            for k in range(self.count)
        ]


Reach = Annotated[float, Field(ge=0, le=FARTHEST_M)]
Coordinate = Annotated[float, Field(ge=-FARTHEST_M, le=FARTHEST_M)]


class FlightLimits(Section):
    """Limits of UAVs that programs or a policy fly: `mobility.model: steered` (see docs/steered.md)
    and `guided` (see docs/plugins.md)."""

    speed_m_s: Annotated[float, Field(gt=0, le=500)] = 30.0
    """Highest horizontal speed. A guided UAV flies at this speed unless it climbs or sinks for
    longer."""
    climb_m_s: Annotated[float, Field(gt=0, le=500)] = 10.0
    """Highest vertical speed."""
    distance_m: tuple[Reach, Reach] = (0.0, 5000.0)
    """Smallest and largest horizontal distance from the base station. Links of sessions are
    calibrated for the rates at these distances."""
    height_m: tuple[Reach, Reach] = (1.5, 300.0)
    """Lowest and highest height."""

    @model_validator(mode="after")
    def _in_order(self) -> "FlightLimits":
        for name in ("distance_m", "height_m"):
            low, high = getattr(self, name)
            if low >= high:
                raise ValueError(
                    f"{name}: the first must be below the second, not {low:g}, {high:g}"
                )
        return self


NO_LIMITS = FlightLimits()
DECIDED = (STEERED, GUIDED)
"""Models of mobility in which programs or a policy decide where UAVs fly."""


class Mobility(Section):
    """Mobility of the UAVs: a Gauss–Markov process inside the ring, with reflection at its edges;
    programs in the nodes; or the model of a plug-in."""

    model: str = GAUSS_MARKOV
    """`gauss-markov`; `steered`: programs of a session fly the UAVs (see docs/steered.md);
    `guided`: UAVs fly where the policy of `allocation` sends them (see docs/plugins.md); or a model
    that a package registers as `testbed.mobility`."""
    parameters: dict[str, JsonValue] = {}
    """Parameters of a plug-in model. The parameters of `gauss-markov` are the keys below."""
    speed_m_s: tuple[Speed, Speed] | list[tuple[Speed, Speed]] = (0.1, 4.0)
    """Lowest and highest speed, as one pair for all UAVs or one pair per UAV; speeds are clipped to
    this range."""
    mean_speed_m_s: Speed | list[Speed] | Spread[Speed] = 2.0
    """Mean speed of the process: one number, a list, or a distribution, as in `uavs`."""
    speed_deviation_m_s: Speed | list[Speed] | Spread[Speed] = 1.0
    """Standard deviation of the speed before clipping: one number, a list, or a distribution."""
    heading_deviation_rad: Annotated[float, Field(ge=0, le=100)] = 0.5
    """Standard deviation of the heading around its mean."""
    memory: Annotated[float, Field(ge=0, le=1)] = 0.85
    """Memory of the Gauss–Markov process: with 1, speed and heading never change; with 0, they are
    independent from update to update."""
    update_s: Annotated[float, Field(ge=1e-3, le=1e6)] = 1.0
    """Time between two updates of speed and heading, or between two steps of a plug-in model."""
    start_m: list[tuple[Coordinate, Coordinate, Coordinate]] | None = Field(
        default=None, exclude_if=lambda given: given is None
    )
    """Positions in slot 0, one per UAV, for `steered` and `guided`. A UAV for which there is no
    decision hovers there. Default: a random place in the ring of each UAV, at `uavs.height_m`."""
    limits: FlightLimits = Field(default=NO_LIMITS, exclude_if=lambda given: given == NO_LIMITS)

    @model_validator(mode="after")
    def _model_known(self) -> "Mobility":
        with _within("mobility"):
            MOBILITY.check(self.model, self.parameters)
        for name, field in Mobility.model_fields.items():
            owners = DECIDED if name in ("start_m", "limits") else (GAUSS_MARKOV,)
            of_all = name in {"model", "parameters", "update_s"} or self.model in owners
            if not of_all and getattr(self, name) != field.default:
                belongs = " and ".join(map(repr, owners))
                raise ValueError(f"{name}: belongs to {belongs}, not to {self.model!r}")
        return self


LTE_BLOCKS = {1.4e6: 6, 3e6: 15, 5e6: 25, 10e6: 50, 15e6: 75, 20e6: 100}
"""Number of resource blocks of each LTE bandwidth in Hz, TS 36.101, table 5.6-1."""


REQUEST_PERIODS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.04, 0.08)
"""Periods of scheduling requests, TS 36.213, table 10.1.5-1."""


class Load(Section):
    """Users of a cell that are not simulated."""

    load: Annotated[float, Field(ge=0, le=0.95)] = 0.0
    """Share of the resource blocks of each direction that they have, in all cells."""


class Background(Load):
    """Users of an LTE cell that are not simulated."""

    users: Annotated[int, Field(ge=0, le=100)] = 0
    """Number of users who have this share on average. Their data arrive in Poisson bursts. Users
    with data divide the resource blocks equally with the UAVs that send. 0: the share is constant.
    Predictions use the average."""

    @model_validator(mode="after")
    def _loaded(self) -> "Background":
        if self.users and not self.load:
            raise ValueError(f"users: needs a load above 0, not {self.load:g}")
        return self


NO_LOAD, NO_BACKGROUND = Load(), Background()


class Lte(Section):
    """An LTE cell, for `radio.access: lte` (see docs/lte.md)."""

    resource_blocks: Annotated[int, Field(ge=6, le=100)] | None = None
    """Number of resource blocks that the scheduler assigns, in each direction. Default: all
    resource blocks of the bandwidth, e.g. 100 for 20 MHz."""
    scheduler: Literal["equal", "shares"] = "equal"
    """`equal`: the UAVs that have data to send get equal numbers of resource blocks; `shares`: each
    UAV has a fixed share of the resource blocks, given by `allocation.beta`."""
    noise_figure_db: Annotated[float, Field(ge=0, le=30)] = 0.0
    """Noise figure of the receivers at the base station and the UAVs."""
    interference_margin_db: Annotated[float, Field(ge=0, le=60)] = 0.0
    """Interference from other cells: the ratio of interference plus noise to noise."""
    antenna_gain_db: Annotated[float, Field(ge=-30, le=40)] = 0.0
    """Sum of the antenna gains of the base station and a UAV, in addition to those in the channel
    gain."""
    implementation_margin_db: Annotated[float, Field(ge=0, le=30)] | None = None
    """Gap to the Shannon limit that is assumed when a modulation and coding scheme is chosen.
    Default: as in ns-3, 7.43 dB in the uplink, and in the downlink the link curves of ns-3 (see
    docs/lte.md)."""
    highest_snr_db: Annotated[float, Field(ge=0, le=60)] | None = Field(
        default=None, exclude_if=lambda db: db is None
    )
    """Upper limit of the signal-to-noise ratio in both directions, caused by distortion in the
    transmitter and the receiver (error vector magnitude, section 6.5.2 of TS 36.101 and TS 36.104).
    Default: no limit."""
    layers: Annotated[int, Field(ge=1, le=2)] = 1
    """Largest number of spatial layers in the downlink; 2 means open-loop 2x2 MIMO."""
    highest_modulation: Literal["64QAM", "256QAM"] = "64QAM"
    """Highest modulation order in the downlink. In the uplink, it is always 64QAM."""
    downlink_order: Literal["application", "mac"] = Field(
        default="application", exclude_if=lambda order: order == "application"
    )
    """The part of the system that determines the order of sequential gradients. `application`: the
    program of the base station sends one gradient after the other. `mac`: all gradients are sent as
    soon as they are computed, and the scheduler of the cell serves their packets by the priority in
    their DSCP field. `mac` requires `emulation.air: ns3`."""
    background: Background = Field(
        default=NO_BACKGROUND, exclude_if=lambda background: background == NO_BACKGROUND
    )
    scheduling_request_s: float | None = Field(
        default=None, exclude_if=lambda period_s: period_s is None
    )
    """Period in which a UAV without a grant may ask for one: 0.001, 0.002, 0.005, 0.01, 0.02, 0.04
    or 0.08. Default: the base station knows of new data without a request, as in ns-3."""
    grants_per_tti: Annotated[int, Field(ge=1, le=100)] | None = Field(
        default=None, exclude_if=lambda grants: grants is None
    )
    """Largest number of UAVs that get new grants in a TTI in each direction, because the control
    channel (PDCCH) has no room for more. Default: no limit."""

    @model_validator(mode="after")
    def _period_known(self) -> "Lte":
        if self.scheduling_request_s not in (None, *REQUEST_PERIODS_S):
            periods = ", ".join(map(str, REQUEST_PERIODS_S))
            raise ValueError(
                f"scheduling_request_s: must be one of {periods}, not {self.scheduling_request_s:g}"
            )
        return self


PLAIN_LTE = Lte()

_NR_MHZ = (5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 60, 70, 80, 90, 100)
NR_BLOCKS = {
    spacing_khz: {1e6 * mhz: blocks for mhz, blocks in zip(_NR_MHZ, row, strict=False) if blocks}
    for spacing_khz, row in {
        15: (25, 52, 79, 106, 133, 160, 188, 216, 242, 270),
        30: (11, 24, 38, 51, 65, 78, 92, 106, 119, 133, 162, 189, 217, 245, 273),
        60: (0, 11, 18, 24, 31, 38, 44, 51, 58, 65, 79, 93, 107, 121, 135),
    }.items()
}
"""Number of resource blocks of each NR bandwidth in Hz, by subcarrier spacing in kHz; TS 38.104,
table 5.3.2-1."""
MOST_BLOCKS = 275
"""Largest number of resource blocks of a carrier, TS 38.211, section 4.4.2."""
TDD_CYCLE_MS = 20
"""Time that a whole number of TDD patterns must fill, TS 38.213, section 11.1."""


class Nr(Section):
    """A 5G NR cell, for `radio.access: nr` (see docs/nr.md)."""

    subcarrier_spacing_khz: Literal[15, 30, 60] = 30
    """Subcarrier spacing in kHz. An NR slot lasts 1 ms with 15, 0.5 ms with 30 and 0.25 ms with
    60."""
    duplex: Literal["fdd", "tdd"] = "fdd"
    """`fdd`: each direction has a carrier; `tdd`: both directions share one carrier, and each NR
    slot belongs to one of them."""
    tdd_pattern: Annotated[str, Field(max_length=80)] = "DDDU"
    """Directions of the NR slots of a TDD carrier, which repeat: `D`, downlink; `U`, uplink; `S`,
    downlink with a gap before the uplink."""
    resource_blocks: Annotated[int, Field(ge=11, le=273)] | None = None
    """Number of resource blocks that the scheduler assigns, in each direction. Default: all
    resource blocks of the bandwidth, e.g. 51 for 20 MHz with 30 kHz."""
    scheduler: Literal["equal", "shares"] = "equal"
    """`equal`: the UAVs that have data to send get equal numbers of resource blocks; `shares`: each
    UAV has a fixed share of the resource blocks, given by `allocation.beta`."""
    highest_modulation: Literal["64QAM", "256QAM"] = "64QAM"
    """Highest modulation order, in both directions."""
    noise_figure_db: Annotated[float, Field(ge=0, le=30)] = 0.0
    """Noise figure of the receivers at the base station and the UAVs."""
    interference_margin_db: Annotated[float, Field(ge=0, le=60)] = 0.0
    """Interference from other cells: the ratio of interference plus noise to noise."""
    antenna_gain_db: Annotated[float, Field(ge=-30, le=40)] = 0.0
    """Sum of the antenna gains of the base station and a UAV, in addition to those in the channel
    gain."""
    background: Load = Field(default=NO_LOAD, exclude_if=lambda background: background == NO_LOAD)
    grants_per_tti: Annotated[int, Field(ge=1, le=100)] | None = Field(
        default=None, exclude_if=lambda grants: grants is None
    )
    """Largest number of UAVs that get grants in an NR slot in each direction, because the control
    channel (PDCCH) has no room for more. Default: no limit."""
    block_size: Literal["lena", "3gpp"] = "lena"
    """Rule for the size of transport blocks: `lena`, that of 5G-LENA; `3gpp`, that of TS 38.214,
    section 5.1.3.2."""

    @property
    def slot_s(self) -> float:
        """Length of an NR slot."""
        return 15e-3 / self.subcarrier_spacing_khz

    @model_validator(mode="after")
    def _pattern_known(self) -> "Nr":
        pattern = self.tdd_pattern
        if set(pattern) - {"S"} != {"D", "U"}:
            raise ValueError(
                "tdd_pattern: must consist of 'D', 'S' and 'U', with at least one 'D' and one 'U'; "
                f"not {pattern!r}"
            )
        if any(
            slot == "S" and (pattern[i - 1] != "D" or pattern[(i + 1) % len(pattern)] != "U")
            for i, slot in enumerate(pattern)
        ):
            raise ValueError(
                f"tdd_pattern: each 'S' must be between 'D' and 'U', because its gap changes the "
                f"direction; not {pattern!r}"
            )
        slots = TDD_CYCLE_MS * self.subcarrier_spacing_khz // 15
        if self.duplex == "tdd" and slots % len(pattern):
            raise ValueError(
                f"tdd_pattern: a whole number of patterns must fill {TDD_CYCLE_MS} ms, {slots} NR "
                f"slots with {self.subcarrier_spacing_khz} kHz; {pattern!r} has {len(pattern)}"
            )
        return self


PLAIN_NR = Nr()

WifiStandard = Literal["n", "ac", "ax"]
MOST_WIFI_W = 1.0
"""Largest power of an access point unless another one is asked for: what Wi-Fi may send with in
many countries."""


class Wifi(Section):
    """A Wi-Fi cell, for `radio.access: wifi` (see docs/radio.md)."""

    standard: WifiStandard = "n"
    """Wi-Fi standard: 802.11n, 802.11ac or 802.11ax."""
    width_mhz: Annotated[int, Field(ge=20, le=160)] = 20
    """Width of the channel, which both directions share: 20 or 40; with `ac` and `ax` also 80 or
    160."""
    rts: bool = False
    """Whether RTS and CTS are exchanged before each frame."""
    noise_figure_db: Annotated[float, Field(ge=0, le=30)] = 0.0
    """Noise figure of the receivers at the access point and the UAVs."""
    antenna_gain_db: Annotated[float, Field(ge=-30, le=40)] = 0.0
    """Sum of the antenna gains of the access point and a UAV, in addition to those in the channel
    gain."""
    access_point_power_w: Annotated[float, Field(gt=0, le=100)] | None = None
    """Transmit power of the access point. Default: `base_station.tx_power_w`, but at most 1 W."""

    @model_validator(mode="after")
    def _width_known(self) -> "Wifi":
        widths = WIFI_WIDTHS_MHZ[self.standard]
        if self.width_mhz not in widths:
            raise ValueError(
                f"width_mhz: must be one of {', '.join(map(str, widths))} for "
                f"802.11{self.standard}, not {self.width_mhz}"
            )
        return self


PLAIN_WIFI = Wifi()


class Cell(Section):
    """A further base station of an LTE or NR network (see docs/lte.md)."""

    position_m: tuple[Metres, Metres, Metres]
    """Coordinates x, y, z."""
    tx_power_w: Watts = 40.0
    """Total transmit power."""
    load: Annotated[float, Field(ge=0, le=1)] = Field(default=0.0, exclude_if=lambda load: not load)
    """Share of its downlink resource blocks in which the cell sends to users that are not
    simulated, and so interferes with the other cells."""


MOST_CELLS = 15
"""Largest number of further base stations."""


def _check_model(name: str, parameters: dict[str, Any]) -> None:
    """Refuse an unknown channel model, or parameters that it does not take."""
    CHANNELS.check(name, parameters)
    if name == LOG_DISTANCE:
        check_exponent(**parameters)


Decibels = Annotated[float, Field(ge=-200, le=200)]
Deviation = Annotated[float, Field(ge=0, le=100)]


class FittedDirection(Section):
    """One direction of a fitted channel."""

    offset_db: Decibels
    """Gain in dB that is added to the gain of the model."""
    shadowing_db: Deviation
    """Standard deviation of the shadowing, in dB. The shadowing is correlated along the path of the
    UAV."""
    decorrelation_m: Annotated[float, Field(ge=1e-3, le=1e6)]
    """Distance at which the correlation of shadowing is 1/e."""
    scatter_db: Deviation = 0.0
    """Standard deviation, in dB, of the part of the gain that varies independently from second to
    second."""
    heading_db_per_m_s: Annotated[float, Field(ge=-100, le=100)] = 0.0
    """Gain in dB per m/s of the horizontal velocity away from the base station, e.g. because the
    antenna of a UAV tilts."""
    elevation_db_per_deg: Annotated[float, Field(ge=-10, le=10)] = 0.0
    """Gain in dB per degree of the elevation angle at which the base station sees the UAV."""


class Fitted(Section):
    """A channel that was fitted to measured flights (see docs/channels.md)."""

    model: str
    """Channel model on which the fitted channel is based: a name as in `radio.channel`, but not
    `fitted`."""
    parameters: dict[str, JsonValue] = {}
    """Parameters of that model."""
    carrier_hz: Hertz
    """Carrier frequency of the flights. The offsets are valid for this frequency."""
    up: FittedDirection
    down: FittedDirection
    correlation: Annotated[float, Field(ge=-1, le=1)] = 0.0
    """Correlation between the shadowing in the uplink and in the downlink."""
    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    """SHA-256 that identifies the fit."""

    @model_validator(mode="after")
    def _model_known(self) -> "Fitted":
        models = [name for name in CHANNELS.names() if name != FITTED]
        if self.model not in models:
            raise ValueError(f"model: {not_one_of(self.model, models)}")
        with _within("radio"):
            _check_model(self.model, self.parameters)
        return self


class Radio(Section):
    """The radio channel and the rate model: FDMA at the Shannon rate, LTE, 5G NR or Wi-Fi. The
    paradigm decides whether the downlink is shared or dedicated."""

    access: str = Field(default="shannon", exclude_if=lambda access: access == "shannon")
    """Rate model of the links: `shannon`, the rate model of the paper; `lte` and `nr`,
    resource blocks with modulation and coding schemes; `wifi`, one channel for which the access
    point and the UAVs contend; or a rate model that a package registers as `testbed.radios` (see
    docs/plugins.md)."""
    access_parameters: dict[str, JsonValue] = Field(default={}, exclude_if=lambda given: not given)
    """Parameters of a plug-in rate model."""
    lte: Lte = Field(default=PLAIN_LTE, exclude_if=lambda lte: lte == PLAIN_LTE)
    nr: Nr = Field(default=PLAIN_NR, exclude_if=lambda nr: nr == PLAIN_NR)
    wifi: Wifi = Field(default=PLAIN_WIFI, exclude_if=lambda wifi: wifi == PLAIN_WIFI)
    carrier_hz: Annotated[float, Field(ge=0.5e9, le=30e9)] = 2.0e9
    """Carrier frequency, f_c."""
    uplink_bandwidth_hz: Hertz = 20e6
    """Uplink bandwidth W_U, divided among the UAVs by `allocation.beta`."""
    downlink_bandwidth_hz: Hertz = 20e6
    """Downlink bandwidth, W_D."""
    noise_dbm_per_mhz: Annotated[float, Field(ge=-200, le=100)] = -114.0
    """Noise power spectral density, N0."""
    line_of_sight: Literal["always", "probability", "never"] = "always"
    """Whether UAVs have a line of sight (LOS): always, with the LOS probability of TR 36.777, or
    never (NLOS)."""
    shadow_fading: bool = False
    """Whether the log-normal shadow fading of TR 36.777 is added to the path loss."""
    fading: Literal["none", "rayleigh", "rician"] = Field(
        default="none", exclude_if=lambda kind: kind == "none"
    )
    """Model of small-scale fading; the random seed determines the fading. Its Doppler spread
    follows from the UAV's speed (Jakes' model). The rate of a slot is the mean over its fading
    blocks."""
    fading_block: Literal["tti", "slot"] = Field(
        default="tti", exclude_if=lambda block: block == "tti"
    )
    """Duration for which small-scale fading is constant: a TTI of 1 ms (with NR, an NR slot), or a
    slot."""
    rician_k_db: Annotated[float, Field(ge=-40, le=60)] = Field(
        default=10.0, exclude_if=lambda k_db: k_db == 10.0
    )
    """With Rician fading: ratio of the power of the direct path to the total power of all other
    paths."""
    doppler_hz: Annotated[float, Field(gt=0, le=1e5)] | None = Field(
        default=None, exclude_if=lambda doppler: doppler is None
    )
    """Doppler shift of small-scale fading. Default: the shift that follows from the UAV's speed in
    each slot."""
    cells: Annotated[list[Cell], Field(max_length=MOST_CELLS)] = Field(
        default=[], exclude_if=lambda cells: not cells
    )
    """Further base stations of LTE or NR, which use the same carriers as `base_station` and
    interfere with it. All of them are connected to the server without delay."""
    handover: Literal["a3", "none"] = Field(default="a3", exclude_if=lambda kind: kind == "a3")
    """Handover rule: `a3`, a UAV changes to a cell from which it receives more power (event A3 of
    TS 36.331); `none`, it stays in the cell that is the strongest in slot 0."""
    a3_hysteresis_db: Annotated[float, Field(ge=0, le=15, multiple_of=0.5)] = Field(
        default=3.0, exclude_if=lambda db: db == 3.0
    )
    """Amount by which the power received from the other cell must be higher, in steps of 0.5 dB."""
    a3_time_to_trigger_s: Annotated[float, Field(ge=0, le=5.12)] = Field(
        default=0.256, exclude_if=lambda time_s: time_s == 0.256
    )
    """Time for which the other cell must be stronger, in whole milliseconds."""
    downlink_is: Literal["link", "cell"] | None = Field(
        default=None, exclude_if=lambda given: given is None
    )
    """Meaning of `downlink_bps` in a trace of rates. `link`: the rate of each link. `cell`: the
    rate of the whole cell, which is divided among parallel gradients by `allocation.rho`. Default:
    the setting in the trace."""
    channel: str = Field(default=RMA, exclude_if=lambda name: name == RMA)
    """`rma-av`, another built-in model (see docs/channels.md), or one that a package registers as
    `testbed.channels` (see docs/plugins.md)."""
    parameters: dict[str, JsonValue] = Field(default={}, exclude_if=lambda given: not given)
    """Parameters of `log-distance` (`exponent`) or of a plug-in channel."""
    fitted: Fitted | None = Field(default=None, exclude_if=lambda fitted: fitted is None)
    """Path of the file that contains the fit, for `radio.channel: fitted`. When the scenario is
    loaded, the object `channel` in this file replaces the path. The path is relative to the
    scenario's file. With `--set`, it is relative to the working directory."""

    @model_validator(mode="after")
    def _access_known(self) -> "Radio":
        with _within("radio"):
            RADIOS.check(self.access, self.access_parameters)
        return self

    @model_validator(mode="after")
    def _channel_known(self) -> "Radio":
        with _within("radio"):
            _check_model(self.channel, self.parameters)
        without = "models neither obstacles nor fading"
        reasons = dict.fromkeys((*PLAIN, LOG_DISTANCE), without)
        reasons[FITTED] = "has the line of sight and the shadowing of its fit"
        for name in ("line_of_sight", "shadow_fading") if self.channel in reasons else ():
            if getattr(self, name) != Radio.model_fields[name].default:
                raise ValueError(f"{name}: {self.channel!r} {reasons[self.channel]}")
        if self.channel == FITTED and self.fitted is None:
            raise ValueError("fitted: is missing; radio.channel 'fitted' needs a fit")
        if self.channel != FITTED and self.fitted is not None:
            raise ValueError(f"fitted: needs radio.channel 'fitted', not {self.channel!r}")
        return self

    @property
    def model(self) -> str:
        """The name of the model that gives the path loss: the channel, or that which is fitted."""
        return self.channel if self.fitted is None else self.fitted.model

    @property
    def remembers(self) -> bool:
        """Whether the gains of a slot may depend on earlier positions, so that no slot can be made
        again."""
        known = self.model in (RMA, *PLAIN, *AERIAL, LOG_DISTANCE)
        random = self.shadow_fading or self.line_of_sight == "probability"
        return not known or random or self.fading != "none" or bool(self.fitted or self.cells)

    @property
    def model_parameters(self) -> dict[str, JsonValue]:
        """The parameters of `model`."""
        return self.parameters if self.fitted is None else self.fitted.parameters

    @property
    def kind(self) -> RadioKind:
        """The properties of the radio access."""
        return RADIO_KINDS.get(self.access, RadioKind())

    @property
    def dividing_key(self) -> str | None:
        """The key by which the UAVs that have something to send divide the band; None: each has a
        share of its own."""
        if self.kind.divides:
            return "radio.access"
        is_equal = self.kind.cell is not None and self.cell.scheduler == "equal"
        return f"radio.{self.kind.cell}.scheduler" if is_equal else None

    @property
    def cell(self) -> "Lte | Nr":
        """The cell that assigns resource blocks: that of the radio access, or LTE's."""
        return self.nr if self.kind.cell == "nr" else self.lte

    @property
    def carrier_blocks(self) -> dict[float, int]:
        """Number of resource blocks of each bandwidth in Hz that the cell may have."""
        if self.kind.cell == "nr":
            return NR_BLOCKS[self.nr.subcarrier_spacing_khz]
        return LTE_BLOCKS

    @model_validator(mode="after")
    def _whole_milliseconds(self) -> "Radio":
        milliseconds = 1e3 * self.a3_time_to_trigger_s
        if abs(milliseconds - round(milliseconds)) > 1e-9:
            raise ValueError(
                "a3_time_to_trigger_s: must be a whole number of milliseconds, not "
                f"{milliseconds:g} ms"
            )
        return self

    @model_validator(mode="after")
    def _bandwidths_of_the_cell(self) -> "Radio":
        if self.kind.cell is None:
            return self
        known = self.carrier_blocks
        for name in ("uplink_bandwidth_hz", "downlink_bandwidth_hz"):
            hertz = getattr(self, name)
            if hertz not in known:
                numbers = ", ".join(f"{hz / 1e6:g}" for hz in known)
                of_cell = "an LTE bandwidth"
                if self.kind.cell == "nr":
                    of_cell = f"an NR bandwidth with {self.nr.subcarrier_spacing_khz} kHz"
                raise ValueError(f"{name}: must be {of_cell}, {numbers} MHz, not {hertz:g} Hz")
            if (self.cell.resource_blocks or 0) > known[hertz]:
                raise ValueError(
                    f"{self.kind.cell}.resource_blocks: {name} has {known[hertz]}, "
                    f"not {self.cell.resource_blocks}"
                )
            blocks, load = self.cell.resource_blocks or known[hertz], self.cell.background.load
            if blocks * (1 - load) < 1 - 1e-9:
                raise ValueError(
                    f"{self.kind.cell}.background.load: must leave one of {blocks} resource "
                    f"blocks, at most {1 - 1 / blocks:.3g}, not {load:g}"
                )
        return self


Delay = Annotated[float, Field(ge=0, le=10)]
Probability = Annotated[float, Field(ge=0, lt=1)]


class Directions(Section):
    """A value for each direction of the links: one number for all UAVs, or one per UAV."""

    up: Delay | list[Delay] = 0.0
    """Value for the uplink, from the UAVs to the base station."""
    down: Delay | list[Delay] = 0.0
    """Value for the downlink, from the base station to the UAVs."""


class IndependentLoss(Section):
    """Each frame is lost independently of all others."""

    model: Literal["independent"]
    """`independent`."""
    probability: Probability | list[Probability]
    """Probability of frame loss; one number for all UAVs, or a list with one per UAV."""


class GilbertElliott(Section):
    """Frames are lost in bursts. The channel has a good and a bad state, and the state may change
    with each frame."""

    model: Literal["gilbert-elliott"]
    """`gilbert-elliott`."""
    good_to_bad: Annotated[float, Field(ge=0, le=1)]
    """Probability of a transition from the good to the bad state, p."""
    bad_to_good: Annotated[float, Field(gt=0, le=1)]
    """Probability of a transition from the bad to the good state, r."""
    loss_good: Probability = 0.0
    """Probability of frame loss in the good state, 1 - k."""
    loss_bad: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Probability of frame loss in the bad state, 1 - h."""


class SnrLoss(Section):
    """The frame error rate depends on the signal-to-noise ratio (SNR) of the slot; the radio may
    retransmit frames."""

    model: Literal["snr"]
    """`snr`."""
    threshold_db: Annotated[float, Field(ge=-100, le=200)] | None = None
    """SNR at which half of the frames have errors, i.e. the SNR that the modulation and coding
    scheme needs. The frame error rate is a logistic function of the SNR in dB."""
    width_db: Annotated[float, Field(gt=0, le=100)] = 1.0
    """Width of the logistic function: at this distance above the threshold, the frame error rate is
    1/(1 + e), i.e. 27 %."""
    table: list[tuple[float, Annotated[float, Field(ge=0, le=1)]]] | None = None
    """Table that replaces the logistic function: pairs of an SNR in dB and a frame error rate, in
    increasing order of the SNR. Values between the pairs are interpolated linearly; outside their
    range, the first or the last value applies."""
    retransmissions: Annotated[int, Field(ge=0, le=16)] = 0
    """Maximum number of retransmissions of a frame by the radio (HARQ). A frame is lost if its last
    retransmission fails."""
    retransmission_s: Annotated[float, Field(ge=0, le=1)] = 0.008
    """Delay that each retransmission adds to a frame."""

    @model_validator(mode="after")
    def _one_curve(self) -> "SnrLoss":
        if (self.threshold_db is None) == (self.table is None):
            raise ValueError("threshold_db: give either this or table")
        if self.table is not None:
            ratios = [ratio for ratio, _ in self.table]
            if not ratios or any(a >= b for a, b in pairwise(ratios)):
                raise ValueError("table: its ratios must increase, and it needs at least one")
        return self


class OfTrace(Section):
    """A column of the trace contains the value for each slot (see docs/delay-and-loss.md)."""

    model: Literal["trace"]
    """`trace`."""


class ByDistance(Section):
    """A delay that grows with the distance from the base station."""

    model: Literal["distance"]
    """`distance`: the propagation delay at the speed of light, plus `base_s`."""
    base_s: Delay = 0.0
    """Delay at distance 0."""


LossModel = IndependentLoss | GilbertElliott | SnrLoss | OfTrace
DelayModel = ByDistance | OfTrace
OneLoss = Probability | list[Probability] | Annotated[LossModel, Field(discriminator="model")]


class DirectedLoss(Section):
    """Frame loss for each direction of the links."""

    up: OneLoss = 0.0
    """Frame loss in the uplink, from the UAVs to the base station."""
    down: OneLoss = 0.0
    """Frame loss in the downlink, from the base station to the UAVs."""


def _kind_of(value: object) -> str:
    """The member of a union that a value is meant to be, so that only this one reports errors."""
    if isinstance(value, (LossModel, DelayModel)):
        return "link-model"
    if isinstance(value, dict) and "model" in value:
        return "link-model"
    if isinstance(value, (Directions, DirectedLoss, dict)):
        return "directions"
    return "list" if isinstance(value, list) else "number"


OneWayDelay = Annotated[
    Annotated[Delay, Tag("number")]
    | Annotated[list[Delay], Tag("list")]
    | Annotated[Directions, Tag("directions")]
    | Annotated[Annotated[DelayModel, Field(discriminator="model")], Tag("link-model")],
    Discriminator(_kind_of),
]
Jitter = Annotated[
    Annotated[Delay, Tag("number")]
    | Annotated[list[Delay], Tag("list")]
    | Annotated[Directions, Tag("directions")]
    | Annotated[OfTrace, Tag("link-model")],
    Discriminator(_kind_of),
]
FrameLoss = Annotated[
    Annotated[Probability, Tag("number")]
    | Annotated[list[Probability], Tag("list")]
    | Annotated[DirectedLoss, Tag("directions")]
    | Annotated[Annotated[LossModel, Field(discriminator="model")], Tag("link-model")],
    Discriminator(_kind_of),
]


class Links(Section):
    """Delay, jitter and loss of frames on the links, and their queues (see docs/delay-and-loss.md).

    A number applies to all links and both directions. A list has one value per UAV. `up` and `down`
    set a separate value for each direction.
    """

    one_way_delay_s: OneWayDelay = 0.0
    """One-way delay of a frame after it has been sent, in emulated seconds; or a model: `distance`
    or `trace`."""
    jitter_s: Jitter = 0.0
    """Standard deviation of the one-way delay, which has a normal distribution truncated at 0; or
    the model `trace`."""
    reordering: bool = Field(default=False, exclude_if=lambda reordering: not reordering)
    """Whether a frame with a shorter delay may overtake earlier frames. If false, frames arrive in
    the order in which they were sent."""
    loss: FrameLoss = 0.0
    """Probability of frame loss, or a model: `independent`, `gilbert-elliott`, `snr`, `trace`."""
    relay: bool = Field(default=False, exclude_if=lambda relay: not relay)
    """Whether UAVs can reach each other through the base station, in sessions of `testbed up`."""
    at_trace_end: Literal["end", "repeat"] = Field(default="end", exclude_if=lambda at: at == "end")
    """Behaviour of a session at the end of a replayed trace: it ends, or it repeats the trace."""
    queue: Literal["fifo", "fq_codel", "pie", "red"] = "fifo"
    """Queueing discipline at both ends of a link, if the kernel supports it. The queue holds at
    most 100 frames of full size."""
    ecn: bool = False
    """Whether TCP negotiates explicit congestion notification. If true, queues other than `fifo`
    mark frames instead of dropping them."""

    def loss_of(self, side: str) -> OneLoss:
        """The loss model of one direction, `up` or `down`."""
        if isinstance(self.loss, DirectedLoss):
            return self.loss.up if side == "up" else self.loss.down
        return self.loss

    def needs_snr(self, *sides: str) -> bool:
        """Whether loss in one of these directions, `up` or `down`, depends on the signal-to-noise
        ratio."""
        return any(isinstance(self.loss_of(side), SnrLoss) for side in sides)

    @property
    def vary_by_slot(self) -> bool:
        """Whether delay, jitter or loss differ between slots."""
        values = (self.one_way_delay_s, self.jitter_s, self.loss_of("up"), self.loss_of("down"))
        return any(map(varies_by_slot, values))

    @property
    def lose_or_vary(self) -> bool:
        """Whether any link loses frames, or its delay differs between frames or slots."""
        return self.vary_by_slot or _acts(self.jitter_s) or _acts(self.loss)

    @property
    def are_impaired(self) -> bool:
        """Whether any link delays or loses frames."""
        return self.vary_by_slot or _acts(self.one_way_delay_s) or _acts(self.loss)


def varies_by_slot(value: object) -> bool:
    """Whether a key of `links` is a model whose values change by slot."""
    return isinstance(value, (ByDistance, OfTrace, SnrLoss))


def _acts(value: object) -> bool:
    """Whether a delay or a loss is above 0 on any link."""
    if isinstance(value, list):
        return any(value)
    if isinstance(value, (Directions, DirectedLoss)):
        return _acts(value.up) or _acts(value.down)
    return _acts(value.probability) if isinstance(value, IndependentLoss) else bool(value)


IDEAL_LINKS = Links()


class Profile(Section):
    """Costs per sample for each split u = 1, 2, … They do not depend on the batch size."""

    client_forward_flops: list[Work] = Field(min_length=1, max_length=MOST_SPLITS)
    """Work of the client's forward pass for one sample, Ψ_CF."""
    server_forward_flops: list[Work]
    """Work of the server's forward pass for one sample, Ψ_SF."""
    adapter_bytes: list[Bytes]
    """Size of the client-side trainable parameters, Γ_M."""
    smashed_bytes: list[Annotated[int, Field(ge=0, le=10**12)]]
    """Size of the smashed data of one sample, Γ_A; its gradient has the same size. It is 0 if the
    client trains the whole model, as in federated learning without a split."""
    adapter_header_bytes: list[Annotated[int, Field(ge=0, le=10**9)]] = Field(
        default_factory=lambda given: [0] * len(given.get("client_forward_flops", []))
    )
    """Size of the safetensors header that precedes the adapters. Default: 0."""
    trainable_bytes: Bytes | None = Field(default=None, exclude_if=lambda size: size is None)
    """Size of all trainable parameters on both sides, including the head. Edge servers and the
    cloud exchange them (`topology`). Default: the largest value in `adapter_bytes`."""

    @model_validator(mode="after")
    def _one_entry_per_split(self) -> "Profile":
        splits = len(self.client_forward_flops)
        for name in Profile.model_fields.keys() - {"trainable_bytes"}:
            if (entries := len(getattr(self, name))) != splits:
                raise ValueError(f"{name}: must have one entry per split: {splits}, not {entries}")
        return self


class Data(Section):
    """The data that the clients train on."""

    source: str = "synthetic"
    """`synthetic`, or a folder. The folder contains the binary files of CIFAR-100; or images and
    labels in Parquet files or in the format in which the library `datasets` saves to disk; or one
    folder per class. The training part and the held-out part are recognised by the names of files
    and folders (see docs/data.md). If there is no held-out part, a random tenth of each class,
    determined by the random seed, is held out. For language models, a file or folder with texts or
    arrays of tokens (see docs/language-models.md). A folder with the JSON files of LEAF or the HDF5
    files of TensorFlow Federated has samples of named clients."""
    samples: Annotated[int, Field(ge=1, le=10**9)] = 2000
    """Size of the synthetic training set."""
    partition: str = "iid"
    """Distribution of the samples among the clients. `iid`: uniform; `dirichlet`: label skew, with
    a Dirichlet distribution for each class; `quantity`: quantity skew, with one Dirichlet
    distribution for all samples; `shards`: label skew, with a few shards of sorted samples for each
    client (McMahan et al. 2017); `feature`: feature skew, uniform with noise that grows from client
    to client; `column`: each UAV has the samples of one natural client, such as a writer; or a
    partition that a package registers as `testbed.partitions` (see
    docs/plugins.md)."""
    partition_parameters: dict[str, JsonValue] = Field(
        default={}, exclude_if=lambda given: not given
    )
    """Parameters of a plug-in partition, by name."""
    partition_column: str | None = Field(default=None, exclude_if=lambda name: name is None)
    """With the partition `column`, the column of a table that names the client of each sample.
    Default: the clients of LEAF or TensorFlow Federated, or one folder per client. If there are
    more clients than UAVs, as many are chosen by the random seed, and the output names the others
    (see docs/data.md)."""
    concentration: Annotated[float, Field(ge=1e-3, le=1e6)] = 0.5
    """Concentration of the Dirichlet distributions. Small values give uneven distributions."""
    shards: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default=2, exclude_if=lambda shards: shards == 2
    )
    """With the partition `shards`: number of shards of each UAV. With one or two shards, a UAV has
    samples of few classes."""
    noise: Annotated[float, Field(ge=0, le=1e3)] = Field(
        default=0.5, exclude_if=lambda noise: noise == 0.5
    )
    """With feature skew: standard deviation of the noise in the last client's images, in standard
    deviations of a colour channel. The noise of client k is k / K times this value."""
    image_column: str | None = Field(default=None, exclude_if=lambda name: name is None)
    """For tables: column that contains the images. Default: the only column that fits."""
    label_column: str | None = Field(default=None, exclude_if=lambda name: name is None)
    """For tables: column that contains the labels (integers or strings). Default: the only column
    that fits."""
    tokenizer: str | None = Field(default=None, exclude_if=lambda given: given is None)
    """Tokenizer for the texts of a language model: `bytes` (UTF-8), or a folder that transformers
    can read. Default: the tokenizer in the model's folder, or `bytes` if there is none."""
    text_column: str | None = Field(default=None, exclude_if=lambda name: name is None)
    """Column of tables, or key in JSON lines, that contains the texts for a language model.
    Default: `text`, or the only column of texts."""

    @model_validator(mode="after")
    def _partition_known(self) -> "Data":
        with _within("workload.data"):
            check_partition(self.partition, self.partition_parameters)
        return self


class Asynchronous(Section):
    """The rule by which an asynchronous paradigm merges updates into the global model. Without a
    buffer (Xie et al. 2019), the new model is (1 - a) · global + a · client, where `client` is the
    model of the client and a = mixing · s(t). With a buffer (Nguyen et al. 2022), the new model is
    global + server_learning_rate · d, where d is the mean of s(t) · (client - received) over the
    buffered updates, and `received` is the global model that the client received. The staleness t
    is the number of changes of the global model since the client received it."""

    updates: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Number of updates per round from all UAVs together. A round ends when these updates have
    arrived. Faster UAVs contribute more updates. Default: four times the number of participating
    UAVs."""
    mixing: Annotated[float, Field(gt=0, le=1)] = 0.6
    """Weight of an update with staleness 0."""
    staleness: Literal["polynomial", "hinge", "constant"] = "polynomial"
    """Weight s(t) of an update with staleness t. `polynomial`: (1 + t)^-exponent; `hinge`: 1 /
    (exponent (t - hinge) + 1) where t > hinge, else 1; `constant`: 1."""
    exponent: Annotated[float, Field(ge=0, le=100)] = 0.5
    """Exponent in s(t)."""
    hinge: Annotated[int, Field(ge=0, le=100_000)] = 4
    """Largest staleness at which `hinge` gives full weight."""
    buffer: Annotated[int, Field(ge=1, le=100_000)] = Field(
        default=1, exclude_if=lambda count: count == 1
    )
    """Number of updates that the server collects before it changes the global model (FedBuff). With
    1, each update changes it at once (FedAsync)."""
    server_learning_rate: Annotated[float, Field(gt=0, le=1000)] = Field(
        default=1.0, exclude_if=lambda rate: rate == 1.0
    )
    """Factor by which the mean difference is multiplied if there is a buffer."""
    start: Literal["at-once", "after-aggregation"] = Field(
        default="at-once", exclude_if=lambda start: start == "at-once"
    )
    """The model that a UAV gets after its update has been put into the buffer. `at-once`: the
    current model; `after-aggregation`: the next model (semi-asynchronous aggregation). If all UAVs
    wait, the updates in the buffer are applied at once."""
    evaluate_every_updates: Annotated[int, Field(ge=1, le=10**9)] | None = Field(
        default=None, exclude_if=lambda count: count is None
    )
    """Number of updates between evaluations of the global model on held-out data, in addition to
    those of `workload.evaluate_every`."""
    evaluate_every_s: Annotated[float, Field(gt=0, le=1e9)] | None = Field(
        default=None, exclude_if=lambda every_s: every_s is None
    )
    """Emulated seconds between evaluations of the global model on held-out data, in addition to
    those of `workload.evaluate_every`."""


ASYNCHRONOUS_DEFAULTS = Asynchronous()


CodecChoice = str | dict[str, JsonValue]
"""The name of a codec, or its name and parameters."""


ADAPTERS = ("adapters_up", "adapters_down")


class Codecs(Section):
    """Encodings for each direction. Each is the name of a codec, or a mapping with `name` and the
    codec's parameters, such as `{name: top-k, share: 0.05}`."""

    smashed: CodecChoice | None = None
    """Encoding of smashed data. Default: `wire_dtype`."""
    gradient: CodecChoice | None = None
    """Encoding of gradients. Default: `wire_dtype`."""
    adapters_up: CodecChoice | None = None
    """Encoding of the adapters that UAVs send. The difference between the trained and the received
    adapters is encoded. Default: the trained adapters themselves, as float32."""
    adapters_down: CodecChoice | None = None
    """Encoding of the global adapters that the base station sends. Training begins with the decoded
    adapters. Default: float32."""
    error_feedback: bool = True
    """Whether a UAV keeps the error of the encoding and adds it to the next difference that it
    sends."""

    @model_validator(mode="after")
    def _all_known(self) -> "Codecs":
        for direction in DIRECTIONS:
            if (choice := getattr(self, direction)) is None:
                continue
            if isinstance(choice, dict) and not isinstance(choice.get("name"), str):
                raise ValueError(f"{direction}: must have the name of a codec as `name`")
            with _within(""), _renamed(direction):
                made = codec_of(*named_codec(choice))
            of_adapters = direction.startswith("adapters") and isinstance(made, TopK)
            if of_adapters and isinstance(choice, dict) and "feedback" in choice:
                raise ValueError(
                    f"{direction}.feedback: must be absent; that of adapters is error_feedback"
                )
            if direction == "adapters_down" and isinstance(made, TopK):
                raise ValueError(
                    "adapters_down: must not be 'top-k', which would set most adapters to 0"
                )
        return self

    def named(self, direction: Direction) -> tuple[str, dict[str, Any]] | None:
        """The name and the parameters of a direction's codec; None: none is given, or adapters are
        float32."""
        if (choice := getattr(self, direction)) is None:
            return None
        named = named_codec(choice)
        return None if direction in ADAPTERS and named[0] == "float32" else named


PLAIN_CODECS = Codecs()


def named_codec(choice: CodecChoice) -> tuple[str, dict[str, Any]]:
    """The name and the parameters of a codec."""
    if isinstance(choice, str):
        return choice, {}
    return str(choice["name"]), {key: value for key, value in choice.items() if key != "name"}


@contextmanager
def _renamed(direction: str) -> Iterator[None]:
    """Name the key of a direction in the message about a codec, which names `workload.wire_…`."""
    try:
        yield
    except InputError as error:
        _, _, rest = str(error).partition("workload.wire_")
        rest = rest.removeprefix("dtype").removeprefix("parameters").lstrip(".: ")
        raise InputError(f"{direction}: {rest or error}") from None


class Workload(Section):
    """The model that is trained, and how it is split."""

    model: str = Field(
        default="swin_large_patch4_window7_224",
        pattern=r"^([A-Za-z0-9_.-]+|hf:[^\x00-\x20][^\x00-\x1f]*)$",
    )
    """The model: a Swin, Swin V2, ViT, DeiT, BEiT, EVA, ConvNeXt, ResNet, VGG, EfficientNet,
    MobileNet or RegNet from timm; a model that a package registers as `testbed.models`; or a
    language model from transformers, `hf:FOLDER` or `hf:FAMILY`. See docs/learning.md,
    docs/plugins.md and docs/language-models.md."""
    parameters: dict[str, JsonValue] = Field(default={}, exclude_if=lambda given: not given)
    """Parameters of a plug-in model, or the configuration of a family of language models."""
    classes: Annotated[int, Field(ge=2, le=MOST_CLASSES)] = 100
    """Number of classes. For a language model, this is the size of its vocabulary and need not be
    given."""
    sequence_length: Annotated[int, Field(ge=2, le=1_000_000)] | None = Field(
        default=None, exclude_if=lambda length: length is None
    )
    """Tokens per sample of a language model. Default: 128, or the number of positions of the model
    if it is smaller."""
    split: SplitPoint | Annotated[list[SplitPoint], Field(min_length=1)] = 2
    """Number of parts of the model on the client, u: stages of a Swin or of a convolutional
    network, blocks of other models. A list has one number per UAV."""
    local_iterations: Iterations | Annotated[list[Iterations], Field(min_length=1)] = 3
    """Local iterations per round, I. A list has one number per UAV. A UAV that has finished its
    iterations sends its adapters, and the others no longer wait for it."""
    sampling: Literal["draws", "epochs"] = Field(
        default="draws", exclude_if=lambda sampling: sampling == "draws"
    )
    """Choice of the samples of a batch. `draws`: each batch is a fresh draw; `epochs`: batches pass
    over the client's samples without replacement, in a new random order for each pass. Passes
    continue from iteration to iteration and from round to round (see docs/data.md)."""
    last_batch: Literal["drop", "keep"] = Field(
        default="drop", exclude_if=lambda choice: choice == "drop"
    )
    """With `sampling: epochs`, what happens to the samples at the end of a pass that do not fill a
    batch. `drop`: this pass does not use them; `keep`: they are a smaller batch, which only
    `testbed learn` supports."""
    local_epochs: Epochs | list[Epochs] | None = Field(
        default=None, exclude_if=lambda epochs: epochs is None
    )
    """With `sampling: epochs`, number of passes per round, E. A list has one number per UAV. The
    number of samples of each UAV then determines its `local_iterations`, and a given value of this
    key is replaced."""
    batch_size: BatchSize | Annotated[list[BatchSize], Field(min_length=1)] = 8
    """Samples per batch, B. A list has one number per UAV."""
    compute: Literal["real", "none"] = "real"
    """`real` trains the model with torch; `none` sends the same number of bytes without torch."""
    compute_time: Literal["modelled", "measured"] = "modelled"
    """`modelled`: a step takes the time that follows from the computing speeds; `measured`: a step
    takes the time that it needs on this machine."""
    profile: Literal["auto", "counted"] | Profile = "auto"
    """FLOPs and bytes of each split. `auto`: for the paper's model, the values of the paper's table
    II; for other models, counted values. `counted`: counted values for every model."""
    backward_ratio: Annotated[float, Field(ge=1e-3, le=1000)] = 2.0
    """Ratio of the work of the backward pass to that of the forward pass, ς."""
    gradient_aggregation: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.0, exclude_if=lambda share: share == 0
    )
    """Share φ of the samples of a batch whose gradients are aggregated. These gradients are
    averaged over the clients, weighted by the clients' numbers of samples, and broadcast once
    (EPSL, Lin et al. 2024; SFL-GA with φ = 1). A value above 0 requires a paradigm in which
    gradients wait for all clients, such as `sfl-sp` (see docs/protocols.md)."""
    lora_rank: Rank | list[Rank] = 8
    """Rank of the adapters, which are applied to linear layers or convolutions. A list has one
    number per UAV (HetLoRA): the global adapters have the largest rank, and each UAV trains a part
    of them."""
    lora_alpha: Annotated[float, Field(ge=1e-6, le=1e6)] = 8.0
    """Scale of the adapters: LoRA adds lora_alpha / lora_rank · B A x. If ranks differ, the largest
    one is used for all UAVs."""
    lora_targets: str | None = Field(default=None, exclude_if=lambda given: given is None)
    """Regular expression for the names of the linear layers and convolutions that get adapters.
    Default: all linear layers except the head, or all convolutions if the model has no linear
    layers before its head."""
    lora_dropout: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0, exclude_if=lambda rate: rate == 0
    )
    """Dropout rate at the inputs of the adapters during training."""
    adapters: Literal["lora", "dora", "full", "none"] = Field(
        default="lora", exclude_if=lambda kind: kind == "lora"
    )
    """The parameters that are trained in addition to the head: `lora`, adapters; `dora`, also the
    magnitude of each output of an adapted layer (Liu et al. 2024), without dropout; `full`, all
    parameters; `none`, only the head."""
    batch_norm: Literal["averaged", "frozen", "local", "per-client"] = Field(
        default="averaged", exclude_if=lambda choice: choice == "averaged"
    )
    """Statistics of batch normalisation. `averaged`: they are averaged with the parameters;
    `frozen`: they keep the values in the weights; `local`: they and the affine parameters stay at
    each client (FedBN, Li et al. 2021); `per-client`: only the statistics stay at each client
    (SiloBN, Andreux et al. 2020)."""
    learning_rate: LearningRate | list[LearningRate] = 1e-3
    """Learning rate of the optimiser. The optimiser is reset at the start of each round. A list has
    one number per UAV, which applies to both sides of its model."""
    optimiser: Literal["adamw", "sgd"] = "adamw"
    """Optimiser of all trained parameters."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.9, exclude_if=lambda momentum: momentum == 0.9
    )
    """Momentum of the optimiser `sgd`."""
    learning_rate_schedule: Literal["constant", "cosine", "step", "linear"] = Field(
        default="constant", exclude_if=lambda schedule: schedule == "constant"
    )
    """Schedule by which the learning rate decreases from round to round: `cosine` and `linear`
    decrease it to `learning_rate_last`; `step` multiplies it by `learning_rate_decay` every
    `learning_rate_step` rounds (see docs/learning.md)."""
    learning_rate_warmup: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        default=0, exclude_if=lambda rounds: rounds == 0
    )
    """Number of rounds at the beginning of training in which the learning rate rises linearly."""
    learning_rate_step: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=1, exclude_if=lambda rounds: rounds == 1
    )
    """Number of rounds between two changes of the learning rate by the schedule `step`."""
    learning_rate_decay: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.1, exclude_if=lambda factor: factor == 0.1
    )
    """Factor by which the schedule `step` multiplies the learning rate."""
    learning_rate_last: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.0, exclude_if=lambda share: share == 0
    )
    """Final learning rate of the schedules `cosine` and `linear`, as a share of the initial one."""
    clip_norm: Annotated[float, Field(gt=0, le=1e12)] | None = Field(
        default=None, exclude_if=lambda norm: norm is None
    )
    """Largest 2-norm of a gradient. Gradients with a larger norm are scaled down to this norm,
    separately for each side of a client's model. Default: no clipping."""
    accumulate: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=1, exclude_if=lambda batches: batches == 1
    )
    """Number of batches per step of the optimiser. The gradients of these batches are averaged. At
    the end of a round, an additional step uses the remaining batches."""
    weight_decay: Annotated[float, Field(ge=0, le=100)] = 0.0
    """Weight decay of the optimiser."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Number format used for computation. `bfloat16` uses autocast; adapters and head remain
    float32."""
    wire_dtype: str = "float32"
    """Encoding of smashed data and gradients on the links: `float32`, `float16`, `bfloat16`,
    `int8`, `int4`, `top-k`, or a codec that a package registers as `testbed.codecs` (see
    docs/aggregation.md). The section `codecs` overrides this key for each direction, and it sets
    the encoding of adapters."""
    wire_parameters: dict[str, JsonValue] = Field(default={}, exclude_if=lambda given: not given)
    """Parameters of the codec, by name."""
    codecs: Codecs = Field(default=PLAIN_CODECS, exclude_if=lambda codecs: codecs == PLAIN_CODECS)
    recompute: bool = False
    """Whether UAVs recompute activations in the backward pass. This needs less memory and gives the
    same results."""
    weights: str | None = None
    """Frozen weights of the model: a safetensors file, or `pretrained`, which downloads them from
    timm's hub. Default: random weights, determined by the random seed. For a language model, a
    folder with safetensors files is also allowed, and `pretrained` downloads the model and its
    weights from the Hugging Face hub. If the folder of a language model contains weights, they are
    the default."""
    head: Literal["file", "new"] | None = Field(default=None, exclude_if=lambda head: head is None)
    """Head with which training begins: `file` takes it from `weights`, whose head must fit
    `classes`; `new` initialises it at random, as determined by the random seed. Default: `file` if
    the head in `weights` fits; otherwise `new`, and the run reports this."""
    train_head: bool | None = Field(default=None, exclude_if=lambda given: given is None)
    """Whether all parameters of the head are trained, together with the adapters. Default: true;
    with a language model, true only if `adapters` is `full`. A head that is not trained keeps its
    initial values."""
    image_size: Annotated[int, Field(ge=16, le=4096)] | None = None
    """Height and width of the input in pixels. Default: that of the model."""
    wire_error: bool = False
    """Whether nodes record the error that the encoding causes in smashed data and gradients."""
    data: Data = Data()
    evaluate_every: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Number of rounds between evaluations of the global model on held-out data. Further
    evaluations take place before the first and after the last round. 0 disables these
    evaluations."""
    evaluate_samples: Annotated[int, Field(ge=1, le=10**9)] = 500
    """Largest number of held-out samples per evaluation."""
    aggregation: str = Field(default="fedavg", exclude_if=lambda rule: rule == "fedavg")
    """Rule that aggregates the models of a round: `fedavg`; `fedprox`; `fedavgm`, `fedadam`,
    `fedyogi` and `fedadagrad`, with an optimiser at the server; `svd`, the mean of the products
    B A; `scaffold`, `feddyn`, `fednova` and `q-fedavg`, which correct for unequal clients;
    `trimmed-mean`, `median`, `krum` and `multi-krum`, which withstand wrong models; or a rule that
    a package registers as `testbed.aggregators` (see docs/aggregation.md)."""
    aggregation_parameters: dict[str, JsonValue] = Field(
        default={}, exclude_if=lambda given: not given
    )
    """Parameters of the aggregation rule, by name."""
    local_step: str | None = Field(default=None, exclude_if=lambda step: step is None)
    """What clients do in addition to the steps of their optimiser: `proximal`, the proximal term of
    `fedprox` with any rule; `personal`, tensors of which each client keeps its own; `private`,
    clipping and noise for differential privacy; or a local step that a package registers as
    `testbed.local_steps` (see docs/aggregation.md). Default: only what the aggregation rule asks
    for."""
    local_step_parameters: dict[str, JsonValue] = Field(
        default={}, exclude_if=lambda given: not given
    )
    """Parameters of the local step, by name."""
    asynchronous: Asynchronous = Field(
        default=ASYNCHRONOUS_DEFAULTS, exclude_if=lambda section: section == ASYNCHRONOUS_DEFAULTS
    )
    server_adapters: Literal["per-client", "shared", "averaged"] = "per-client"
    """`per-client`: one set of server-side adapters per client, averaged at the end of a round;
    `averaged`: the same, but averaged after each iteration; `shared`: one set, which is trained
    with the batches of all clients."""
    clients_per_pass: Annotated[int, Field(ge=1, le=1000)] = 1
    """Largest number of clients whose waiting batches the server computes in one pass, if
    measurements show that this is faster. With a value above 1, the last bits of the results depend
    on which batches wait at the same time."""

    @field_validator("lora_targets")
    @classmethod
    def _targets_compile(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"is not a regular expression: {error}") from None
        return pattern

    @model_validator(mode="before")
    @classmethod
    def _classes_of_language_model(cls, given: Any) -> Any:
        """Put the vocabulary in place of `classes` if these are not given."""
        model = given.get("model") if isinstance(given, dict) else None
        if not isinstance(model, str) or not is_language(model) or "classes" in given:
            return given
        parameters, weights = given.get("parameters") or {}, given.get("weights")
        if not isinstance(parameters, dict) or not isinstance(weights, str | None):
            return given
        with _within("workload"):
            language = language_model(model, parameters, weights)
        return given | {"classes": language.vocabulary}

    @property
    def language(self) -> LanguageModel | None:
        """The language model of transformers that is trained; None: it is another model.

        Raises:
            InputError: There is no such model, it cannot be split, or `classes` is not its
                vocabulary.
        """
        if not is_language(self.model):
            return None
        found = language_model(self.model, self.parameters, self.weights, self.classes)
        if self.classes != found.vocabulary:
            raise InputError(
                f"workload.classes: must be {found.vocabulary}, the vocabulary of {self.model}, or "
                f"absent, not {self.classes}"
            )
        return found

    @property
    def trains_head(self) -> bool:
        """Whether the head is trained."""
        if self.train_head is not None:
            return self.train_head
        return self.adapters == "full" or not is_language(self.model)

    @model_validator(mode="after")
    def _keys_of_language_models(self) -> "Workload":
        data = self.data
        if not is_language(self.model):
            if self.sequence_length is not None:
                raise ValueError(f"sequence_length: belongs to hf: models, not to {self.model!r}")
            for name in ("tokenizer", "text_column") if self.model not in MODELS.plugins else ():
                if getattr(data, name) is not None:
                    raise ValueError(
                        f"data.{name}: belongs to models of tokens, not to {self.model!r}"
                    )
            return self
        if self.image_size is not None:
            raise ValueError(f"image_size: belongs to timm's models, not to {self.model!r}")
        for name in ("image_column", "label_column"):
            if getattr(data, name) is not None:
                raise ValueError(f"data.{name}: belongs to pictures, not to {self.model!r}")
        return self

    @model_validator(mode="after")
    def _plugin_takes_its_parameters(self) -> "Workload":
        if is_language(self.model):
            return self
        if self.model not in MODELS.plugins:  # A model of timm; there is no list of them here.
            if self.parameters:
                raise ValueError(f"parameters: {self.model!r} has none")
            return self
        if self.image_size is not None:
            raise ValueError(f"image_size: belongs to timm's models, not to {self.model!r}")
        with _within("workload"):
            MODELS.check(self.model, self.parameters)
        return self

    @model_validator(mode="after")
    def _split_of_its_model(self) -> "Workload":
        if isinstance(self.profile, Profile):
            splits = len(self.profile.client_forward_flops)
        elif self.model.startswith("swin"):
            splits = SWIN_STAGES
        else:
            return self  # Checked where the costs of the model are counted.
        if (deepest := self.deepest_split) > splits:
            raise ValueError(f"split: must be at most {splits}, not {deepest}")
        return self

    @model_validator(mode="after")
    def _accumulates_within_a_round(self) -> "Workload":
        most = self.largest("local_iterations")
        counted = self.local_epochs is None or "local_iterations" in self.model_fields_set
        if counted and self.accumulate > most:
            raise ValueError(
                f"accumulate: must be at most the {most} iterations of a round, not "
                f"{self.accumulate}"
            )
        return self

    @property
    def statistics_stay(self) -> bool:
        """Whether a part of the model may stay with each client."""
        return self.batch_norm in ("local", "per-client")

    @model_validator(mode="after")
    def _aggregation_known(self) -> "Workload":
        with _within("workload"):
            if self.local_step is None and self.local_step_parameters:
                raise InputError("workload.local_step_parameters: there is no local_step")
            local_steps(
                *(self.aggregation, self.aggregation_parameters),
                *(self.local_step, self.local_step_parameters),
            )
        return self

    @property
    def algorithm(self) -> Algorithm:
        """The aggregation rule, to ask for what it needs."""
        return algorithm_of(self.aggregation, self.aggregation_parameters)

    @property
    def travelling(self) -> Travelling:
        """The vectors that accompany adapters, and whether UAVs keep state between rounds."""
        return travelling(
            *(self.aggregation, self.aggregation_parameters),
            *(self.local_step, self.local_step_parameters),
        )

    @property
    def stays_at_clients(self) -> bool:
        """Whether each UAV keeps tensors of its own from round to round."""
        return self.statistics_stay or self.travelling.stays

    @model_validator(mode="after")
    def _codec_known(self) -> "Workload":
        with _within("workload"):
            varying = self.varying_sizes
        if self.gradient_aggregation and "gradient" in varying:
            raise ValueError(
                "gradient_aggregation: must be 0, because the sizes of the codec of gradients "
                "depend on the data"
            )
        return self

    @property
    def codec(self) -> Codec:
        """The codec of smashed data and gradients, where `codecs` does not replace it."""
        return codec_of(self.wire_dtype, self.wire_parameters)

    def codec_for(self, direction: Direction) -> Codec | None:
        """The codec of a direction; None: adapters are sent as float32, without a codec."""
        if (named := self.codecs.named(direction)) is not None:
            return codec_of(*named)
        return None if direction in ADAPTERS else self.codec

    @property
    def varying_sizes(self) -> tuple[Direction, ...]:
        """The directions whose codec makes sizes that depend on the data."""
        return tuple(each for each in DIRECTIONS if varies(self.codec_for(each)))

    @property
    def keeps_feedback(self) -> bool:
        """Whether UAVs keep from round to round what the encoding of adapters omitted."""
        encodes = self.codecs.named("adapters_up") is not None
        return encodes and self.codecs.error_feedback and self.compute == "real"

    def of_client(self, key: str, client: int) -> Any:
        """The value of one of `PER_CLIENT` for a client (from 1)."""
        value = getattr(self, key)
        return value[client - 1] if isinstance(value, list) else value

    def largest(self, key: str) -> Any:
        """The largest value of one of `PER_CLIENT`."""
        value = getattr(self, key)
        return max(value) if isinstance(value, list) else value

    def differs(self, key: str) -> bool:
        """Whether clients have different values of one of `PER_CLIENT`."""
        value = getattr(self, key)
        return isinstance(value, list) and len(set(value)) > 1

    @property
    def differing_loads(self) -> tuple[str, ...]:
        """The keys of `LOADS` in which clients differ."""
        return tuple(key for key in LOADS if self.differs(key))

    @property
    def aggregated_samples(self) -> int:
        """Samples per batch whose gradients are averaged over the clients, ⌈φB⌉."""
        batch: int = self.largest("batch_size")
        return math.ceil(self.gradient_aggregation * batch - 1e-9)

    @property
    def deepest_split(self) -> int:
        """The largest u_k."""
        return self.split if isinstance(self.split, int) else max(self.split)

    @property
    def differing_splits(self) -> bool:
        """Whether clients have different split points."""
        return not isinstance(self.split, int) and len(set(self.split)) > 1

    @property
    def why_split_matters(self) -> str:
        """The key because of which the split point affects what is learned; empty if it does not.

        Codecs and the mean of the clients' gradients change the tensors at the cut; clipping and an
        average in each iteration concern the parameters of one side.
        """
        for name in (
            *("dtype", "wire_dtype", "codecs", "gradient_aggregation", "clip_norm"),
            *("server_adapters", "local_step"),
        ):
            if getattr(self, name) != Workload.model_fields[name].default:
                return f"workload.{name}"
        return ""


class Uploads(Section):
    """The order and sharing of uploads of smashed data and adapters, if they differ from those of
    the paradigm."""

    sharing: Sharing | None = None
    """`parallel`: all clients upload at the same time, each in its share of the uplink;
    `sequential`: the clients upload one after the other, each with the full bandwidth of the
    uplink. Default: the setting of the paradigm, which is `parallel` for all built-in paradigms."""
    order: UploadOrder | None = None
    """Order of sequential uploads: `first-come`: in the order in which they become ready;
    `scheduled`: strictly in the order in which `participation.rule` has chosen the clients, or in
    the order of their indices if all clients take part. Default: the order of the paradigm."""
    adapters_wait_for_all: bool | None = None
    """Whether the upload of adapters starts only when all clients have finished their last backward
    pass. Default: the setting of the paradigm, which is false for all built-in paradigms."""


UPLOADS_OF_PARADIGM = Uploads()


class Observation(Section):
    """The information about the channel that a policy has when a round starts."""

    delay_slots: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Delay, in slots, after which gains and positions are known."""
    noise_db: Annotated[float, Field(ge=0, le=100)] = 0.0
    """Standard deviation of the measurement error of gains. The errors are independent from slot to
    slot, and the random seed determines them."""
    position_noise_m: Annotated[float, Field(ge=0, le=1000)] = Field(
        default=0.0, exclude_if=lambda given: given == 0
    )
    """Standard deviation of the measurement error of each horizontal coordinate of the positions
    that an agent observes."""


class AllocationSection(Section):
    """The policy that decides on split points and shares, and the shares for the policy `fixed`."""

    policy: str = "fixed"
    """`fixed`: the shares below and `workload.split`; `equal`: a share of 1/K for each UAV;
    `static`: the best allocation among those that are the same in all rounds; `planner`: the result
    of a search before each round; `per-client-planner`: the same search, with a separate split
    point for each client; `agent`: a trained agent; or a policy that a package registers as
    `testbed.policies` (see docs/plugins.md)."""
    parameters: dict[str, JsonValue] = {}
    """Parameters of a plug-in policy."""
    observation: Observation = Field(
        default=Observation(), exclude_if=lambda given: given == Observation()
    )
    agent: str | None = None
    """Folder of the trained agent, for the policy `agent`; see `testbed train`."""
    alpha: Shares = "equal"
    """Shares of the server's computing speed, for parallel computing."""
    beta: Shares = "equal"
    """Shares of the uplink bandwidth, and with parallel transmission also of the downlink
    bandwidth."""
    rho: Shares = "equal"
    """Shares of the base station's transmit power, for parallel transmission."""

    @property
    def kind(self) -> PolicyKind:
        """The properties of the policy."""
        return POLICY_KINDS.get(self.policy, PolicyKind())

    @model_validator(mode="after")
    def _policy_known(self) -> "AllocationSection":
        with _within("allocation"):
            POLICIES.check(self.policy, self.parameters)
        return self


class Edge(Section):
    """An edge server, i.e. a base station that serves some of the UAVs in its own frequency
    band."""

    uavs: list[Annotated[int, Field(ge=1)]] = Field(min_length=1)
    """Indices of the UAVs that the edge server serves, starting from 1. Each UAV belongs to one
    edge server. The position of this edge server is the centre of its rings `uavs.rings_m`."""
    position_m: tuple[Metres, Metres, Metres] | None = None
    """Coordinates x, y, z. Default: `base_station.position_m`."""
    tx_power_w: Watts | None = None
    """Total transmit power. Default: `base_station.tx_power_w`."""
    compute_flops: Flops | None = None
    """Computing speed in FLOP/s. Default: `base_station.compute_flops`."""


class Backhaul(Section):
    """The wired link between an edge server and the cloud; each edge server has its own link."""

    uplink_bps: Annotated[float, Field(ge=1, le=1e12)]
    """Rate from an edge server to the cloud, in bit/s."""
    downlink_bps: Annotated[float, Field(ge=1, le=1e12)]
    """Rate from the cloud to an edge server, in bit/s."""
    one_way_delay_s: Annotated[float, Field(ge=0, le=10)] = 0.0
    """One-way delay in each direction, in seconds."""


class Topology(Section):
    """A hierarchy of UAVs, edge servers and a cloud (see docs/hierarchy.md)."""

    edges: list[Edge] = Field(min_length=1, max_length=1000)
    """The edge servers."""
    edge_rounds: Annotated[int, Field(ge=1, le=1000)] = 1
    """Number of rounds that each edge server runs before the cloud aggregates the models of the
    edge servers. Each of these rounds ends with an aggregation (κ2 of HierFAVG)."""
    backhaul: Backhaul
    """The links between edge servers and cloud."""

    @model_validator(mode="after")
    def _one_edge_per_uav(self) -> "Topology":
        seen: dict[int, int] = {}
        for e, edge in enumerate(self.edges):
            for client in edge.uavs:
                if (other := seen.setdefault(client, e)) != e or edge.uavs.count(client) > 1:
                    raise ValueError(f"edges.{e}.uavs: UAV {client} is already in edges.{other}")
        return self


class Participation(Section):
    """The choice of the clients that take part in a round."""

    clients: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Number of UAVs that take part in each round. Default: all of them, or the number that a
    plug-in rule or `fedcs` chooses. With `topology`: the number at each edge server."""
    rule: str = "random"
    """Rule that chooses the clients when a round starts: `random`: clients chosen at random, as
    determined by the random seed; `by-channel`: the clients with the best uplinks; `round-robin`:
    all clients in turn; `fedcs`: as many clients as can finish in time according to the prediction,
    out of `clients` candidates that are chosen at random in the same way (see docs/protocols.md);
    or a rule that a package registers as `testbed.participation` (see docs/plugins.md)."""
    parameters: dict[str, JsonValue] = {}
    """Parameters of the rule `fedcs` or of a plug-in rule."""
    deadline_s: Duration | None = Field(default=None, exclude_if=lambda given: given is None)
    """Time in emulated seconds after which a round continues without stragglers. A deadline
    requires `faults.on_loss: drop`. Default: a round waits for all clients."""

    @model_validator(mode="after")
    def _rule_known(self) -> "Participation":
        with _within("participation"):
            PARTICIPATION.check(self.rule, self.parameters)
        if self.schedules_uploads:
            round_s = self.parameters.get("round_s")
            if round_s is None:
                raise ValueError("parameters.round_s: is missing; 'fedcs' needs it")
            if isinstance(round_s, bool) or not isinstance(round_s, int | float) or not round_s > 0:
                raise ValueError(f"parameters.round_s: must be a positive number, not {round_s!r}")
        return self

    @property
    def schedules_uploads(self) -> bool:
        """Whether the rule determines the order in which the chosen clients upload."""
        return self.rule == "fedcs"

    @property
    def is_blind(self) -> bool:
        """Whether the index of a round determines its clients, without channel or times."""
        takes_all = self.clients is None and self.rule in COUNTED_RULES
        return takes_all or self.rule in ("random", "round-robin")


ALL_CLIENTS = Participation()


class Objective(Section):
    """The objective of the paper: latency + energy_weight · largest energy consumption of a
    client."""

    energy_weight: Annotated[float, Field(ge=0, le=1e9)] = 4.0
    """Weight λ, in s/J."""
    flight_energy_weight: Annotated[float, Field(ge=0, le=1e9)] = Field(
        default=0.0, exclude_if=lambda weight: weight == 0
    )
    """Weight of the largest energy of flight of a UAV in s/J, which is added to the objective. It
    requires `propulsion.model`."""


class Propulsion(Section):
    """Power of flight of the UAVs (see docs/heterogeneous-uavs.md). The energy of flight
    is reported next to the energy of the paper, which counts computing and sending."""

    model: Literal["none", "rotary-wing", "table"] = "none"
    """`none`: flight is not modelled; `rotary-wing`: the model of Zeng, Xu and Zhang (2019), eq.
    (12), with the parameters below; `table`: the power at the speeds in `table`."""
    blade_w: Power = 79.8563
    """Power of the blade profile in hover, P_0, in W."""
    induced_w: Power = 88.6279
    """Induced power in hover, P_i, in W."""
    tip_speed_m_s: Annotated[float, Field(ge=1, le=1000)] = 120.0
    """Speed of the tip of the rotor blade, U_tip."""
    rotor_velocity_m_s: Annotated[float, Field(ge=0.1, le=100)] = 4.03
    """Mean rotor induced velocity in hover, v_0."""
    drag_ratio: Annotated[float, Field(ge=0, le=100)] = 0.6
    """Fuselage drag ratio, d_0."""
    air_kg_m3: Annotated[float, Field(ge=0, le=10)] = 1.225
    """Air density, ρ."""
    rotor_solidity: Annotated[float, Field(ge=0, le=1)] = 0.05
    """Rotor solidity, s."""
    rotor_m2: Annotated[float, Field(ge=0, le=100)] = 0.503
    """Area of the rotor disc, A."""
    weight_n: Annotated[float, Field(ge=0, le=1e5)] = 20.0
    """Weight of a UAV in N. Climbing adds the weight times the rate of climb to the power."""
    table: list[tuple[Speed, Power]] = []
    """For `table`: pairs of a horizontal speed in m/s and a power in W, by ascending speed. Between
    them, the power is interpolated; at higher speeds, it is that of the last pair."""

    @model_validator(mode="after")
    def _table_fits(self) -> "Propulsion":
        speeds = [speed for speed, _ in self.table]
        if (self.model == "table") != bool(speeds):
            needs = "must have one or more pairs" if self.model == "table" else "must be empty"
            raise ValueError(f"table: {needs} with model {self.model!r}")
        if any(after <= before for before, after in pairwise(speeds)):
            raise ValueError("table: speeds must ascend")
        return self


NO_PROPULSION = Propulsion()


class Limits(Section):
    """Limits within which a run is valid; a run that exceeds one is marked as not valid.

    With the clock `virtual`, some defaults are tighter. The descriptions of the keys give these
    defaults.
    """

    calibration_error: Limit = 0.03
    """Largest rate error of a link, measured before the run. The rate error of a link is the median
    of its errors at the lowest, middle and highest rate, each reduced by the error that a pause of
    2 ms on this machine can cause. Default in virtual time: 0.01."""
    injector_lateness_s: Limit = 0.005
    """Delay from the boundary of a slot to the rate changes that are due at this boundary, in real
    seconds (99th percentile). Default in virtual time: 0.00001."""
    radio_lateness_s: Limit = Field(default=0.005, exclude_if=lambda limit: limit == 0.005)
    """Delay of ns-3's radio relative to the clock, in real seconds (99th percentile of the largest
    delay in each slot). Default in virtual time: 0.0001."""
    unaccounted_packets: Limit = Field(default=0, exclude_if=lambda limit: limit == 0)
    """Number of packets on a link that are unaccounted for at the end: ns-3's radio has neither
    delivered nor lost them, and they are not in its queues."""
    exhausted_slots: Annotated[int, Field(ge=0, le=10**9)] = 0
    """Number of slots for which the rate controller had no rates."""
    dropped_frames: Limit = 0.01
    """Share of a link's frames that its queue dropped."""
    backlog_bytes: Limit = 10_000
    """Backlog of a link's queue at the end of a round."""
    compute_share: Limit = 0.02
    """Overruns of modelled computing, as a share of the round's latency. Default in virtual time:
    0.0001."""
    injection_share: Limit = 0.005
    """Effect of late rate changes, as a share of the round's latency. Default in virtual time:
    0.00001."""
    rest_share: Limit = 0.02
    """Part of a round's latency that the error budget cannot explain, as a share of the latency.
    Default in virtual time: 0.01."""
    transfer_error: Limit = 0.03
    """Relative error of transfers, compared with the integral of the rates of their links (95th
    percentile). A deviation of one packet at the end of a transfer is ignored, and the broadcast is
    not included. If links delay or lose frames, only transfers that end too early count. Default in
    virtual time: 0.02."""
    broadcast_error: Limit = Field(default=0.25, exclude_if=lambda limit: limit == 0.25)
    """Relative error of the transfers of a broadcast, defined as for `transfer_error`. These
    transfers all begin at the same time and may overload a machine for a few milliseconds. With the
    real clock, an error of 2 ms per transfer is ignored. Default in virtual time: 0.05."""
    loss_deviation: Limit = Field(default=5.0, exclude_if=lambda limit: limit == 5.0)
    """Difference between the number of frames that a link lost and the expected number, in standard
    deviations. If links delay or lose frames, this limit replaces `rest_share`."""
    clock_error_s: Limit = Field(default=0.001, exclude_if=lambda limit: limit == 0.001)
    """Largest error of the assumed offset between the clocks of two machines, in real seconds, if
    nodes run on several machines."""
    late_frames: Limit = Field(default=0.01, exclude_if=lambda limit: limit == 0.01)
    """Share of a link's frames that arrived at least one millisecond (real time) later than the
    section `links` allows."""
    cpu_steal: Limit = 0.05
    """Share of CPU time that other guests on the same host used."""
    cpu_others: Limit = 0.5
    """Share of CPU time that programs outside the run used."""
    clock_drift_ppm: Limit = 200.0
    """Drift between the clock of the emulation and a clock that is never adjusted, in ppm."""


VIRTUAL_DATE, _DATES = "2026-01-01", (date(2000, 1, 1), date(2199, 12, 31))


def _date(value: object) -> str:
    """A date of YAML, or a text with one, in the form of ISO 8601."""
    with suppress(TypeError, ValueError):
        read = value if isinstance(value, date) else date.fromisoformat(value)  # type: ignore[arg-type]
        if not isinstance(read, datetime) and _DATES[0] <= read <= _DATES[1]:
            return read.isoformat()
    first, last = _DATES
    given = str(value)[:40]
    raise ValueError(f"must be a date from {first} to {last} like {VIRTUAL_DATE}, not {given!r}")


OF_REAL_CLOCK = ("dilation", "overrun_bound")
"""The keys of `emulation` that always have their default in virtual time."""
LIMITS_OF_REAL_CLOCK = ("clock_error_s", "cpu_steal", "cpu_others", "clock_drift_ppm")
"""The keys of `emulation.limits` that have no meaning in virtual time, where no other program
runs."""


def _others(section: Section, names: Sequence[str]) -> dict[str, Any]:
    """The defaults of those fields that have another value."""
    defaults = {name: type(section).model_fields[name].default for name in names}
    return {name: value for name, value in defaults.items() if getattr(section, name) != value}


class Emulation(Section):
    """Settings of the emulated network."""

    runtime: Literal["namespace", "docker"] = "namespace"
    """`namespace`: processes in network namespaces, without root; `docker`: containers, with root.
    """
    clock: Literal["real", "virtual"] = Field(
        default="real", exclude_if=lambda clock: clock == "real"
    )
    """`real`: the clock of this machine; `virtual`: the clock of a separate Linux kernel, which
    stops while programs compute. With `virtual`, there are no overruns, and repeated runs give
    identical measurements. The keys `dilation`, `overrun_bound` and, of `limits`, `clock_error_s`,
    `cpu_steal`, `cpu_others` and `clock_drift_ppm` then have no effect: the dilation is 1."""
    air: Literal["links", "ns3"] = Field(default="links", exclude_if=lambda air: air == "links")
    """How frames are transmitted between nodes. `links`: over links of the kernel with the rates of
    the radio model. `ns3`: through ns-3, which simulates the radio access `radio.access` packet by
    packet."""
    virtual_date: Annotated[str, BeforeValidator(_date)] = Field(
        default=VIRTUAL_DATE, exclude_if=lambda given: given == VIRTUAL_DATE
    )
    """Date on which the clock of a guest starts with `clock: virtual`, at 0:00 UTC, for example
    `2026-11-25`. Programs that check certificates need a date on which the certificates are valid.
    From 2000-01-01 to 2199-12-31."""
    memory_bytes: Annotated[int, Field(ge=1 << 30, le=1 << 40)] = Field(
        default=1 << 32, exclude_if=lambda memory: memory == 1 << 32
    )
    """Size of the memory of a guest with `clock: virtual`, in whole MiB. Programs see this size,
    so it does not depend on the machine. Only the part that a guest uses occupies memory there."""
    dilation: Literal["auto"] | Annotated[float, Field(ge=1e-3, le=1e6)] = 1.0
    """Number of real seconds per emulated second. Links and modelled computing are slowed down by
    this factor. `auto`: the smallest factor at which, according to the prediction, this machine
    computes fast enough. With `clock: virtual`, the dilation is always 1."""
    overrun_bound: Annotated[float, Field(ge=1e-6, le=1)] = 0.01
    """Largest predicted effect of overruns with `dilation: auto`, as a share of a round's
    latency."""
    congestion_control: str = Field(default="cubic", pattern=r"^[a-z0-9_]+$")
    """Congestion control of every TCP connection; `testbed doctor` lists the algorithms of the
    kernel. QUIC supports `cubic` and `reno`."""
    mtu: Annotated[int, Field(ge=576, le=9000)] = 1500
    """Maximum size of an IP packet on the links, in bytes."""
    placement: (
        Literal["spread", "pack"] | dict[str, list[Annotated[str, Field(pattern=NODE)]]] | None
    ) = Field(default=None, exclude_if=lambda placement: placement is None)
    """Placement of nodes on hosts with `run --scheduler`. `spread` (the default): over all hosts,
    in proportion to their cores; `pack`: onto the smallest number of hosts with a core for each
    node. A mapping from host names to lists of nodes is also allowed."""
    transport: str = "tcp"
    """Transport protocol: `tcp`, another built-in protocol (see docs/overheads.md), or one that a
    package registers as `testbed.transports` (see docs/plugins.md)."""
    connection: Literal["kept", "per-transfer"] = "kept"
    """`kept`: one connection per link for the whole run; `per-transfer`: a new connection for each
    transfer, opened by its sender."""
    nagle: bool = False
    """Whether TCP delays small segments until earlier ones are acknowledged."""
    initial_window: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Initial congestion window of TCP in segments, also after an idle period. Default: the
    kernel's value, ten segments."""
    rate_counts: Literal["frame", "payload"] = "frame"
    """Bytes that count towards the rate of the channel. `frame`: whole Ethernet frames; `payload`:
    only the payload, so that headers take additional time."""
    calibrate: bool | None = Field(default=None, exclude_if=lambda asked: asked is None)
    """Whether every link is measured at its lowest, middle and highest rate before the run or
    session. Default: with the real clock only. In virtual time, no link can be late."""
    docker_image: str = "host"
    """Image of the nodes with the Docker runtime. `host`: the read-only file system of this
    machine, so that no image needs to be built; otherwise the name of an image."""
    limits: Limits = Limits()
    _replaced: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _fixed_in_virtual_time(self) -> "Emulation":
        if self.clock == "virtual":
            own = _others(self, OF_REAL_CLOCK)
            limits = _others(self.limits, LIMITS_OF_REAL_CLOCK)
            self._replaced = (*own, *(f"limits.{name}" for name in limits))
            self.__dict__ |= {**own, "limits": self.limits.model_copy(update=limits)}
        return self

    @property
    def calibrates(self) -> bool:
        """Whether links are measured before the run or session."""
        return self.clock == "real" if self.calibrate is None else self.calibrate

    @property
    def uncalibrated(self) -> str:
        """Why links are not measured before the run or session; empty: they are."""
        if self.calibrates:
            return ""
        if self.calibrate is None:
            return "emulation.clock is virtual, so no link can be late"
        return "emulation.calibrate is off"

    @property
    def replaced(self) -> tuple[str, ...]:
        """The given keys in place of whose values virtual time has the defaults."""
        return self._replaced

    @property
    def starts_ns(self) -> int:
        """Unix time of `virtual_date` in ns."""
        days = date.fromisoformat(self.virtual_date) - date(1970, 1, 1)
        return days.days * 86_400 * 10**9

    @property
    def transport_kind(self) -> TransportKind:
        """The transport protocol as an object.

        Raises:
            InputError: No transport has that name, or a plug-in cannot be loaded.
        """
        return kind_of(self.transport)


class ResolvedEmulation(Emulation):
    """The section `emulation` with numbers in place of `auto`."""

    dilation: Annotated[float, Field(gt=0, le=1e6)] = 1.0


FaultKind = Literal[
    "uav-crash",
    "bs-crash",
    "link-outage",
    "partition",
    "slow-node",
    "corrupt-frame",
    "duplicate-frame",
]
LASTING = ("link-outage", "partition", "slow-node")
"""Faults that have a duration; the others happen at one moment."""


class FaultEvent(Section):
    """One fault. See docs/faults.md for the kinds of faults."""

    kind: FaultKind
    """Kind of the fault."""
    nodes: list[Annotated[str, Field(pattern=NODE)]] = []
    """Nodes that the fault affects: `uav1`, `uav2`, …, and for `slow-node` also `bs`. A `bs-crash`
    needs no nodes."""
    round: Annotated[int, Field(ge=0, lt=1_000_000)] | None = None
    """Round from whose start `at_s` is measured, given by its index (starting from 0). Default:
    `at_s` is measured from the start of the run. With `topology`: a round of an edge server."""
    at_s: Annotated[float, Field(ge=0, le=1e9)] = 0.0
    """Time of the fault in emulated seconds, rounded to the nearest slot boundary."""
    duration_s: Duration | None = None
    """Duration of a `link-outage`, `partition` or `slow-node`. Default: until the end of the
    run."""
    factor: Annotated[float, Field(ge=1, le=1e6)] = 2.0
    """Factor by which computing takes longer on a slow node."""

    @model_validator(mode="after")
    def _fits_its_kind(self) -> "FaultEvent":
        of_bs = str(BS) in self.nodes
        if self.kind == "bs-crash":
            if self.nodes not in ([], [str(BS)]):
                raise ValueError("nodes: a bs-crash affects only the base station")
        elif not self.nodes:
            raise ValueError(f"nodes: is missing; which nodes does {self.kind} affect?")
        elif of_bs and self.kind != "slow-node":
            raise ValueError(f"nodes: {self.kind} affects UAVs, not bs")
        if self.duration_s is not None and self.kind not in LASTING:
            raise ValueError(f"duration_s: {self.kind} happens at a moment")
        return self


MOST_FAULTS = 10_000
"""Largest number of random faults."""


class RandomFaults(Section):
    """Random faults; a random seed determines them. Start times are uniformly distributed in
    `within_s`, and each fault affects one UAV."""

    count: Annotated[int, Field(ge=0, le=MOST_FAULTS)] | None = None
    """Number of faults. Default: a random number with a Poisson distribution, on average
    `rate_per_s` faults per second."""
    rate_per_s: Annotated[float, Field(ge=0, le=100)] = 0.0
    """Mean number of faults per second, if `count` is not given."""
    kinds: list[FaultKind] = Field(default=["link-outage"], min_length=1)
    """Kinds of faults, which occur with equal probability."""
    within_s: Duration = 60.0
    """Time in emulated seconds, from the start of the run, within which the faults begin."""
    duration_s: tuple[Duration, Duration] = (1.0, 5.0)
    """Shortest and longest duration of faults that have a duration."""
    factor: tuple[Annotated[float, Field(ge=1, le=1e6)], Annotated[float, Field(ge=1, le=1e6)]] = (
        2.0,
        4.0,
    )
    """Smallest and largest factor by which slow nodes are slowed down."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    """Random seed for the faults. Default: the scenario's seed."""

    @model_validator(mode="after")
    def _ranges_in_order(self) -> "RandomFaults":
        if self.count is None and not self.rate_per_s:
            raise ValueError("count: is missing, and so is rate_per_s; how many faults?")
        if self.count is None and (mean := self.rate_per_s * self.within_s) > MOST_FAULTS:
            raise ValueError(
                f"rate_per_s: {self.rate_per_s:g} faults per second in within_s {self.within_s:g} "
                f"are {mean:,.0f} faults; at most {MOST_FAULTS:,} are possible"
            )
        for name in ("duration_s", "factor"):
            low, high = getattr(self, name)
            if low > high:
                raise ValueError(f"{name}: {low:g} must not be above {high:g}")
        return self


class Faults(Section):
    """Faults during the run, and how a round handles the loss of a client."""

    events: list[FaultEvent] = []
    """List of faults at given times."""
    random: RandomFaults | None = None
    """Faults at random times; a random seed determines them."""
    on_loss: Literal["wait", "drop", "abort"] = "wait"
    """How a round reacts to a client that is considered lost: `wait` for it if it can return,
    `drop` it from the round, or `abort` the run."""
    loss_timeout_s: Duration = 5.0
    """Time without a message, in emulated seconds, after which a client is considered lost."""

    @property
    def kinds(self) -> list[FaultKind]:
        """The kinds of all faults that may happen."""
        drawn = [] if self.random is None else self.random.kinds
        return [*(event.kind for event in self.events), *drawn]


def _text(value: object) -> object:
    """A number of Python as text, as programs need it; that of a file is a text already."""
    if value is None:
        raise ValueError("must be a text; put it between quotes")
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


ProgramText = Annotated[str, BeforeValidator(_text)]
"""A text that programs are given as it is written in the file."""


class NodePrograms(Section):
    """Programs of a node in a session of `testbed up`, and their permissions (see
    docs/programs.md)."""

    command: str | Annotated[list[ProgramText], Field(min_length=1)] | None = None
    """Command line for a shell, or a list with a program and its arguments, which are passed as
    they are written: `0755` stays `0755`."""
    image: Annotated[str, Field(min_length=1)] | None = None
    """Container image in which the programs run, for runtimes with containers."""
    cpus: Annotated[float, Field(ge=0.01, le=1024)] | None = None
    """Largest number of CPUs that each program may use, for runtimes with containers. At most the
    number of CPUs of the machine."""
    memory_bytes: Annotated[int, Field(ge=6 << 20, le=1 << 50)] | None = None
    """Largest amount of memory that each program may use; without containers, that each of its
    processes may allocate. Docker allows no less than 6 MiB."""
    processes: Annotated[int, Field(ge=16, le=1 << 20)] = 4096
    """Largest number of processes and threads that each program may have; without containers, that
    the node may have."""
    env: dict[Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")], ProgramText] = {}
    """Environment variables, in addition to those that all nodes have. Their values are texts, as
    they are written: `0755`, `1.10` and `yes` are not changed."""
    writable: list[str] = []
    """Files and folders within the working directory that the programs may write, in addition to
    their home directory."""


def _lists(value: object, where: str) -> Iterator[tuple[str, list[float]]]:
    """All lists with one value per UAV within a key of `links`, each with its name."""
    if isinstance(value, list):
        yield where, value
    elif isinstance(value, IndependentLoss):
        yield from _lists(value.probability, f"{where}.probability")
    elif isinstance(value, (Directions, DirectedLoss)):
        for way in ("up", "down"):
            yield from _lists(getattr(value, way), f"{where}.{way}")


class Scenario(Section):
    """One experiment: the UAVs and their flight, the training task, and how the server serves its
    clients."""

    name: str = Field(default="scenario", pattern=r"^[\w.-]+$", max_length=80)
    """Name of the scenario in reports."""
    paradigm: str = "cpsfl"
    """Paradigm, i.e. the way in which the server serves its clients: `sfl-pp`, `sfl-sp`, `sfl-ps`,
    `pipesfl`, `cpsfl`, the ablations `-no-at` and `-no-ps` of the last two, the asynchronous
    `asfl-pp`, `asfl-sp` and `asfl-ps`, or a plug-in (see docs/plugins.md)."""
    order: str | None = Field(default=None, exclude_if=lambda order: order is None)
    """Service order of sequential resources, if it differs from that of the paradigm: `larger-lag`,
    `first-come`, `shortest-job-first`, `longest-remaining-work-first`, `round-robin`, or one that a
    package registers as `testbed.orders` (see docs/service-orders.md)."""
    order_parameters: dict[str, float] = Field(default={}, exclude_if=lambda given: not given)
    """Parameters of a service order from a plug-in. All parameters are numbers."""
    uploads: Uploads = Field(
        default=UPLOADS_OF_PARADIGM, exclude_if=lambda section: section == UPLOADS_OF_PARADIGM
    )
    rounds: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """Number of rounds to predict or emulate."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 1
    """Random seed for mobility, fading, weights and data."""
    slot_s: Annotated[float, Field(ge=1e-3, le=10)] = 0.1
    """Length of a slot, τ0; the channel is constant within a slot."""
    longest_round_s: Duration = Field(default=1e5, exclude_if=lambda longest_s: longest_s == 1e5)
    """Largest length of a round in emulated seconds. A longer one is refused before its channel
    fills the memory; usually, a key has a wrong unit."""
    base_station: BaseStation = BaseStation()
    uavs: Uavs
    mobility: Mobility = Mobility()
    radio: Radio = Radio()
    links: Links = Field(default=IDEAL_LINKS, exclude_if=lambda links: links == IDEAL_LINKS)
    workload: Workload = Workload()
    allocation: AllocationSection = AllocationSection()
    participation: Participation = Field(
        default=ALL_CLIENTS, exclude_if=lambda section: section == ALL_CLIENTS
    )
    topology: Topology | None = Field(default=None, exclude_if=lambda given: given is None)
    """Edge servers between the UAVs and a cloud. Default: the base station serves all UAVs."""
    objective: Objective = Objective()
    propulsion: Propulsion = Field(
        default=NO_PROPULSION, exclude_if=lambda section: section == NO_PROPULSION
    )
    faults: Faults = Faults()
    emulation: Emulation = Emulation()
    analytical_models: dict[str, dict[str, JsonValue]] = Field(
        default={}, exclude_if=lambda models: not models
    )
    """Parameters of plug-in analytical models, by the name of the model (see docs/plugins.md)."""
    nodes: dict[str, NodePrograms] = Field(default={}, exclude_if=lambda nodes: not nodes)
    """Programs to run in each node in sessions of `testbed up`, by name of the node: `bs`, `uav1`,
    … or `uav*` for every UAV."""

    @field_validator("paradigm")
    @classmethod
    def _paradigm_known(cls, name: str) -> str:
        with _within("paradigm"):
            paradigm(name)
        return name

    @model_validator(mode="after")
    def _order_known(self) -> "Scenario":
        if self.order is None:
            if self.order_parameters:
                raise ValueError("order_parameters: belong to an order; the key order names none")
            return self
        with _within(""):
            orders.check(self.order, self.order_parameters)
        return self

    @model_validator(mode="after")
    def _analytical_models_known(self) -> "Scenario":
        known = ANALYTICAL_MODELS.plugins
        for name, parameters in self.analytical_models.items():
            if name not in known:
                raise ValueError(
                    f"analytical_models: {not_one_of(name, known)}; only packages' have parameters"
                )
            with _within(""):
                ANALYTICAL_MODELS.check(name, parameters)
        return self

    @model_validator(mode="after")
    def _nlos_has_a_model(self) -> "Scenario":
        self._check_channel()
        return self

    def _check_channel(self) -> None:
        """Check that the channel model holds where base stations and UAVs are."""
        model, height_m = AERIAL.get(self.radio.model), ends(self.uavs.height_m)
        nlos_m = 40.0 if self.radio.model == RMA else model.highest_nlos_m if model else math.inf
        if self.radio.line_of_sight == "never" and height_m[1] > nlos_m:
            raise ValueError(
                f"radio.line_of_sight: 'never' holds for uavs.height_m up to {nlos_m:g}, "
                f"not {height_m[1]:g}; TR 36.777 has no NLOS model above"
            )
        if self.radio.model == RMA and height_m[0] <= GROUND_HEIGHT_M:
            self._check_ground()
        if self.mobility.model != GAUSS_MARKOV:
            return
        far_m = max(outer for _, outer in self.uavs.ring_m)
        if self.radio.model == RMA or model is not None:
            most_m = FARTHEST_M if model is None else model.farthest_m
            for name, position_m in self.station_m.items():
                away_m = math.dist(position_m[:2], self.base_station.position_m[:2])
                if away_m and away_m + far_m > most_m:
                    raise ValueError(
                        f"{name}.position_m: is {away_m:g} m from base_station, and UAVs fly up to "
                        f"{far_m:g} m on the other side of it; radio.channel "
                        f"{self.radio.model!r} is valid up to {most_m:g} m"
                    )
        if model is None:
            return
        if far_m > model.farthest_m:
            raise ValueError(
                f"uavs.rings_m: must lie within {model.farthest_m:g} m where radio.channel is "
                f"{model.name!r}, not {far_m:g}"
            )

    @property
    def station_m(self) -> dict[str, tuple[float, float, float]]:
        """The positions of all base stations by their keys, `base_station` first."""
        further = enumerate(self.radio.cells)
        return {
            "base_station": self.base_station.position_m,
            **{f"radio.cells[{c}]": cell.position_m for c, cell in further},
        }

    @model_validator(mode="after")
    def _stations_are_apart(self) -> "Scenario":
        known: dict[tuple[float, float, float], str] = {}
        for name, position_m in self.station_m.items():
            if (other := known.setdefault(position_m, name)) != name:
                raise ValueError(f"{name}.position_m: is that of {other}")
        return self

    def _check_ground(self) -> None:
        """Check the validity of RMa of TR 38.901, the channel of low UAVs where it is RMa-AV."""
        low, high = GROUND_BS_HEIGHT_M
        where = f"where radio.channel is {RMA!r} and UAVs fly up to {GROUND_HEIGHT_M:g} m high"
        for name, (*_, bs_m) in self.station_m.items():
            if not low <= bs_m <= high:
                raise ValueError(
                    f"{name}.position_m: must be {low:g} to {high:g} m high {where}, not {bs_m:g}"
                )
        farthest_m = FARTHEST_GROUND_NLOS_M
        height_m = each(self.uavs.height_m, self.uavs.count, self.fleet_seed, "uavs.height_m")
        outer_m = np.array(self.uavs.ring_m)[:, 1]
        far_m = outer_m[height_m <= GROUND_HEIGHT_M].max(initial=0)
        by_ring = self.mobility.model == GAUSS_MARKOV
        if by_ring and self.radio.line_of_sight != "always" and far_m > farthest_m:
            raise ValueError(
                f"uavs.rings_m: must lie within {farthest_m:g} m {where} without line of sight, "
                f"not {far_m:g}"
            )

    @model_validator(mode="after")
    def _start_per_uav(self) -> "Scenario":
        _one_per_uav("mobility.start_m", self.mobility.start_m, self.uavs.count)
        return self

    @model_validator(mode="after")
    def _speeds_fit_the_fleet(self) -> "Scenario":
        for name in ("speed_m_s", "mean_speed_m_s", "speed_deviation_m_s"):
            _one_per_uav(f"mobility.{name}", getattr(self.mobility, name), self.uavs.count)
        low, high = self.fleet.speed_m_s.T
        for k in np.flatnonzero(low > high):
            raise ValueError(f"mobility.speed_m_s: {low[k]:g} to {high[k]:g} is not a range")
        mean = self.fleet.mean_speed_m_s
        for k in np.flatnonzero(~((low <= mean) & (mean <= high))):
            raise ValueError(
                f"mobility.mean_speed_m_s: must lie in speed_m_s, {low[k]:g} to {high[k]:g}"
                + (f"; UAV {k + 1} has {mean[k]:g}" if len(set(mean)) > 1 else "")
            )
        return self

    @model_validator(mode="after")
    def _one_share_per_client(self) -> "Scenario":
        for name in ("alpha", "beta", "rho"):
            shares = getattr(self.allocation, name)
            if shares != "equal" and len(shares) != self.uavs.count:
                raise ValueError(
                    f"allocation.{name}: must have one share per UAV: {self.uavs.count}, "
                    f"not {len(shares)}"
                )
        return self

    @model_validator(mode="after")
    def _one_value_per_link(self) -> "Scenario":
        for name in ("one_way_delay_s", "jitter_s", "loss"):
            for where, values in _lists(getattr(self.links, name), f"links.{name}"):
                if len(values) != self.uavs.count:
                    raise ValueError(
                        f"{where}: must have one value per UAV: {self.uavs.count}, "
                        f"not {len(values)}"
                    )
        return self

    @model_validator(mode="after")
    def _transport_known(self) -> "Scenario":
        with _within(""):
            _ = self.emulation.transport_kind
        return self

    @model_validator(mode="after")
    def _one_split_per_client(self) -> "Scenario":
        split = self.workload.split
        if not isinstance(split, int) and len(split) != self.uavs.count:
            raise ValueError(
                f"workload.split: must have one entry per UAV: {self.uavs.count}, not {len(split)}"
            )
        return self

    @model_validator(mode="after")
    def _one_load_per_client(self) -> "Scenario":
        for key in PER_CLIENT:
            _one_per_uav(f"workload.{key}", getattr(self.workload, key), self.uavs.count)
        return self

    @model_validator(mode="after")
    def _enough_to_choose_from(self) -> "Scenario":
        asked = self.participation.clients
        if asked is not None and asked > self.uavs.count:
            raise ValueError(
                f"participation.clients: there are only {self.uavs.count} UAVs, not {asked}"
            )
        return self

    @model_validator(mode="after")
    def _faults_hit_known_nodes(self) -> "Scenario":
        for index, event in enumerate(self.faults.events):
            for node in event.nodes:
                if NodeId.parse(node).client > self.uavs.count:
                    raise ValueError(
                        f"faults.events.{index}.nodes: there is no {node}; "
                        f"uavs.count is {self.uavs.count}"
                    )
        return self

    @model_validator(mode="after")
    def _nodes_are_there(self) -> "Scenario":
        for name in self.nodes:
            known = re.fullmatch(NODE, name) and NodeId.parse(name).client <= self.uavs.count
            if not known and name != ALL_UAVS:
                raise ValueError(
                    f"nodes.{name}: there is no such node; they are bs, uav1 to "
                    f"uav{self.uavs.count}, and {ALL_UAVS} for every UAV"
                )
        return self

    def programs_of(self, node: NodeId) -> NodePrograms:
        """The programs of a node; a UAV's own keys override those of `uav*`."""
        of_all = self.nodes.get(ALL_UAVS) if not node.is_bs else None
        layers = [layer for layer in (of_all, self.nodes.get(str(node))) if layer is not None]
        given = [
            {name: getattr(layer, name) for name in layer.model_fields_set} for layer in layers
        ]
        return NodePrograms.model_construct(**{k: v for keys in given for k, v in keys.items()})

    @model_validator(mode="after")
    def _buffer_fills(self) -> "Scenario":
        section = self.workload.asynchronous
        if not self.scheme.asynchronous:
            return self
        if section.buffer > self.updates:
            raise ValueError(
                f"workload.asynchronous.buffer: must be at most the {self.updates} updates of the "
                f"run, not {section.buffer}"
            )
        if section.start == "after-aggregation" and section.buffer > self._taking_part:
            raise ValueError(
                f"workload.asynchronous.buffer: must be at most the {self._taking_part} UAVs that "
                f"take part where start is 'after-aggregation', not {section.buffer}"
            )
        return self

    @model_validator(mode="after")
    def _enough_to_aggregate(self) -> "Scenario":
        least = self.workload.algorithm.least_clients
        if self.topology is not None:
            models, what = len(self.topology.edges), "edge servers"
        else:
            models, what = self._taking_part, "UAVs that take part in a round"
        if least > models:
            raise ValueError(
                f"workload.aggregation: {self.workload.aggregation!r} with these parameters needs "
                f"at least {least} models, and there are {models} {what}"
            )
        return self

    @model_validator(mode="after")
    def _edges_fit_the_fleet(self) -> "Scenario":
        if self.topology is None:
            return self
        known = [client for edge in self.topology.edges for client in edge.uavs]
        if strange := [client for client in known if client > self.uavs.count]:
            raise ValueError(
                f"topology.edges: there is no UAV {strange[0]}; uavs.count is {self.uavs.count}"
            )
        if missing := sorted(set(range(1, self.uavs.count + 1)) - set(known)):
            raise ValueError(f"topology.edges: UAV {missing[0]} is in none of them")
        for e, there in enumerate(self.at_edges):
            try:
                there._check_channel()
            except ValueError as error:
                line = str(error).replace("base_station", f"topology.edges.{e}")
                raise ValueError(line) from None
        return self

    @model_validator(mode="after")
    def _no_combination_is_broken(self) -> "Scenario":
        for line in refusals(self):
            raise ValueError(line)
        return self

    @property
    def packet_radio(self) -> Literal["lte", "nr", "wifi"] | None:
        """The radio access of ns-3 that packets of `testbed cross-check` pass; None: links at the
        model's rates, also if a policy decides shares, because those of a cell's scheduler in ns-3
        are the same in all rounds."""
        kind = self.radio.kind
        return None if kind.cell is not None and self.allocation.kind.decides else kind.ns3

    @property
    def is_impaired(self) -> bool:
        """Whether any link delays or loses frames."""
        return self.links.are_impaired or self.waits_for_slots

    @property
    def waits_for_slots(self) -> bool:
        """Whether the links delay packets as the slots of the radio do. ns-3 does it itself."""
        return self.radio.kind.waits and self.emulation.air == "links"

    @property
    def at_edges(self) -> "list[Self]":
        """The scenario as each edge server sees it, with the edge server as its base station and
        the whole fleet, of which only its own UAVs take part. An edge server with fewer UAVs than
        `participation.clients` chooses all of them. Without `topology`: itself."""
        if self.topology is None:
            return [self]
        made = []
        asked = self.participation.clients
        for edge in self.topology.edges:
            given = {
                name: value
                for name in ("position_m", "tx_power_w", "compute_flops")
                if (value := getattr(edge, name)) is not None
            }
            own: dict[str, Any] = {
                "base_station": self.base_station.model_copy(update=given),
                "topology": None,
            }
            if asked is not None and asked > len(edge.uavs):
                own["participation"] = self.participation.model_copy(
                    update={"clients": len(edge.uavs)}
                )
            made.append(self.model_copy(update=own))
        return made

    @property
    def edge_rounds(self) -> int:
        """Number of edge rounds in a round; 1 without `topology`."""
        return 1 if self.topology is None else self.topology.edge_rounds

    @property
    def members(self) -> list[list[int]]:
        """The UAVs of each edge server, from 1, in ascending order; all of them without
        `topology`."""
        if self.topology is None:
            return [list(range(1, self.uavs.count + 1))]
        return [sorted(edge.uavs) for edge in self.topology.edges]

    @property
    def updates(self) -> int:
        """Updates of all rounds of an asynchronous paradigm, of all UAVs together; 0 for other
        paradigms."""
        return self.rounds * self.updates_per_round

    @property
    def updates_per_round(self) -> int:
        """Updates per round of an asynchronous paradigm, of all UAVs together; 0 for other
        paradigms."""
        if not self.scheme.asynchronous:
            return 0
        return self.workload.asynchronous.updates or 4 * self._taking_part

    @property
    def evaluates_within_rounds(self) -> bool:
        """Whether an asynchronous run evaluates the model by updates or by emulated seconds."""
        section = self.workload.asynchronous
        return self.scheme.asynchronous and bool(
            section.evaluate_every_updates or section.evaluate_every_s
        )

    @property
    def access_point_power_w(self) -> float:
        """Transmit power of a Wi-Fi access point."""
        given = self.radio.wifi.access_point_power_w
        return min(self.base_station.tx_power_w, MOST_WIFI_W) if given is None else given

    @property
    def _taking_part(self) -> int:
        """The largest number of clients per round."""
        return self.participation.clients or self.uavs.count

    @property
    def iterations(self) -> int:
        """The largest number of iterations that a client can do in a round, or in all rounds of an
        asynchronous paradigm, which count them on."""
        return int(self.workload.largest("local_iterations")) * max(1, self.updates)

    @cached_property
    def scheme(self) -> Paradigm:
        """The paradigm as data, with what the scenario says in its place."""
        named, uploads = paradigm(self.paradigm), self.uploads
        given: dict[str, Any] = {
            "uplink": uploads.sharing,
            "uplink_order": uploads.order,
            "adapters_wait_for_all": uploads.adapters_wait_for_all,
            "gradient_aggregation": self.workload.gradient_aggregation or None,
        }
        given = {field: value for field, value in given.items() if value is not None}
        named = replace(named, **given) if given else named
        if self.order is None:
            return named
        return replace(
            named,
            title=title_of(self.paradigm, self.order),
            order=self.order,
            order_parameters=tuple(self.order_parameters.items()),
        )

    @cached_property
    def fleet(self) -> Fleet:
        """The properties of each UAV; random ones follow from the seed."""
        uavs, mobility = self.uavs, self.mobility

        def values(key: str) -> Array:
            section, name = key.split(".")
            return each(getattr(getattr(self, section), name), uavs.count, self.fleet_seed, key)

        speed_m_s = np.array(mobility.speed_m_s, float)
        return Fleet(
            tx_power_w=values("uavs.tx_power_w"),
            compute_flops=values("uavs.compute_flops"),
            compute_power_w=values("uavs.compute_power_w"),
            height_m=values("uavs.height_m"),
            speed_m_s=np.broadcast_to(speed_m_s, (uavs.count, 2)),
            mean_speed_m_s=values("mobility.mean_speed_m_s"),
            speed_deviation_m_s=values("mobility.speed_deviation_m_s"),
        )

    @property
    def fleet_seed(self) -> int:
        """The seed from which the fleet is drawn."""
        return self.seed if self.uavs.seed is None else self.uavs.seed

    def reseeded(self, seed: int) -> "Scenario":
        """The same fleet with another seed, i.e. with other flights and other fading."""
        uavs = self.uavs.model_copy(update={"seed": self.fleet_seed})
        return self.model_copy(update={"seed": seed, "uavs": uavs})

    def resolved(self, dilation: float) -> "ResolvedScenario":
        """The scenario with this number as its dilation."""
        emulation = dict(self.emulation) | {"dilation": dilation}
        sections = dict(self) | {"emulation": ResolvedEmulation.model_construct(**emulation)}
        return ResolvedScenario.model_construct(**sections)


class ResolvedScenario(Scenario):
    """A scenario that can be emulated: numbers have replaced `auto`."""

    emulation: ResolvedEmulation = ResolvedEmulation()

    @property
    def dilation(self) -> float:
        """Real seconds per emulated second."""
        return self.emulation.dilation
