# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Bundles that somebody has changed after they were written."""

import hashlib
import zipfile
from collections.abc import Callable
from pathlib import Path

from orchestrator.archive.bundle import SUMS


def rewritten(packed: Path, out: Path, change: Callable[[dict[str, bytes]], object]) -> Path:
    """The bundle with other files, and digests that say so; its metadata stays."""
    with zipfile.ZipFile(packed) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    change(content)
    content[SUMS] = "".join(
        f"{hashlib.sha256(data).hexdigest()}  {name}\n"
        for name, data in content.items()
        if name != SUMS
    ).encode()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return out
