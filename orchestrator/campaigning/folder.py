# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A campaign's directory, which contains complete results of finished points only.

A point's folder is written under a temporary name and then renamed to the point's ID. The process
that runs a campaign holds a lock, which the kernel releases when the process ends.
"""

import contextlib
import fcntl
import json
import logging
import os
import secrets
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from orchestrator.campaigning.spec import (
    Campaign,
    Cell,
    Point,
    PointOptions,
    load_campaign,
    point_of,
    to_yaml,
)
from orchestrator.campaigning.worker import Files
from orchestrator.records.directory import MANIFEST
from orchestrator.records.reader import read_object
from orchestrator.records.tables import check_whole
from orchestrator.scenario.loading import validate
from testbed.core.errors import InputError
from testbed.system.files import check_no_link, write_json, write_whole

log = logging.getLogger(__name__)

CAMPAIGN = "campaign.yaml"


class CampaignFolder:
    """A campaign's directory. Reading needs no lock; `held` is for writing."""

    def __init__(self, path: Path):
        self.path = path
        self._resolved: dict[Path, str] = {}
        self._whole: dict[Path, bool] = {}

    @contextlib.contextmanager
    def held(self, campaign: Campaign) -> Iterator[None]:
        """Claim the directory for this campaign and exclude other processes in this context.

        A changed campaign file replaces the stored one; finished points that it still contains are
        kept.

        Raises:
            InputError: The directory contains something else, or another process uses it.
        """
        for folder in (self.path, self._points):
            check_no_link(folder)
        if self.path.exists() and not (self.path / CAMPAIGN).is_file() and any(self._visible()):
            raise InputError(f"`out`: {self.path} exists already and contains no campaign")
        try:
            self._points.mkdir(parents=True, exist_ok=True)
            follow_none = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            lock = os.fdopen(os.open(self.path / ".lock", follow_none, 0o666), "a+")
        except OSError as error:
            raise InputError(f"`out`: {self.path} cannot be written ({error.strerror})") from None
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                holder = f"process {lock.read().strip() or 'unknown'}"
                raise InputError(f"`out`: {holder} already uses {self.path}") from None
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            for part in self._points.glob(".*.part"):
                if part.is_symlink():
                    part.unlink()
                else:
                    shutil.rmtree(part, ignore_errors=True)
            text = to_yaml(campaign)
            write_whole(self.path / CAMPAIGN, lambda part: part.write_text(text, "utf-8"))
            yield

    def clear(self) -> None:
        """Remove all results of the campaign in this directory, if there is one.

        Raises:
            InputError: Another process uses the directory.
        """
        if (self.path / CAMPAIGN).is_file():
            with self.held(self.campaign()):
                for path in self._visible():
                    if path.is_dir() and not path.is_symlink():
                        shutil.rmtree(path)
                    else:
                        path.unlink()

    def campaign(self) -> Campaign:
        """The campaign of this directory.

        Raises:
            InputError: It is not the directory of a campaign.
        """
        if not (self.path / CAMPAIGN).is_file():
            raise InputError(f"{self.path}: not the directory of a campaign: no {CAMPAIGN} in it")
        return load_campaign(self.path)

    def finished(self, points: Iterable[Point]) -> dict[str, Path]:
        """The folders of those of the given points that are finished, by point ID.

        A point that was stored before a scenario key existed has another ID; its ID is computed
        again with today's keys, so that it is found. A point with a damaged file is not finished.
        """
        ids = {point.id for point in points}
        here = {path.name: path for path in self._points.glob("[!.]*")}
        found = {id_: path for id_, path in here.items() if id_ in ids}
        if len(found) < len(ids):
            for name in here.keys() - ids:
                found.setdefault(self._resolve(here[name]), here[name])
        return {id_: path for id_, path in found.items() if id_ in ids and self._is_whole(path)}

    def _is_whole(self, point: Path) -> bool:
        """Whether no file of a stored point is cut, as after a power failure."""
        if point not in self._whole:
            files = {point / MANIFEST, *point.iterdir()}
            faults = filter(None, map(fault_of, sorted(files)))
            self._whole[point] = not (fault := next(faults, ""))
            if fault:
                log.warning("%s: `testbed campaign run` computes this point again", fault)
        return self._whole[point]

    def _resolve(self, path: Path) -> str:
        """The ID that a stored point would have today; empty if its scenario is no longer valid."""
        if path not in self._resolved:
            self._resolved[path] = ""
            with contextlib.suppress(InputError, OSError):
                self._resolved[path] = stored_point(path).id
        return self._resolved[path]

    def store(self, id_: str, files: Files, instead: Path | None = None) -> None:
        """Store a point's files at once; they replace the older folder `instead`."""
        # An unpredictable name: other users may be able to write links into the folder.
        place, part = self._points / id_, self._points / f".{id_}.{secrets.token_hex(4)}.part"
        for name, data in files.items():
            path = part / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        if instead is None and place.exists():
            instead = place  # It is damaged.
        if instead is not None:
            instead.rename(self._points / f".{id_}.old.part")
        part.rename(place)
        if instead is not None:
            shutil.rmtree(self._points / f".{id_}.old.part")
        self._whole[place] = True
        shutil.rmtree(self.unfinished / id_, ignore_errors=True)
        (self._failures / f"{id_}.json").unlink(missing_ok=True)

    def store_failure(self, id_: str, failure: dict[str, Any]) -> None:
        """Store why a point has failed; it stays unfinished."""
        self._failures.mkdir(exist_ok=True)
        write_json(self._failures / f"{id_}.json", failure)

    def failures(self, points: Iterable[Point]) -> dict[str, dict[str, Any]]:
        """Stored failures of points that have not been finished since, by point ID."""
        paths = {point.id: self._failures / f"{point.id}.json" for point in points}
        return {
            id_: read_object(path)
            for id_, path in paths.items()
            if path.is_file() and not fault_of(path)
        }

    @property
    def unfinished(self) -> Path:
        """Folder for the checkpoints of points that take long, one subfolder per point ID."""
        return self.path / "unfinished"

    @property
    def _points(self) -> Path:
        return self.path / "points"

    @property
    def _failures(self) -> Path:
        return self.path / "failed"

    def _visible(self) -> Iterator[Path]:
        return (path for path in self.path.iterdir() if path.name != ".lock")


def manifest_of(folder: Path) -> dict[str, Any]:
    """The manifest in a finished point's folder."""
    return read_object(folder / MANIFEST)


def fault_of(path: Path) -> str:
    """Why a file of a point or of its failure cannot be read, as far as its length and its last
    bytes show it; empty if nothing does."""
    try:
        if path.suffix == ".json":
            read_object(path)
        elif path.suffix == ".parquet":
            check_whole(path)
        elif path.suffix == ".npz" and not zipfile.is_zipfile(path):
            return f"{path}: is not a complete NPZ file"
    except InputError as error:
        return str(error)
    return ""


def stored_point(folder: Path) -> Point:
    """The point that is stored in a folder, with today's scenario keys.

    Raises:
        InputError: A file that it names is missing, or its scenario is no longer valid.
    """
    about = read_object(folder / "point.json")
    scenario = validate(json.loads(about["scenario"]), str(folder / "point.json"))
    options = PointOptions.model_validate(about.get("beside", {}))
    return point_of(about["mode"], scenario, about["trace"], about["steps_rounds"], options)


def distinct(cells: Sequence[Cell]) -> dict[str, Point]:
    """The distinct points of cells, by point ID."""
    return {cell.point.id: cell.point for cell in cells}
