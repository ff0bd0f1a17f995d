# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""The keys of a scenario, their types, bounds and defaults, validated when a file is loaded.

Every key carries its unit in its name; `orchestrator.scenario.loading` reads scenario files.
"""

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import date, datetime
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Literal

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
from ns3_scenarios.radio import MOST_WIFI_MTU, WIFI_WIDTHS_MHZ
from ns3_scenarios.rma_av import FARTHEST_GROUND_NLOS_M, GROUND_BS_HEIGHT_M, GROUND_HEIGHT_M
from orchestrator.scenario.fleet import Array, Fleet, Spread, each, ends
from testbed.core import orders
from testbed.core.errors import InputError
from testbed.core.node import BS, NodeId
from testbed.core.node import PATTERN as NODE
from testbed.core.paradigm import Paradigm, paradigm, title_of
from testbed.core.registry import (
    ANALYTICAL_MODELS,
    CHANNELS,
    MOBILITY,
    MODELS,
    PARTICIPATION,
    POLICIES,
)
from testbed.core.words import not_one_of
from testbed.transport import kind_of
from testbed.transport.interface import TransportKind
from workloads.aggregation.rules import rule_of
from workloads.codecs.codec import Codec
from workloads.codecs.registry import codec_of

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
Device = Annotated[str, Field(pattern=r"^(cpu|cuda(:\d+)?)$")]

ALL_UAVS = "uav*"
"""Stands for every UAV where a node's name is expected."""
MOST_SPLITS = 1000
SplitPoint = Annotated[int, Field(ge=1, le=MOST_SPLITS)]
SWIN_STAGES = 4
GAUSS_MARKOV = "gauss-markov"
RMA = "rma-av"
PLAIN = ("free-space", "two-ray")
MOBILITY.add({GAUSS_MARKOV: None})
FITTED = "fitted"
CHANNELS.add({RMA: None, **AERIAL, **dict.fromkeys(PLAIN), FITTED: None})
CHANNELS.add({LOG_DISTANCE: "ns3_scenarios.modelled:log_distance"})
PARTICIPATION.add(
    {
        "random": "orchestrator.engine.selection:random",
        "by-channel": "orchestrator.engine.selection:by_channel",
        "round-robin": "orchestrator.engine.selection:round_robin",
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


def _must_be(fits: tuple[object, ...]) -> str:
    """The error message for a value that is none of these; None means that the key is absent."""
    words = {"None": "absent", "False": "false", "True": "true"}  # False and 0.0 are equal.
    return f"must be {' or '.join(words.get(repr(fit)) or repr(fit) for fit in fits)}"


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


class BaseStation(Section):
    """The base station, which is the server of split learning."""

    position_m: tuple[Metres, Metres, Metres] = (0.0, 0.0, 30.0)
    """Coordinates x, y, z; the rings are centred at x, y."""
    tx_power_w: Watts = 40.0
    """Total transmit power, P_S."""
    compute_flops: Flops = 195e12
    """Computing speed κ_S f_S, in FLOP/s."""
    device: Device = "cpu"
    """Device on which the emulated server computes: `cpu`, `cuda` or `cuda:N`."""
    threads: Annotated[int, Field(ge=1, le=1024)] = 1
    """Number of CPU threads with which the emulated server computes."""


class Uavs(Section):
    """The UAVs. A value per UAV may be one number for all, a list of K numbers, or a distribution
    such as `{uniform: [0.1, 1]}`, from which values are drawn by seed: docs/fleets.md."""

    _one_each: ClassVar = ("tx_power_w", "height_m", "compute_flops", "compute_power_w", "ring")

    tx_power_w: Watts | Annotated[list[Watts], Field(min_length=1)] | Spread[Watts]
    """Transmit power of each UAV, p_k."""
    count: Annotated[int, Field(ge=1, le=10_000)] = None  # type: ignore[assignment]  # _counted
    """Number of UAVs, K. Default: the length of the lists in this section."""
    height_m: Height | list[Height] | Spread[Height] = 20.0
    """Height of each UAV above ground. At low heights channels are those of users on the ground:
    docs/channels.md."""
    rings_m: list[tuple[Radius, Radius]] = Field(
        default=[(100.0, 550.0), (550.0, 820.0), (820.0, 1000.0)], min_length=1
    )
    """Inner and outer radius of each ring around the base station."""
    ring: list[Annotated[int, Field(ge=1)]] | None = None
    """The ring of each UAV, counted from 1. Default: UAVs are spread evenly, and the remainder is
    in the last ring."""
    compute_flops: Flops | list[Flops] | Spread[Flops] = 2.5e12
    """Computing speed of each UAV, κ_k f_k, in FLOP/s."""
    compute_power_w: Power | list[Power] | Spread[Power] = 16.0
    """Power of each UAV while it computes, ω f³."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] | None = Field(
        default=None, exclude_if=lambda seed: seed is None
    )
    """Random seed of the distributions in this section and in `mobility`. Default: the scenario's
    seed."""
    device: Device = "cpu"
    """Device on which the emulated UAVs compute: `cpu`, `cuda` or `cuda:N`."""
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


class Mobility(Section):
    """How the UAVs fly: Gauss–Markov inside the ring with reflection at its edges, or a model of a
    plug-in."""

    model: str = GAUSS_MARKOV
    """`gauss-markov`, or a model that a package registers as `testbed.mobility`: docs/plugins.md.
    """
    parameters: dict[str, JsonValue] = {}
    """Parameters of a plug-in model; those of `gauss-markov` are the keys that follow."""
    speed_m_s: tuple[Speed, Speed] | list[tuple[Speed, Speed]] = (0.1, 4.0)
    """Lowest and highest speed, as one pair for all UAVs or one pair per UAV; speeds are clipped to
    this range."""
    mean_speed_m_s: Speed | list[Speed] | Spread[Speed] = 2.0
    """Mean speed, to which the process returns: one number, a list, or a distribution, as in
    `uavs`."""
    speed_deviation_m_s: Speed | list[Speed] | Spread[Speed] = 1.0
    """Standard deviation of the speed before clipping: one number, a list, or a distribution."""
    heading_deviation_rad: Annotated[float, Field(ge=0, le=100)] = 0.5
    """Standard deviation of the heading around its mean."""
    memory: Annotated[float, Field(ge=0, le=1)] = 0.85
    """Memory level of the Gauss–Markov process: 1 keeps speed and heading, 0 forgets them at each
    update."""
    update_s: Annotated[float, Field(ge=1e-3, le=1e6)] = 1.0
    """Time between two updates of speed and heading, or of a plug-in model."""

    @model_validator(mode="after")
    def _model_known(self) -> "Mobility":
        with _within("mobility"):
            MOBILITY.check(self.model, self.parameters)
        for name, field in Mobility.model_fields.items():
            of_all = name in {"model", "parameters", "update_s"} or self.model == GAUSS_MARKOV
            if not of_all and getattr(self, name) != field.default:
                raise ValueError(f"{name}: belongs to {GAUSS_MARKOV!r}, not to {self.model!r}")
        return self


LTE_BLOCKS = {1.4e6: 6, 3e6: 15, 5e6: 25, 10e6: 50, 15e6: 75, 20e6: 100}
"""Number of resource blocks of each LTE bandwidth in Hz, TS 36.101, table 5.6-1."""


class Lte(Section):
    """An LTE cell (`radio.access: lte`): docs/lte.md."""

    resource_blocks: Annotated[int, Field(ge=6, le=100)] | None = None
    """Number of resource blocks that the scheduler assigns, in each direction. Default: all of the
    bandwidth, e.g. 100 of 20 MHz."""
    scheduler: Literal["equal", "shares"] = "equal"
    """`equal`: the UAVs that have something to send get equal numbers of resource blocks; `shares`:
    each UAV has its share `allocation.beta` of them for itself."""
    noise_figure_db: Annotated[float, Field(ge=0, le=30)] = 0.0
    """Noise figure of the receivers of base station and UAVs."""
    interference_margin_db: Annotated[float, Field(ge=0, le=60)] = 0.0
    """Interference of other cells: the rise of interference plus noise over noise."""
    antenna_gain_db: Annotated[float, Field(ge=-30, le=40)] = 0.0
    """Sum of the antenna gains of base station and UAV, beyond those in the channel gain."""
    implementation_margin_db: Annotated[float, Field(ge=0, le=30)] | None = None
    """Gap to Shannon's limit at which a modulation and coding scheme is chosen. Default: those of
    ns-3, 7.43 dB in the uplink and 3 dB in the downlink: docs/lte.md."""
    highest_snr_db: Annotated[float, Field(ge=0, le=60)] | None = Field(
        default=None, exclude_if=lambda db: db is None
    )
    """Signal-to-distortion ratio of sender and receiver together (error vector magnitude, TS 36.101
    and TS 36.104, section 6.5.2), which limits the signal-to-noise ratio of both directions.
    Default: no limit."""
    layers: Annotated[int, Field(ge=1, le=2)] = 1
    """Largest number of spatial layers in the downlink: 2 is open-loop 2x2 MIMO."""
    highest_modulation: Literal["64QAM", "256QAM"] = "64QAM"
    """Highest modulation of the downlink; that of the uplink is 64QAM."""
    downlink_order: Literal["application", "mac"] = Field(
        default="application", exclude_if=lambda order: order == "application"
    )
    """Who orders sequential gradients. `application`: the base station's program, which sends one
    after the other; `mac`: the cell's scheduler, which serves packets by the priority that they
    are marked with (DSCP), so that all gradients are sent as soon as they are computed. `mac` needs
    `emulation.air: ns3`."""


PLAIN_LTE = Lte()

WifiStandard = Literal["n", "ac", "ax"]
MOST_WIFI_W = 1.0
"""Largest power of an access point unless another one is asked for: what Wi-Fi may send with in
many countries."""


class Wifi(Section):
    """A Wi-Fi cell (`radio.access: wifi`): docs/radio.md."""

    standard: WifiStandard = "n"
    """802.11n, 802.11ac or 802.11ax."""
    width_mhz: Annotated[int, Field(ge=20, le=160)] = 20
    """Width of the channel, which both directions share: 20 or 40; with `ac` and `ax` also 80 or
    160."""
    rts: bool = False
    """Whether RTS and CTS are exchanged before each frame."""
    noise_figure_db: Annotated[float, Field(ge=0, le=30)] = 0.0
    """Noise figure of the receivers of access point and UAVs."""
    antenna_gain_db: Annotated[float, Field(ge=-30, le=40)] = 0.0
    """Sum of the antenna gains of access point and UAV, beyond those in the channel gain."""
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
    """A further base station (eNB) of an LTE network: docs/lte.md."""

    position_m: tuple[Metres, Metres, Metres]
    """Coordinates x, y, z."""
    tx_power_w: Watts = 40.0
    """Total transmit power."""


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
    """Gain in dB that is added to that of the model."""
    shadowing_db: Deviation
    """Standard deviation of shadowing in dB, which is correlated along the path of the UAV."""
    decorrelation_m: Annotated[float, Field(ge=1e-3, le=1e6)]
    """Distance at which the correlation of shadowing is 1/e."""
    scatter_db: Deviation = 0.0
    """Standard deviation, in dB, of the part of the gain that is independent from second to second.
    """
    heading_db_per_m_s: Annotated[float, Field(ge=-100, le=100)] = 0.0
    """Gain in dB per m/s of the horizontal velocity away from the base station, e.g. because the
    antenna of a UAV tilts."""
    elevation_db_per_deg: Annotated[float, Field(ge=-10, le=10)] = 0.0
    """Gain in dB per degree of the elevation of the UAV seen from the base station."""


class Fitted(Section):
    """A channel that was fitted to measured flights: docs/channels.md."""

    model: str
    """The channel model on which it is based: a name as in `radio.channel`, but not `fitted`."""
    parameters: dict[str, JsonValue] = {}
    """Parameters of that model."""
    carrier_hz: Hertz
    """Carrier frequency of the flights, for which the offsets hold."""
    up: FittedDirection
    down: FittedDirection
    correlation: Annotated[float, Field(ge=-1, le=1)] = 0.0
    """Correlation of the shadowing of both directions."""
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
    """The air interface: FDMA at Shannon's rate, LTE or Wi-Fi; a shared or dedicated downlink,
    depending on the paradigm."""

    access: Literal["shannon", "lte", "wifi"] = Field(
        default="shannon", exclude_if=lambda access: access == "shannon"
    )
    """Rate model of the links: `shannon`, the paper's; `lte`, resource blocks with modulation and
    coding schemes; `wifi`, one channel for which access point and UAVs contend."""
    lte: Lte = Field(default=PLAIN_LTE, exclude_if=lambda lte: lte == PLAIN_LTE)
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
    """Line of sight (LOS) always, with the LOS probability of TR 36.777, or never (NLOS)."""
    shadow_fading: bool = False
    """Log-normal shadow fading of TR 36.777."""
    fading: Literal["none", "rayleigh", "rician"] = Field(
        default="none", exclude_if=lambda kind: kind == "none"
    )
    """Small-scale fading, by seed, with the Doppler spread of the UAV's speed (Jakes); a slot has
    the mean rate of its blocks."""
    fading_block: Literal["tti", "slot"] = Field(
        default="tti", exclude_if=lambda block: block == "tti"
    )
    """The time in which small-scale fading is constant: a TTI of 1 ms, or a slot."""
    rician_k_db: Annotated[float, Field(ge=-40, le=60)] = Field(
        default=10.0, exclude_if=lambda k_db: k_db == 10.0
    )
    """Power of the direct path relative to that of all others, with Rician fading."""
    doppler_hz: Annotated[float, Field(gt=0, le=1e5)] | None = Field(
        default=None, exclude_if=lambda doppler: doppler is None
    )
    """Doppler shift of small-scale fading. Default: that of the UAV's speed in each slot."""
    cells: Annotated[list[Cell], Field(max_length=MOST_CELLS)] = Field(
        default=[], exclude_if=lambda cells: not cells
    )
    """Further base stations of LTE, which use the same carriers as `base_station` and interfere
    with it. All are connected to the server without delay."""
    handover: Literal["a3", "none"] = Field(default="a3", exclude_if=lambda kind: kind == "a3")
    """Whether a UAV changes to a cell that it receives with more power (event A3 of TS 36.331), or
    stays in the cell that is the strongest in slot 0."""
    a3_hysteresis_db: Annotated[float, Field(ge=0, le=15, multiple_of=0.5)] = Field(
        default=3.0, exclude_if=lambda db: db == 3.0
    )
    """How much stronger the other cell must be, in steps of 0.5 dB."""
    a3_time_to_trigger_s: Annotated[float, Field(ge=0, le=5.12)] = Field(
        default=0.256, exclude_if=lambda time_s: time_s == 0.256
    )
    """How long the other cell must be stronger, in whole milliseconds."""
    downlink_is: Literal["link", "cell"] | None = Field(
        default=None, exclude_if=lambda given: given is None
    )
    """Whether `downlink_bps` of a trace of rates is the rate of each link, or that of the whole
    cell, which parallel gradients share by `allocation.rho`. Default: as the trace says."""
    channel: str = Field(default=RMA, exclude_if=lambda name: name == RMA)
    """`rma-av`, another model of docs/channels.md, or one that a package registers as
    `testbed.channels`: docs/plugins.md."""
    parameters: dict[str, JsonValue] = Field(default={}, exclude_if=lambda given: not given)
    """Parameters of `log-distance` (`exponent`) or of a plug-in channel."""
    fitted: Fitted | None = Field(default=None, exclude_if=lambda fitted: fitted is None)
    """The fit of `radio.channel: fitted`: the path of a file with the object `channel`, which
    replaces it when the scenario is loaded. It is relative to the scenario's file, or with `--set`
    to the working directory."""

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
    def model_parameters(self) -> dict[str, JsonValue]:
        """The parameters of `model`."""
        return self.parameters if self.fitted is None else self.fitted.parameters

    @property
    def dividing_key(self) -> str | None:
        """The key by which the UAVs that have something to send divide the band; None: each has a
        share of its own."""
        if self.access == "wifi":
            return "radio.access"
        is_equal = self.access == "lte" and self.lte.scheduler == "equal"
        return "radio.lte.scheduler" if is_equal else None

    @model_validator(mode="after")
    def _cells_are_of_lte(self) -> "Radio":
        milliseconds = 1e3 * self.a3_time_to_trigger_s
        if abs(milliseconds - round(milliseconds)) > 1e-9:
            raise ValueError(
                "a3_time_to_trigger_s: must be a whole number of milliseconds, not "
                f"{milliseconds:g} ms"
            )
        if self.cells and self.access != "lte":
            raise ValueError(f"cells: need radio.access 'lte', not {self.access!r}")
        if self.cells and self.fading != "none":
            raise ValueError(f"cells: need radio.fading 'none', not {self.fading!r}")
        return self

    @model_validator(mode="after")
    def _lte_bandwidths(self) -> "Radio":
        if self.access != "lte":
            return self
        for name in ("uplink_bandwidth_hz", "downlink_bandwidth_hz"):
            hertz = getattr(self, name)
            if hertz not in LTE_BLOCKS:
                known = ", ".join(f"{hz / 1e6:g}" for hz in LTE_BLOCKS)
                raise ValueError(f"{name}: must be an LTE bandwidth, {known} MHz, not {hertz:g} Hz")
            if (self.lte.resource_blocks or 0) > LTE_BLOCKS[hertz]:
                raise ValueError(
                    f"lte.resource_blocks: {name} has {LTE_BLOCKS[hertz]}, "
                    f"not {self.lte.resource_blocks}"
                )
        return self


Delay = Annotated[float, Field(ge=0, le=10)]
Probability = Annotated[float, Field(ge=0, lt=1)]


class Directions(Section):
    """A value for each direction of the links: one number for all UAVs, or one per UAV."""

    up: Delay | list[Delay] = 0.0
    """From the UAVs to the base station."""
    down: Delay | list[Delay] = 0.0
    """From the base station to the UAVs."""


class IndependentLoss(Section):
    """Each frame is lost independently of all others."""

    model: Literal["independent"]
    """`independent`."""
    probability: Probability | list[Probability]
    """Probability of frame loss; one number for all UAVs, or a list with one per UAV."""


class GilbertElliott(Section):
    """Frames are lost in bursts: a channel with a good and a bad state, which may change with each
    frame."""

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
    """Replaces the logistic function: pairs of an SNR in dB, increasing, and a frame error rate;
    values between them are interpolated linearly, and the first and last ones hold beyond."""
    retransmissions: Annotated[int, Field(ge=0, le=16)] = 0
    """Maximum number of retransmissions of a frame by the radio (HARQ); a frame whose last one
    fails is lost."""
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
    """The value of each slot is a column of the trace; docs/air.md names the columns."""

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
    """Frame loss for each direction."""

    up: OneLoss = 0.0
    """From the UAVs to the base station."""
    down: OneLoss = 0.0
    """From the base station to the UAVs."""


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
    """Delay, jitter and loss of frames on the links, and their queues; docs/air.md.

    A number holds for all links and both directions; a list has one value per UAV; `up` and `down`
    give each direction its own value.
    """

    one_way_delay_s: OneWayDelay = 0.0
    """One-way delay of a frame after it has been sent, in emulated seconds, or a model: `distance`,
    `trace`."""
    jitter_s: Jitter = 0.0
    """Standard deviation of the one-way delay (a normal distribution, cut at 0), or the model
    `trace`."""
    reordering: bool = Field(default=False, exclude_if=lambda reordering: not reordering)
    """Whether frames with a shorter delay may overtake earlier frames; if false, frames arrive in
    the order in which they were sent."""
    loss: FrameLoss = 0.0
    """Probability of frame loss, or a model: `independent`, `gilbert-elliott`, `snr`, `trace`."""
    relay: bool = Field(default=False, exclude_if=lambda relay: not relay)
    """Whether UAVs can reach each other through the base station, in sessions of `testbed up`."""
    at_trace_end: Literal["end", "repeat"] = Field(default="end", exclude_if=lambda at: at == "end")
    """What a session does at the end of a replayed trace: end, or repeat the trace."""
    queue: Literal["fifo", "fq_codel", "pie", "red"] = "fifo"
    """Queueing discipline at both ends of a link, where the kernel supports it; the limit is 100
    full frames."""
    ecn: bool = False
    """Whether TCP negotiates explicit congestion notification, and queues other than fifo mark
    frames instead of dropping them."""

    def loss_of(self, side: str) -> OneLoss:
        """The loss model of one direction, `up` or `down`."""
        if isinstance(self.loss, DirectedLoss):
            return self.loss.up if side == "up" else self.loss.down
        return self.loss

    @model_validator(mode="after")
    def _jitter_needs_a_delay(self) -> "Links":
        if self.jitter_s != 0 and self.one_way_delay_s == 0:
            raise ValueError("jitter_s: needs links.one_way_delay_s, around which it varies")
        if self.reordering and self.jitter_s == 0:
            raise ValueError("reordering: needs links.jitter_s, with which frames overtake others")
        return self


IDEAL_LINKS = Links()


class Profile(Section):
    """Costs per sample for each split u = 1, 2, …; independent of the batch size."""

    client_forward_flops: list[Work] = Field(min_length=1, max_length=MOST_SPLITS)
    """Work of the client's forward pass for one sample, Ψ_CF."""
    server_forward_flops: list[Work]
    """Work of the server's forward pass for one sample, Ψ_SF."""
    adapter_bytes: list[Bytes]
    """Size of the client-side trainable parameters, Γ_M."""
    smashed_bytes: list[Bytes]
    """Size of the smashed data of one sample, Γ_A; its gradient has the same size."""
    adapter_header_bytes: list[Annotated[int, Field(ge=0, le=10**9)]] = Field(
        default_factory=lambda given: [0] * len(given.get("client_forward_flops", []))
    )
    """Size of the safetensors header that precedes the adapters. Default: 0."""

    @model_validator(mode="after")
    def _one_entry_per_split(self) -> "Profile":
        splits = len(self.client_forward_flops)
        for name in Profile.model_fields:
            if (entries := len(getattr(self, name))) != splits:
                raise ValueError(f"{name}: must have one entry per split: {splits}, not {entries}")
        return self


class Data(Section):
    """The data that the clients train on."""

    source: str = "synthetic"
    """`synthetic`, or a folder: with CIFAR-100's binary files; with images and labels in parquet
    files or as saved to disk by `datasets`; or with one folder per class. Training and held-out
    parts are recognised by the names of files and folders: docs/learning.md. If there are none, a
    tenth of each class is held out, by seed."""
    samples: Annotated[int, Field(ge=1, le=10**9)] = 2000
    """Size of the synthetic training set."""
    partition: Literal["iid", "dirichlet", "quantity", "feature"] = "iid"
    """How samples are distributed to clients. `iid`: evenly; `dirichlet`: label skew, each class by
    a Dirichlet distribution; `quantity`: quantity skew, all samples by one Dirichlet distribution;
    `feature`: feature skew, evenly, and with noise that grows from client to client."""
    concentration: Annotated[float, Field(ge=1e-3, le=1e6)] = 0.5
    """Concentration of the Dirichlet distributions; small values are uneven."""
    noise: Annotated[float, Field(ge=0, le=1e3)] = Field(
        default=0.5, exclude_if=lambda noise: noise == 0.5
    )
    """With feature skew: standard deviation of the noise in the last client's images, in standard
    deviations of a colour channel; client k has k / K of it."""
    image_column: str | None = Field(default=None, exclude_if=lambda name: name is None)
    """Column of the images, for tables; none: the only column that fits."""
    label_column: str | None = Field(default=None, exclude_if=lambda name: name is None)
    """Column of the labels (integers or strings), for tables; none: the only column that fits."""


class Asynchronous(Section):
    """How an asynchronous paradigm merges updates into the global model (Xie et al. 2019): the new
    model is (1 - a) global + a client's, with a = mixing · s(staleness). The staleness t is the
    number of other updates that were merged since the client was sent the model."""

    updates: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Updates per round of all UAVs together; faster UAVs contribute more of them. None: four times
    the number of participating UAVs."""
    mixing: Annotated[float, Field(gt=0, le=1)] = 0.6
    """Weight of an update with staleness 0."""
    staleness: Literal["polynomial", "hinge", "constant"] = "polynomial"
    """s(t): `polynomial`: (1 + t)^-exponent; `hinge`: 1 / (exponent (t - hinge) + 1) where t >
    hinge, else 1; `constant`: 1."""
    exponent: Annotated[float, Field(ge=0, le=100)] = 0.5
    """Exponent in s(t)."""
    hinge: Annotated[int, Field(ge=0, le=100_000)] = 4
    """Largest staleness at which `hinge` gives full weight."""


ASYNCHRONOUS_DEFAULTS = Asynchronous()


class Workload(Section):
    """The model that is trained, and how it is split."""

    model: str = Field(default="swin_large_patch4_window7_224", pattern=r"^[A-Za-z0-9_.-]+$")
    """A Swin, Swin V2, ViT, DeiT, BEiT, EVA, ConvNeXt, ResNet, VGG, EfficientNet, MobileNet or
    RegNet of timm, or a model that a package registers as `testbed.models`: docs/learning.md,
    docs/plugins.md."""
    parameters: dict[str, JsonValue] = Field(default={}, exclude_if=lambda given: not given)
    """Parameters of a plug-in model."""
    classes: Annotated[int, Field(ge=2, le=100_000)] = 100
    """Number of classes."""
    split: SplitPoint | list[SplitPoint] = 2
    """Number of parts of the model on the client, u: stages of a Swin or of a convolutional
    network, blocks of other models. A list has one number per UAV."""
    local_iterations: Annotated[int, Field(ge=1, le=1000)] = 3
    """Local iterations per round, I."""
    batch_size: Annotated[int, Field(ge=1, le=4096)] = 8
    """Samples per batch, B."""
    compute: Literal["real", "none"] = "real"
    """`real` trains the model with torch; `none` sends the same number of bytes without torch."""
    compute_time: Literal["modelled", "measured"] = "modelled"
    """`modelled`: a step takes the time that the device profile gives; `measured`: the time that it
    takes on this machine."""
    profile: Literal["auto", "counted"] | Profile = "auto"
    """FLOPs and bytes of each split. `auto`: the paper's table II for its model, otherwise
    `counted` on the model."""
    backward_ratio: Annotated[float, Field(ge=1e-3, le=1000)] = 2.0
    """Ratio of the work of the backward pass to the forward pass, ς."""
    lora_rank: Annotated[int, Field(ge=1, le=1024)] = 8
    """Rank of the adapters, which are applied to linear layers or convolutions."""
    lora_alpha: Annotated[float, Field(ge=1e-6, le=1e6)] = 8.0
    """LoRA adds lora_alpha / lora_rank · B A x."""
    lora_targets: str | None = Field(default=None, exclude_if=lambda given: given is None)
    """A regular expression: adapters are applied only to linear layers and convolutions whose names
    match it. None: to all linear layers but the head, or to all convolutions of a model without
    linear layers before its head."""
    lora_dropout: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0, exclude_if=lambda rate: rate == 0
    )
    """Dropout rate at the inputs of the adapters during training."""
    adapters: Literal["lora", "dora", "full", "none"] = Field(
        default="lora", exclude_if=lambda kind: kind == "lora"
    )
    """What is trained besides the head: `lora`, adapters; `dora`, also the magnitude of each output
    of an adapted layer (Liu et al. 2024), without dropout; `full`, all parameters; `none`, nothing
    else."""
    batch_norm: Literal["averaged", "frozen", "local", "per-client"] = Field(
        default="averaged", exclude_if=lambda choice: choice == "averaged"
    )
    """Statistics of batch normalisation: `averaged` with the parameters; `frozen` as in the
    weights; `local`, they and the affine parameters stay with each client (FedBN, Li et al. 2021);
    `per-client`, only the statistics do (SiloBN, Andreux et al. 2020)."""
    learning_rate: Annotated[float, Field(ge=1e-12, le=100)] = 1e-3
    """Learning rate of the optimiser, which restarts in each round."""
    optimiser: Literal["adamw", "sgd"] = "adamw"
    """Optimiser of all that is trained."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.9, exclude_if=lambda momentum: momentum == 0.9
    )
    """Momentum of the optimiser `sgd`."""
    learning_rate_schedule: Literal["constant", "cosine", "step", "linear"] = Field(
        default="constant", exclude_if=lambda schedule: schedule == "constant"
    )
    """How the learning rate falls from round to round: `cosine` and `linear` to
    `learning_rate_last`, `step` by `learning_rate_decay` every `learning_rate_step` rounds:
    docs/learning.md."""
    learning_rate_warmup: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        default=0, exclude_if=lambda rounds: rounds == 0
    )
    """Number of first rounds in which the learning rate rises linearly, before its schedule
    begins."""
    learning_rate_step: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        default=1, exclude_if=lambda rounds: rounds == 1
    )
    """Rounds between two changes of the schedule `step`."""
    learning_rate_decay: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.1, exclude_if=lambda factor: factor == 0.1
    )
    """Factor by which the schedule `step` multiplies the learning rate."""
    learning_rate_last: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.0, exclude_if=lambda share: share == 0
    )
    """Share of the learning rate that the schedules `cosine` and `linear` approach at the end of
    the last round."""
    clip_norm: Annotated[float, Field(gt=0, le=1e12)] | None = Field(
        default=None, exclude_if=lambda norm: norm is None
    )
    """Largest 2-norm of a gradient, to which longer gradients are scaled; each side of a client's
    model clips its own. None: no clipping."""
    accumulate: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=1, exclude_if=lambda batches: batches == 1
    )
    """Batches per step of the optimiser, whose gradients are averaged; a step for the remaining
    batches ends each round."""
    weight_decay: Annotated[float, Field(ge=0, le=100)] = 0.0
    """Weight decay of the optimiser."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of computations; bfloat16 uses autocast, and adapters and head remain float32."""
    wire_dtype: str = "float32"
    """Encoding of smashed data and gradients on the links: `float32`, `float16`, `bfloat16`,
    `int8`, `int4`, `top-k`, or a codec that a package registers as `testbed.codecs`:
    docs/learning.md. Adapters are always float32."""
    wire_parameters: dict[str, JsonValue] = Field(default={}, exclude_if=lambda given: not given)
    """Parameters of the codec, by name."""
    recompute: bool = False
    """Whether UAVs recompute activations in the backward pass, which needs less memory and gives
    the same numbers."""
    weights: str | None = None
    """Frozen weights: none draws them by seed, `pretrained` downloads them from timm's hub, and any
    other value is a safetensors file."""
    head: Literal["file", "new"] | None = Field(default=None, exclude_if=lambda head: head is None)
    """Head with which training begins: `file` takes that of `weights` and refuses weights whose
    head does not fit `classes`; `new` draws it by seed. None: that of `weights` if it fits,
    otherwise it is drawn, and the run says so."""
    image_size: Annotated[int, Field(ge=16, le=4096)] | None = None
    """Height and width of the input in pixels; none: the default of the model."""
    wire_error: bool = False
    """Whether nodes record the error that the encoding causes in smashed data and gradients."""
    data: Data = Data()
    evaluate_every: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Rounds between evaluations of the global model on held-out data, in addition to one before
    the first and one after the last round; 0: never."""
    evaluate_samples: Annotated[int, Field(ge=1, le=10**9)] = 500
    """Largest number of held-out samples of an evaluation."""
    aggregation: str = Field(default="fedavg", exclude_if=lambda rule: rule == "fedavg")
    """How the models of a round are aggregated: `fedavg`; `fedprox`; `fedavgm` and `fedadam`, with
    momentum at the server; `svd`, the mean of the products B A; or a rule that a package registers
    as `testbed.aggregators`: docs/learning.md."""
    aggregation_parameters: dict[str, JsonValue] = Field(
        default={}, exclude_if=lambda given: not given
    )
    """Parameters of the aggregation rule, by name."""
    asynchronous: Asynchronous = Field(
        default=ASYNCHRONOUS_DEFAULTS, exclude_if=lambda section: section == ASYNCHRONOUS_DEFAULTS
    )
    server_adapters: Literal["per-client", "shared"] = "per-client"
    """`per-client`: one set of server-side adapters per client, averaged; `shared`: one set,
    trained by the batches of all clients."""
    clients_per_pass: Annotated[int, Field(ge=1, le=1000)] = 1
    """Largest number of clients whose waiting batches the server computes in one pass, where this
    is measured to be faster. Above 1, the last bits of results depend on which batches wait
    together."""

    @field_validator("lora_targets")
    @classmethod
    def _targets_compile(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"is not a regular expression: {error}") from None
        return pattern

    @model_validator(mode="after")
    def _plugin_takes_its_parameters(self) -> "Workload":
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
            raise ValueError(
                f"split: input should be less than or equal to {splits}, not '{deepest}'"
            )
        return self

    @model_validator(mode="after")
    def _head_of_weights(self) -> "Workload":
        if self.head == "file" and self.weights is None:
            raise ValueError("head: 'file' needs weights, whose head it is")
        return self

    @model_validator(mode="after")
    def _dora_without_dropout(self) -> "Workload":
        if self.adapters == "dora" and self.lora_dropout:
            raise ValueError("lora_dropout: must be 0 where adapters is 'dora'")
        return self

    @model_validator(mode="after")
    def _trained_as_a_whole(self) -> "Workload":
        if self.adapters == "full" and self.clients_per_pass > 1:
            raise ValueError(
                "clients_per_pass: must be 1 where adapters is 'full', because one pass computes "
                "with one set of parameters"
            )
        if self.adapters in ("full", "none") and self.aggregation == "svd":
            raise ValueError(
                f"aggregation: 'svd' needs adapters of low rank, and adapters is {self.adapters!r}"
            )
        return self

    @model_validator(mode="after")
    def _own_statistics(self) -> "Workload":
        if self.statistics_stay and self.server_adapters == "shared":
            raise ValueError(
                f"batch_norm: {self.batch_norm!r} keeps statistics of each client at the server, "
                "which needs server_adapters 'per-client'"
            )
        return self

    @property
    def statistics_stay(self) -> bool:
        """Whether a part of the model may stay with each client."""
        return self.batch_norm in ("local", "per-client")

    @model_validator(mode="after")
    def _aggregation_known(self) -> "Workload":
        with _within("workload"):
            rule_of(self.aggregation, self.aggregation_parameters)
        return self

    @model_validator(mode="after")
    def _codec_known(self) -> "Workload":
        with _within("workload"):
            _ = self.codec
        return self

    @property
    def codec(self) -> Codec:
        """The codec of smashed data and gradients."""
        return codec_of(self.wire_dtype, self.wire_parameters)

    @model_validator(mode="after")
    def _shared_has_one_split(self) -> "Workload":
        if self.server_adapters == "shared" and self.differing_splits:
            raise ValueError("split: must be one number where server_adapters is 'shared'")
        return self

    @property
    def deepest_split(self) -> int:
        """The largest u_k."""
        return self.split if isinstance(self.split, int) else max(self.split)

    @property
    def differing_splits(self) -> bool:
        """Whether clients have different split points."""
        return not isinstance(self.split, int) and len(set(self.split)) > 1

    @model_validator(mode="after")
    def _shared_in_turn(self) -> "Workload":
        if self.server_adapters == "shared" and self.clients_per_pass > 1:
            raise ValueError(
                "clients_per_pass: must be 1 where server_adapters is 'shared', whose batches "
                "train one set in turn"
            )
        return self


class Observation(Section):
    """What a policy observes of the channel when a round starts."""

    delay_slots: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    """Delay with which gains and positions are known, in slots."""
    noise_db: Annotated[float, Field(ge=0, le=100)] = 0.0
    """Standard deviation of the measurement error of gains, independent for each slot, by seed."""
    position_noise_m: Annotated[float, Field(ge=0, le=1000)] = Field(
        default=0.0, exclude_if=lambda given: given == 0
    )
    """Standard deviation of the measurement error of both horizontal coordinates of positions,
    which an agent observes."""


class AllocationSection(Section):
    """The policy that decides split and shares, and the shares of the policy `fixed`."""

    policy: str = "fixed"
    """`fixed`: the shares below and workload.split; `equal`: 1/K each; `static`: the best decision
    that never changes; `planner`: a search before each round; `per-client-planner`: the same, with
    a split point for each client; `agent`: a trained agent; or a policy that a package registers as
    `testbed.policies`: docs/plugins.md."""
    parameters: dict[str, JsonValue] = {}
    """Parameters of a plug-in policy."""
    observation: Observation = Field(
        default=Observation(), exclude_if=lambda given: given == Observation()
    )
    agent: str | None = None
    """Folder of the trained agent, for the policy `agent`; see `testbed train`."""
    alpha: Shares = "equal"
    """Shares of the server's computing speed (parallel computing)."""
    beta: Shares = "equal"
    """Shares of the uplink bandwidth, and with parallel transmission of the downlink bandwidth."""
    rho: Shares = "equal"
    """Shares of the base station's transmit power (parallel transmission)."""

    @model_validator(mode="after")
    def _policy_known(self) -> "AllocationSection":
        with _within("allocation"):
            POLICIES.check(self.policy, self.parameters)
        return self


class Participation(Section):
    """Which clients take part in a round."""

    clients: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Number of UAVs per round; none: all of them, or as many as a plug-in rule chooses."""
    rule: str = "random"
    """How clients are chosen when a round starts: `random`, by seed; `by-channel`, the best
    uplinks; `round-robin`; or a rule that a package registers as `testbed.participation`:
    docs/plugins.md."""
    parameters: dict[str, JsonValue] = {}
    """Parameters of a plug-in rule."""
    deadline_s: Duration | None = Field(default=None, exclude_if=lambda given: given is None)
    """Emulated seconds after which a round continues without stragglers; needs `faults.on_loss:
    drop`. None: a round waits for all clients."""

    @model_validator(mode="after")
    def _rule_known(self) -> "Participation":
        with _within("participation"):
            PARTICIPATION.check(self.rule, self.parameters)
        return self


ALL_CLIENTS = Participation()


class Objective(Section):
    """Latency + energy_weight · largest energy of a client."""

    energy_weight: Annotated[float, Field(ge=0, le=1e9)] = 4.0
    """Weight λ, in s/J."""


class Limits(Section):
    """Limits within which a run is valid; a run that exceeds one is marked as not valid.

    With the clock `virtual`, some defaults are tighter, as their keys say.
    """

    calibration_error: Limit = 0.03
    """Rate error of the worst link before the run: the median at its lowest, middle and highest
    rate, each reduced by what a pause of 2 ms on this machine could explain. Default in virtual
    time: 0.01."""
    injector_lateness_s: Limit = 0.005
    """Delay of the rate changes of a slot after its boundary, 99th percentile, in real seconds.
    Default in virtual time: 0.00001."""
    radio_lateness_s: Limit = Field(default=0.005, exclude_if=lambda limit: limit == 0.005)
    """Delay of ns-3's radio behind the clock, the largest of each slot, 99th percentile, in real
    seconds. Default in virtual time: 0.0001."""
    unaccounted_packets: Limit = Field(default=0, exclude_if=lambda limit: limit == 0)
    """Packets of a link that ns-3's radio neither delivered nor lost nor still holds."""
    exhausted_slots: Annotated[int, Field(ge=0, le=10**9)] = 0
    """Number of slots for which the injector had no rates."""
    dropped_frames: Limit = 0.01
    """Share of a link's frames that its queue dropped."""
    backlog_bytes: Limit = 10_000
    """Backlog of a link's queue at the end of a round."""
    compute_share: Limit = 0.02
    """Overruns of modelled computing, as a share of the round's latency. Default in virtual time:
    0.0001."""
    injection_share: Limit = 0.005
    """Effect of late rate changes on a round's latency, as a share of it. Default in virtual time:
    0.00001."""
    rest_share: Limit = 0.02
    """Part of a round's latency that the error budget cannot explain, as a share of it. Default in
    virtual time: 0.01."""
    transfer_error: Limit = 0.03
    """Error of a transfer relative to the integral of its link's rates, 95th percentile, with a
    tolerance of one packet at its end; excludes the broadcast. Where links delay or lose frames,
    only transfers that end too early count. Default in virtual time: 0.02."""
    broadcast_error: Limit = Field(default=0.25, exclude_if=lambda limit: limit == 0.25)
    """As `transfer_error`, for the broadcast, whose transfers all begin at once and may overload a
    machine for some milliseconds; with the real clock, 2 ms of each are tolerated. Default in
    virtual time: 0.05."""
    loss_deviation: Limit = Field(default=5.0, exclude_if=lambda limit: limit == 5.0)
    """Difference between the lost frames of a link and their expected number, in standard
    deviations; replaces rest_share where links delay or lose frames."""
    clock_error_s: Limit = Field(default=0.001, exclude_if=lambda limit: limit == 0.001)
    """Where nodes run on several machines: largest error of the assumed offset between two of their
    clocks, in real seconds."""
    late_frames: Limit = Field(default=0.01, exclude_if=lambda limit: limit == 0.01)
    """Share of a link's frames that arrived at least one millisecond (real time) later than `links`
    gives."""
    cpu_steal: Limit = 0.05
    """Share of CPU time that other guests of the same host took."""
    cpu_others: Limit = 0.5
    """Share of CPU time that programs outside of the run took."""
    clock_drift_ppm: Limit = 200.0
    """Drift between the clock of the emulation and a clock that is never adjusted."""


VIRTUAL_DATE, _DATES = "2026-01-01", (date(2000, 1, 1), date(2199, 12, 31))


def _date(value: object) -> str:
    """A date of YAML, or a text with one, in the form of ISO 8601."""
    with suppress(TypeError, ValueError):
        given = value if isinstance(value, date) else date.fromisoformat(value)  # type: ignore[arg-type]
        if not isinstance(given, datetime) and _DATES[0] <= given <= _DATES[1]:
            return given.isoformat()
    raise ValueError(f"must be a date from {_DATES[0]} to {_DATES[1]} like {VIRTUAL_DATE}")


class Emulation(Section):
    """How the emulated network is run."""

    runtime: Literal["namespace", "docker"] = "namespace"
    """`namespace`: processes in network namespaces, without root; `docker`: containers, with root.
    """
    clock: Literal["real", "virtual"] = Field(
        default="real", exclude_if=lambda clock: clock == "real"
    )
    """`real`: the clock of this machine; `virtual`: the clock of a separate Linux kernel, which
    stops while programs compute. With `virtual`, dilation is 1, nothing overruns, and equal runs
    measure the same bytes."""
    air: Literal["links", "ns3"] = Field(default="links", exclude_if=lambda air: air == "links")
    """What carries the frames between nodes: `links`: links of the kernel with the rates of the
    radio model; `ns3`: the radio access `radio.access` as ns-3 simulates it, packet by packet."""
    virtual_date: Annotated[str, BeforeValidator(_date)] = Field(
        default=VIRTUAL_DATE, exclude_if=lambda given: given == VIRTUAL_DATE
    )
    """Date at which a guest's clock starts with `clock: virtual`, at 0:00 UTC, like `2026-11-25`:
    programs that check the dates of certificates need a date on which these are valid. From
    2000-01-01 to 2199-12-31."""
    dilation: Literal["auto"] | Annotated[float, Field(ge=1e-3, le=1e6)] = 1.0
    """Real seconds per emulated second; slows links and modelled computing alike. `auto`: the
    smallest factor at which real computing on this machine is predicted to keep up."""
    overrun_bound: Annotated[float, Field(ge=1e-6, le=1)] = 0.01
    """With `dilation: auto`: largest predicted effect of overruns, as a share of a round's latency.
    """
    congestion_control: str = Field(default="cubic", pattern=r"^[a-z0-9_]+$")
    """Congestion control of every TCP connection; `testbed doctor` lists those of the kernel. QUIC
    supports `cubic` and `reno`."""
    mtu: Annotated[int, Field(ge=576, le=9000)] = 1500
    """Largest IP packet on the links, in bytes."""
    placement: (
        Literal["spread", "pack"] | dict[str, list[Annotated[str, Field(pattern=NODE)]]] | None
    ) = Field(default=None, exclude_if=lambda placement: placement is None)
    """Placement of nodes on hosts with `run --scheduler`: `spread` over all hosts by their cores
    (also the default), `pack` onto as few hosts as have a core for each node, or a mapping from
    host names to lists of nodes."""
    transport: str = "tcp"
    """Transport protocol: `tcp`, another one of docs/overheads.md, or one that a package registers
    as `testbed.transports`: docs/plugins.md."""
    connection: Literal["kept", "per-transfer"] = "kept"
    """`kept`: one connection per link for the whole run; `per-transfer`: a new connection for each
    transfer, opened by its sender."""
    nagle: bool = False
    """Whether TCP delays small segments until earlier ones are acknowledged."""
    initial_window: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Initial congestion window of TCP in segments, also after a pause; none: the kernel's default
    of ten."""
    one_way_delay_s: Annotated[float, Field(ge=0, le=10)] = 0.0
    """The former name of `links.one_way_delay_s`, as one number for all links."""
    rate_counts: Literal["frame", "payload"] = "frame"
    """Which bytes the rate of the channel includes: whole Ethernet frames, or only the payload,
    with headers on top."""
    calibrate: bool = True
    """Whether every link is measured at its lowest, middle and highest rate before the run or
    session."""
    docker_image: str = "host"
    """`host`: the file system of this machine, read-only, without a build; otherwise the name of an
    image."""
    limits: Limits = Limits()

    @model_validator(mode="after")
    def _virtual_time_has_its_own_kernel(self) -> "Emulation":
        if self.clock == "virtual" and self.runtime != "namespace":
            raise ValueError(
                f"runtime: must be 'namespace' where clock is 'virtual', not {self.runtime!r}"
            )
        if self.clock != "virtual" and self.virtual_date != VIRTUAL_DATE:
            raise ValueError("virtual_date: needs clock 'virtual'; the real clock has today's date")
        return self

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
    """One fault; docs/faults.md describes each kind."""

    kind: FaultKind
    """Kind of the fault."""
    nodes: list[Annotated[str, Field(pattern=NODE)]] = []
    """Nodes that the fault affects: `uav1`, `uav2`, …; `bs` for slow-node. A bs-crash needs none.
    """
    round: Annotated[int, Field(ge=0, lt=1_000_000)] | None = None
    """The round (from 0) from whose start `at_s` counts. Default: `at_s` counts from the start of
    the run."""
    at_s: Annotated[float, Field(ge=0, le=1e9)] = 0.0
    """Time of the fault in emulated seconds, rounded to the nearest slot boundary."""
    duration_s: Duration | None = None
    """Duration of link-outage, partition and slow-node. Default: to the end of the run."""
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


class RandomFaults(Section):
    """Faults drawn by seed: start times uniform in `within_s`, each on one UAV."""

    count: Annotated[int, Field(ge=0, le=10_000)] | None = None
    """Number of faults. Default: drawn from a Poisson distribution with `rate_per_s`."""
    rate_per_s: Annotated[float, Field(ge=0, le=100)] = 0.0
    """Mean number of faults per second, where `count` is not given."""
    kinds: list[FaultKind] = Field(default=["link-outage"], min_length=1)
    """Kinds of faults, drawn with equal probability."""
    within_s: Duration = 60.0
    """Emulated seconds from the start of the run in which the faults begin."""
    duration_s: tuple[Duration, Duration] = (1.0, 5.0)
    """Shortest and longest duration of faults that last."""
    factor: tuple[Annotated[float, Field(ge=1, le=1e6)], Annotated[float, Field(ge=1, le=1e6)]] = (
        2.0,
        4.0,
    )
    """Smallest and largest factor of slow nodes."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    """Random seed of the faults. Default: the scenario's seed."""

    @model_validator(mode="after")
    def _ranges_in_order(self) -> "RandomFaults":
        if self.count is None and not self.rate_per_s:
            raise ValueError("count: is missing, and so is rate_per_s; how many faults?")
        for name in ("duration_s", "factor"):
            low, high = getattr(self, name)
            if low > high:
                raise ValueError(f"{name}: {low:g} must not be above {high:g}")
        return self


class Faults(Section):
    """Faults during the run, and how a round handles the loss of a client."""

    events: list[FaultEvent] = []
    """Faults at given times."""
    random: RandomFaults | None = None
    """Faults at random times, by seed."""
    on_loss: Literal["wait", "drop", "abort"] = "wait"
    """What a round does when a client is considered lost: `wait` for it if it can return, `drop` it
    from the round, or `abort` the run."""
    loss_timeout_s: Duration = 5.0
    """Emulated seconds of silence after which a client is considered lost."""

    @property
    def may_slow(self) -> bool:
        """Whether any fault may be a slow node."""
        drawn = [] if self.random is None else self.random.kinds
        return "slow-node" in [*drawn, *(event.kind for event in self.events)]


def _text(value: object) -> object:
    """A number of YAML as text, as environment variables need it."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


class NodePrograms(Section):
    """Programs of a node in a session of `testbed up`, and their permissions; docs/programs.md."""

    command: str | Annotated[list[str], Field(min_length=1)] | None = None
    """A command line for a shell, or a list of a program and its arguments."""
    image: Annotated[str, Field(min_length=1)] | None = None
    """Container image in which the programs run, for runtimes with containers."""
    cpus: Annotated[float, Field(ge=0.01, le=1024)] | None = None
    """Largest number of CPUs that each program may use, for runtimes with containers."""
    memory_bytes: Annotated[int, Field(ge=1 << 22, le=1 << 50)] | None = None
    """Largest amount of memory that each program may use, for runtimes with containers."""
    env: dict[
        Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")], Annotated[str, BeforeValidator(_text)]
    ] = {}
    """Environment variables, in addition to those that all nodes have."""
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
    """Paradigm, i.e. how the server serves its clients: one of README.md or a plug-in:
    docs/plugins.md."""
    order: str | None = Field(default=None, exclude_if=lambda order: order is None)
    """Service order of sequential resources, if it differs from that of the paradigm: `larger-lag`,
    `first-come`, `shortest-job-first`, `longest-remaining-work-first`, `round-robin`, or one that a
    package registers as `testbed.orders`: docs/orders.md."""
    order_parameters: dict[str, float] = Field(default={}, exclude_if=lambda given: not given)
    """Parameters of a plug-in order; all are numbers."""
    rounds: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    """Number of rounds to predict or emulate."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 1
    """Random seed of mobility, fading, weights and data."""
    slot_s: Annotated[float, Field(ge=1e-3, le=10)] = 0.1
    """Length of a slot, τ0; the channel is constant within a slot."""
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
    objective: Objective = Objective()
    faults: Faults = Faults()
    emulation: Emulation = Emulation()
    analytical_models: dict[str, dict[str, JsonValue]] = Field(
        default={}, exclude_if=lambda models: not models
    )
    """Parameters of plug-in analytical models, by the name of the model: docs/plugins.md."""
    nodes: dict[str, NodePrograms] = Field(default={}, exclude_if=lambda nodes: not nodes)
    """Programs of each node in sessions of `testbed up`, by node: `bs`, `uav1`, … or `uav*` for
    every UAV."""

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
            return self
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
            return self
        if far_m > model.farthest_m:
            raise ValueError(
                f"uavs.rings_m: must lie within {model.farthest_m:g} m where radio.channel is "
                f"{model.name!r}, not {far_m:g}"
            )
        return self

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
    def _speeds_fit_the_fleet(self) -> "Scenario":
        for name in ("speed_m_s", "mean_speed_m_s", "speed_deviation_m_s"):
            _one_per_uav(f"mobility.{name}", getattr(self.mobility, name), self.uavs.count)
        low, high = self.fleet.speed_m_s.T
        mean = self.fleet.mean_speed_m_s
        for k in np.flatnonzero(~((low <= mean) & (mean <= high))):
            raise ValueError(
                f"mobility.mean_speed_m_s: must lie in speed_m_s, {low[k]:g} to {high[k]:g}"
                + (f"; UAV {k + 1} has {mean[k]:g}" if len(set(mean)) > 1 else "")
            )
        return self

    @model_validator(mode="after")
    def _agent_named(self) -> "Scenario":
        if self.allocation.policy == "agent" and self.allocation.agent is None:
            raise ValueError("allocation.agent: is missing; the policy 'agent' needs a trained one")
        return self

    @model_validator(mode="after")
    def _one_share_per_client(self) -> "Scenario":
        for name in ("alpha", "beta", "rho"):
            shares = getattr(self.allocation, name)
            if shares == "equal":
                continue
            if self.allocation.policy != "fixed":
                raise ValueError(
                    f"allocation.{name}: shares are given, but allocation.policy is "
                    f"{self.allocation.policy!r}; it would have to be 'fixed'"
                )
            if len(shares) != self.uavs.count:
                raise ValueError(
                    f"allocation.{name}: must have one share per UAV: {self.uavs.count}, "
                    f"not {len(shares)}"
                )
        return self

    @model_validator(mode="after")
    def _one_value_per_link(self) -> "Scenario":
        if self.emulation.one_way_delay_s and self.links.one_way_delay_s != 0:
            raise ValueError(
                "links.one_way_delay_s: must not be given together with emulation.one_way_delay_s, "
                "its former name"
            )
        for name in ("one_way_delay_s", "jitter_s", "loss"):
            for where, values in _lists(getattr(self.links, name), f"links.{name}"):
                if len(values) != self.uavs.count:
                    raise ValueError(
                        f"{where}: must have one value per UAV: {self.uavs.count}, "
                        f"not {len(values)}"
                    )
        return self

    @model_validator(mode="after")
    def _transport_allows_the_rest(self) -> "Scenario":
        with _within(""):
            kind = self.emulation.transport_kind
        where = f"where emulation.transport is {kind.name!r}"
        for key, fits in kind.allowed.items():
            if attrgetter(key)(self) not in fits:
                raise ValueError(f"{key}: {_must_be(fits)} {where}")
        if (mtu := self.emulation.mtu) < kind.least_mtu:
            raise ValueError(f"emulation.mtu: must be at least {kind.least_mtu} {where}, not {mtu}")
        return self

    @model_validator(mode="after")
    def _mac_sees_priorities(self) -> "Scenario":
        if self.radio.lte.downlink_order == "application":
            return self
        for key, given, fits in (
            ("radio.access", self.radio.access, "lte"),
            ("emulation.air", self.emulation.air, "ns3"),
        ):
            if given != fits:
                raise ValueError(
                    f"radio.lte.downlink_order: 'mac' needs {key} {fits!r}, not {given!r}"
                )
        if not self.emulation.transport_kind.marks_packets:
            raise ValueError(
                "radio.lte.downlink_order: must be 'application' where emulation.transport is "
                f"{self.emulation.transport!r}, whose packets cannot be marked per client"
            )
        return self

    @model_validator(mode="after")
    def _one_split_per_client(self) -> "Scenario":
        split = self.workload.split
        if not isinstance(split, int) and len(split) != self.uavs.count:
            raise ValueError(
                f"workload.split: must have one entry per UAV: {self.uavs.count}, not {len(split)}"
            )
        if self.workload.differing_splits and self.allocation.policy == "agent":
            raise ValueError(
                "workload.split: must be one number where allocation.policy is 'agent'"
            )
        shared = self.workload.server_adapters == "shared"
        if shared and self.allocation.policy == "per-client-planner":
            raise ValueError(
                "allocation.policy: 'per-client-planner' needs workload.server_adapters "
                "'per-client'; clients that share adapters have one split point"
            )
        return self

    @model_validator(mode="after")
    def _statistics_stay_where_they_are(self) -> "Scenario":
        workload, policy = self.workload, self.allocation.policy
        if not workload.statistics_stay:
            return self
        where = f"workload.batch_norm: {workload.batch_norm!r} keeps statistics at each client"
        if policy not in ("fixed", "equal", "static"):
            raise ValueError(f"{where}; allocation.policy {policy!r} may move split points")
        if self.scheme.asynchronous:
            raise ValueError(f"{where}; the paradigm {self.paradigm!r} must not be asynchronous")
        if self.faults.on_loss == "drop":
            raise ValueError(
                f"{where}; faults.on_loss must not be 'drop', because a lost client has them"
            )
        return self

    @model_validator(mode="after")
    def _enough_to_choose_from(self) -> "Scenario":
        asked = self.participation.clients
        if asked is not None and asked > self.uavs.count:
            raise ValueError(
                f"participation.clients: there are only {self.uavs.count} UAVs, not {asked}"
            )
        if self.participation.deadline_s is not None and self.faults.on_loss != "drop":
            raise ValueError(
                "participation.deadline_s: needs faults.on_loss 'drop', "
                f"not {self.faults.on_loss!r}"
            )
        if self.participation != ALL_CLIENTS and self.allocation.policy == "agent":
            raise ValueError(
                "participation: must be absent where allocation.policy is 'agent', whose "
                "rounds have all UAVs"
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
        if self.workload.compute_time == "measured" and self.faults.may_slow:
            raise ValueError(
                "workload.compute_time: 'measured' computing cannot be slowed; "
                "slow-node needs 'modelled'"
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

    @model_validator(mode="after")
    def _fits_virtual_time(self) -> "Scenario":
        if self.emulation.clock == "real":
            return self
        if self.workload.compute_time == "measured":
            raise ValueError(
                "workload.compute_time: must be 'modelled' where emulation.clock is 'virtual': "
                "computing takes no time there"
            )
        if self.workload.clients_per_pass > 1:
            raise ValueError(
                "workload.clients_per_pass: must be 1 where emulation.clock is 'virtual': the "
                "duration of a pass cannot be measured there"
            )
        for name, node in (("base_station", self.base_station), ("uavs", self.uavs)):
            if node.device != "cpu":
                raise ValueError(
                    f"{name}.device: must be 'cpu' where emulation.clock is 'virtual', "
                    f"not {node.device!r}"
                )
        return self

    @model_validator(mode="after")
    def _fits_the_radio_of_ns3(self) -> "Scenario":
        if self.emulation.air == "links":
            return self
        for key, given, fits in (
            ("radio.access", self.radio.access, ("lte", "wifi")),
            ("emulation.runtime", self.emulation.runtime, ("namespace",)),
            ("emulation.placement", self.emulation.placement, (None,)),
            ("emulation.rate_counts", self.emulation.rate_counts, ("frame",)),
            ("emulation.one_way_delay_s", self.emulation.one_way_delay_s, (0.0,)),
            ("links.one_way_delay_s", self.links.one_way_delay_s, (0.0,)),
            ("links.jitter_s", self.links.jitter_s, (0.0,)),
            ("links.loss", self.links.loss, (0.0,)),
            ("links.queue", self.links.queue, ("fifo",)),
            ("links.ecn", self.links.ecn, (False,)),
        ):
            if given not in fits:
                raise ValueError(f"{key}: {_must_be(fits)} where emulation.air is 'ns3'")
        radio, policy = self.radio, self.allocation.policy
        by_shares = radio.access == "lte" and radio.lte.scheduler == "shares"
        if by_shares and policy not in ("fixed", "equal"):
            raise ValueError(
                "allocation.policy: must be 'fixed' or 'equal' where emulation.air is 'ns3' and "
                f"radio.lte.scheduler is 'shares', which stay the same; not {policy!r}"
            )
        if radio.access == "wifi" and self.emulation.mtu > MOST_WIFI_MTU:
            raise ValueError(
                f"emulation.mtu: must be at most {MOST_WIFI_MTU} where ns-3's Wi-Fi carries the "
                f"packets, not {self.emulation.mtu}"
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
    def _asynchronous_supports_the_rest(self) -> "Scenario":
        section, workload = self.workload.asynchronous, self.workload
        if not self.scheme.asynchronous:
            return self
        if section.updates is not None and section.updates < self._taking_part:
            raise ValueError(
                f"workload.asynchronous.updates: must be one for each UAV that takes part or more: "
                f"{self._taking_part}, not {section.updates}"
            )
        for field, given, fits in (
            ("order", self.order, (None,)),
            ("allocation.policy", self.allocation.policy, ("fixed", "equal")),
            ("workload.aggregation", workload.aggregation, ("fedavg", "fedprox")),
            ("workload.server_adapters", workload.server_adapters, ("per-client",)),
            ("participation.deadline_s", self.participation.deadline_s, (None,)),
        ):
            if given not in fits:
                where = f"where the paradigm is {self.paradigm!r}"
                raise ValueError(f"{field}: {_must_be(fits)} {where}")
        return self

    @property
    def updates(self) -> int:
        """Updates per round of an asynchronous paradigm, of all UAVs together; 0 for other
        paradigms."""
        if not self.scheme.asynchronous:
            return 0
        return self.workload.asynchronous.updates or 4 * self._taking_part

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
        """The largest number of iterations that a client can do in a round."""
        return self.workload.local_iterations * max(1, self.updates)

    @cached_property
    def scheme(self) -> Paradigm:
        """The paradigm as data, with the order of the scenario if it has one."""
        named = paradigm(self.paradigm)
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
