# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""FIT.json: the parameters fitted to measured flights, in a file that is sealed by a digest."""

from pathlib import Path
from typing import Any, Self

import pydantic
from pydantic import BaseModel, ConfigDict, Field

from orchestrator.scenario.loading import must_be
from testbed.core.errors import InputError
from testbed.core.words import why
from testbed.system.files import json_digest, read_regular, write_json

MOST_BYTES = 16 << 20
"""Size limit of the file."""
UNSEALED = ("digest", "reveal")
"""Fields that the digest does not cover: the digest itself, and values measured later."""


class Part(BaseModel):
    """A part of a document; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True)


class Sealed(Part):
    """A document that contains the digest of all its other fields."""

    digest: str = ""
    """SHA-256 of all other fields."""

    def sealed(self) -> Self:
        """A copy of the document with its digest."""
        return self.model_copy(
            update={"digest": json_digest(self.model_dump(mode="json"), UNSEALED)}
        )

    def write(self, path: Path) -> None:
        """Write the file, atomically."""
        write_json(path, self.model_dump(mode="json"))

    @classmethod
    def read(cls, path: Path, option: str) -> Self:
        """Read a document and check its digest.

        Args:
            path: The file.
            option: The option that named the file, for messages.

        Raises:
            InputError: The file does not exist, is not such a document, or was changed; the message
                names the field.
        """
        try:
            found = cls.model_validate_json(read_regular(path, MOST_BYTES))
        except FileNotFoundError:
            raise InputError(f"`{option}`: {path}: no such file") from None
        except pydantic.ValidationError as error:
            first = error.errors()[0]
            if first["type"] == "json_invalid":
                raise InputError(f"`{option}`: {path}: is not JSON") from None
            where = ".".join(map(str, first["loc"]))
            says = "is missing" if first["type"] == "missing" else must_be(first)
            raise InputError(f"`{option}`: {path}: {where}: {says}") from None
        except (OSError, ValueError) as error:
            raise InputError(f"`{option}`: {path}: cannot be read ({why(error)})") from None
        if found.digest != json_digest(found.model_dump(mode="json"), UNSEALED):
            raise InputError(f"`{option}`: {path}: digest: the file was changed after it was made")
        return found


class Model(Part):
    """A channel model fitted to a level: its most likely parameters."""

    name: str
    offset_db: float
    """Level plus path loss, mean over the flights; for `log-distance` the level at 1 m."""
    offsets_db: list[float] = Field(min_length=1)
    """The offset of each flight."""
    between_flights_db: float | None
    """Standard deviation of the offsets; null with one flight."""
    exponent: float | None
    """Path loss exponent; null: the model has a fixed path loss."""
    sigma_db: float = Field(ge=0)
    """Standard deviation of shadowing, which is correlated along the path."""
    scatter_db: float = Field(ge=0)
    """Standard deviation of the scatter, which is independent from one slot to the next."""
    decorrelation_m: float = Field(gt=0)
    """Path after which the correlation of shadowing is 1/e."""
    antenna: list[str]
    """Antenna terms in the fit: `heading`, `elevation`."""
    heading_db_per_m_s: float
    """Gain per m/s of horizontal velocity away from the base station."""
    elevation_db_per_deg: float
    """Gain per degree of elevation."""
    covariance: list[list[float]]
    """Covariance of the errors of offsets, exponent and terms, in this order."""
    values: int
    """Number of values that were fitted."""
    aic: float
    """Akaike's information criterion."""
    cv_log_likelihood: float
    """Log-likelihood of segments of the flights, with parameters from all other segments."""


class Uplink(Model):
    """The uplink's signal-to-noise ratio along the flights."""

    correlation: float = Field(ge=-1, le=1)
    """Correlation of its shadowing with the shadowing of the level."""
    level: str = "snr_up_db"
    """The fitted quantity: the ratio itself, or the level if the ratio was not measured."""
    noise_db: float = 0.0
    """Level at which the ratio is 0 dB."""


class Curve(Part):
    """The measured uplink in steps of its signal-to-noise ratio."""

    quantiles: list[float] = Field(min_length=2)
    snr_db: list[float] = Field(min_length=1)
    """Median signal-to-noise ratio of each step."""
    seconds: list[int]
    """Number of seconds in each step."""
    capacity_bps: list[list[float]]
    """Quantiles of the capacity in each step."""
    mcs_up: list[list[float]] | None
    """Quantiles of the modulation and coding scheme in each step; null: it was never measured."""
    bler_up: list[float] | None
    """Median block error rate of each step; null: it was never measured."""
    memory_s: float = Field(gt=0)
    """Time after which the correlation of a second's rank within its step is 1/e."""
    memory_share: float = Field(ge=0, le=1)
    """Share of the variance of this rank that is correlated."""


class Stage(Part):
    """One stage between Shannon's rate and the measured goodput."""

    name: str
    median_bps: float


class Reference(Part):
    """Powers and noise for which the gains of the fitted channel are valid."""

    uav_tx_power_w: float
    base_station_tx_power_w: float
    noise_dbm_per_mhz: float


class Link(Part):
    """The link curve: keys of `radio.lte` that describe it, and the curve itself."""

    resource_blocks: int
    implementation_margin_db: float | None = None
    highest_snr_db: float | None = None
    error_db: float | None = None
    """Mean absolute error of the LTE model's rate with these two keys."""
    reference: Reference
    curve: Curve | None = None
    """The measured curve; null if no rates were measured."""
    stages: list[Stage] = []


class Flight(Part):
    """A fitted flight."""

    name: str
    start: str | None
    slots: int
    used: int
    """Number of slots in flight with a measured level."""
    lowest_m: float
    """Height from which the UAV counts as in flight."""
    nearest_m: float
    farthest_m: float
    base_station_m: list[float]
    """Position of the base station: from the flight, or the assumed one."""


class Rician(Part):
    """Rician K factor of small-scale fading."""

    k_db: float | None
    reason: str
    """Reason for which K is unknown; empty if it is known."""


class Document(Sealed):
    """The contents of FIT.json."""

    sentence: str
    """The result in one sentence."""
    best: str
    """The model with the lowest `aic`."""
    models: list[Model] = Field(min_length=1)
    """All models, the best one first."""
    refused: dict[str, str]
    """Models that are not valid along the flights, and the reasons."""
    antennas: list[Model] = Field(min_length=1)
    """The best model with each set of antenna terms."""
    chosen: Model
    """The element of `antennas` that the data support."""
    level: str
    """The level to which models were fitted: `rsrp_dbm`, `gain_db`, `snr_db` or `snr_up_db`."""
    carrier_hz: float
    rician: Rician
    flights: list[Flight] = Field(min_length=1)
    uplink: Uplink | None
    """The fit of the uplink; null if neither its SNR nor its rates were measured."""
    link: Link
    downlink_noise_dbm: float | None
    """RSRP at which the downlink's signal-to-noise ratio is 0 dB."""
    channel: dict[str, Any] | None
    """The channel as `radio.fitted` of a scenario; null if the gains are unknown."""
