# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Types of arrays, and read-only views."""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def read_only(array: npt.NDArray[Any], kind: type = float) -> npt.NDArray[Any]:
    """A contiguous read-only view of an array, or of a copy with elements of this kind."""
    view: npt.NDArray[Any] = np.ascontiguousarray(array, kind).view()
    view.flags.writeable = False
    return view
