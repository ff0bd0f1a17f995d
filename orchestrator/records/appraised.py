# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""`appraised.json` in a folder of `testbed learn`: classes and clients under the last state."""

from functools import cached_property
from pathlib import Path
from typing import Annotated, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from orchestrator.scenario.loading import explain
from testbed.core.errors import InputError
from testbed.system.files import read_regular, write_json

FILE = "appraised.json"
MOST_BYTES = 64 << 20
"""Size limit of the file."""

Count = Annotated[int, Field(ge=0, le=2**53)]


class Part(BaseModel):
    """A part of the file; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True)


class Client(Part):
    """How well the last state serves a client."""

    client: Annotated[int, Field(ge=1, le=100_000)]
    samples: Count
    """Number of its training samples."""
    appraised: Count
    """Number of its training samples that were used."""
    loss: float | None
    """Mean cross entropy; None: not finite."""
    accuracy: Annotated[float, Field(ge=0, le=1)] | None


class Appraised(Part):
    """How well the last state serves classes and clients."""

    trained: Count
    """Number of trained values."""
    names: Annotated[list[Annotated[str, Field(max_length=1000)]], Field(max_length=1000)]
    """Names of the classes; empty for tokens."""
    confusion: list[tuple[Count, Count, Count]]
    """Class, predicted class, and the number of held-out samples, if it is not 0."""
    clients: Annotated[list[Client], Field(min_length=1)]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if any(max(label, predicted) >= len(self.names) for label, predicted, _ in self.confusion):
            raise ValueError("confusion: has a class that is not in `names`")
        return self

    @cached_property
    def matrix(self) -> npt.NDArray[np.int64]:
        """Held-out samples by class and predicted class, shape [classes, classes]."""
        made = np.zeros((len(self.names), len(self.names)), np.int64)
        for label, predicted, count in self.confusion:
            made[label, predicted] += count
        return made

    def write(self, folder: Path) -> None:
        """Write the file into a folder, atomically."""
        write_json(folder / FILE, self.model_dump(mode="json"))


def read_appraised(folder: Path) -> Appraised | None:
    """Read the file of a folder; None if there is none.

    Raises:
        InputError: The file is broken; the message names it and the field.
    """
    path = folder / FILE
    if not path.exists():
        return None
    try:
        return Appraised.model_validate_json(read_regular(path, MOST_BYTES))
    except ValidationError as error:
        why = explain(error.errors(include_url=False), Appraised)
        raise InputError(f"{path}: {why}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None
