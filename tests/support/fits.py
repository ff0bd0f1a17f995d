# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A file of a fitted channel, as `testbed fit` writes it."""

import json
from pathlib import Path
from typing import Any

from testbed.system.files import json_digest

UP = {
    "offset_db": -12.0,
    "shadowing_db": 3.0,
    "decorrelation_m": 40.0,
    "scatter_db": 1.0,
    "heading_db_per_m_s": -0.5,
    "elevation_db_per_deg": 0.25,
}
DOWN = {"offset_db": -9.0, "shadowing_db": 2.0, "decorrelation_m": 25.0}


def channel(**keys: Any) -> dict[str, Any]:
    """The object `channel` of the file."""
    made = {
        "model": "log-distance",
        "parameters": {"exponent": 2.2},
        "carrier_hz": 2e9,
        "up": UP,
        "down": DOWN,
        "correlation": 0.6,
    } | keys
    return made if "digest" in made else made | {"digest": json_digest(made)}


def write_fit(path: Path, link: dict[str, Any] | None = None, **keys: Any) -> Path:
    """Write the file; `keys` replace those of the channel."""
    path.write_text(json.dumps({"channel": channel(**keys), "link": link, "flights": 3}))
    return path
