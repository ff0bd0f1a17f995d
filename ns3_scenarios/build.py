# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Builds the ns-3 models in ``cpp/`` against the installed ``ns3`` wheel, once.

Each folder of ``cpp/`` becomes a library or a program in the user's cache; see
`testbed.system.building`.
"""

import importlib.metadata
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from ns3_scenarios.errors import ChannelError
from testbed.system import building

Models = Literal["channel", "packets", "radio", "radio-nr"]
"""Name of a folder of ``cpp/``."""

_SOURCES = Path(__file__).parent / "cpp"
_FOLDERS: Mapping[str, Sequence[str]] = {"radio-nr": ("radio", "nr")}
"""The folders of models that are not those of the folder of that name."""
_SHARED = ("tcp", "lte")
"""Folders of headers that the others include."""
_PROGRAMS = {"radio", "radio-nr"}
"""Models that become programs; the others become libraries."""
_RADIO_MODULES = (
    *("lte", "wifi", "spectrum", "propagation", "buildings", "antenna", "mobility"),
    *("point-to-point", "virtual-net-device", "applications", "internet", "traffic-control"),
    *("bridge", "csma", "fd-net-device", "stats", "network", "core"),
)
_MODULES = {
    "channel": ("propagation", "mobility", "network", "core"),
    "packets": ("point-to-point", "internet", "network", "core"),
    "radio": _RADIO_MODULES,
    "radio-nr": (*_RADIO_MODULES, "internet-apps", "flow-monitor", "config-store"),
}
"""The ns-3 modules that each of the models uses."""
_PROGRAM = (
    # ns-3's LTE needs its config-store, which needs symbols of GTK that no model uses. A program
    # binds symbols when they are used; ctypes binds all of them at once.
    *("-Wl,--unresolved-symbols=ignore-in-shared-libs", "-Wl,-z,lazy"),
)
_FLAGS = ("-DNS3_LOG_ENABLE", "-DNS3_ASSERT_ENABLE")
"""As the wheel was built."""


def library(models: Models = "channel", nr: Path | None = None) -> Path:
    """Path of the library or program of these models; builds it if there is none (some seconds).

    Args:
        models: The models.
        nr: Folder of the NR module that `radio-nr` needs, with `libnr.so` and `include`.

    Raises:
        ChannelError: g++ or the ns3 wheel is missing, or the build failed; see `building.built`.
    """
    version, found = wheel()
    folders, is_program = _FOLDERS.get(models, (models,)), models in _PROGRAMS
    kind: Sequence[str] = _PROGRAM if is_program else building.LIBRARY
    if nr is not None:
        kind = (*kind, "-DRADIO_NR", "-isystem", str(nr / "include"))
    options = _options(version, found, kind, _MODULES[models])
    if nr is not None:
        options += ["-L", str(nr), "-l:libnr.so", f"-Wl,-rpath,{nr}"]
    try:
        return building.built(
            f"ns3-{models}",
            [path for name in folders for path in sorted((_SOURCES / name).glob("*.cc"))],
            [path for name in (*folders, *_SHARED) for path in (_SOURCES / name).iterdir()],
            options,
            key=version,
            suffix="" if is_program else ".so",
        )
    except building.BuildError as error:
        raise ChannelError(f"the ns-3 models cannot be built: {error}") from None


def wheel() -> tuple[str, Path]:
    """Version and folder of the installed wheel, found without importing it.

    Raises:
        ChannelError: There is none.
    """
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
