# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Builds the ns-3 models in ``cpp/`` against the installed ``ns3`` wheel, once.

Each folder of ``cpp/`` becomes a library or a program in the user's cache; see
`testbed.system.building`.
"""

import importlib.metadata
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from ns3_scenarios.errors import ChannelError
from testbed.system import building

Models = Literal["channel", "packets", "radio"]
"""Name of a folder of ``cpp/``."""

_SOURCES = Path(__file__).parent / "cpp"
_SHARED = ("tcp", "lte")
"""Folders of headers that the others include."""
_PROGRAMS = {"radio"}
"""Folders that become programs; the others become libraries."""
_MODULES = {
    "channel": ("propagation", "mobility", "network", "core"),
    "packets": ("point-to-point", "internet", "network", "core"),
    "radio": (
        *("lte", "wifi", "spectrum", "propagation", "buildings", "antenna", "mobility"),
        *("point-to-point", "virtual-net-device", "applications", "internet", "traffic-control"),
        *("bridge", "csma", "fd-net-device", "stats", "network", "core"),
    ),
}
"""The ns-3 modules that each folder of models uses."""
_PROGRAM = (
    # ns-3's LTE needs its config-store, which needs symbols of GTK that no model uses. A program
    # binds symbols when they are used; ctypes binds all of them at once.
    *("-Wl,--unresolved-symbols=ignore-in-shared-libs", "-Wl,-z,lazy"),
)
_FLAGS = ("-DNS3_LOG_ENABLE", "-DNS3_ASSERT_ENABLE")
"""As the wheel was built."""


def library(models: Models = "channel") -> Path:
    """Path of the library or program of these models; builds it if there is none (some seconds).

    Raises:
        ChannelError: g++ or the ns3 wheel is missing, or the build failed; see `building.built`.
    """
    version, wheel = _wheel()
    folder, is_program = _SOURCES / models, models in _PROGRAMS
    try:
        return building.built(
            f"ns3-{models}",
            sorted(folder.glob("*.cc")),
            [each for name in (models, *_SHARED) for each in (_SOURCES / name).iterdir()],
            _options(
                version, wheel, _PROGRAM if is_program else building.LIBRARY, _MODULES[models]
            ),
            key=version,
            suffix="" if is_program else ".so",
        )
    except building.BuildError as error:
        raise ChannelError(f"the ns-3 models cannot be built: {error}") from None


def _wheel() -> tuple[str, Path]:
    """Version and folder of the installed wheel, found without importing it."""
    spec = importlib.util.find_spec("ns3")
    for folder in (spec and spec.submodule_search_locations) or ():
        if (Path(folder) / "include" / "ns3").is_dir():
            return importlib.metadata.version("ns3"), Path(folder)
    raise ChannelError("the ns3 package is missing: pip install ns3")


def _options(version: str, wheel: Path, kind: Sequence[str], modules: Sequence[str]) -> list[str]:
    release = ".".join(version.split(".")[:2])
    return [
        *(*kind, *_FLAGS, "-isystem", str(wheel / "include"), "-x", "c++", "-"),
        *("-L", str(wheel / "lib64"), f"-Wl,-rpath,{wheel / 'lib64'}"),
        *(f"-l:libns3.{release.removeprefix('3.')}-{name}.so" for name in modules),
    ]
