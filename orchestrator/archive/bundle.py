# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A run or a campaign as one zip file that others can check.

`SHA256SUMS` lists the digests of all other files. Files that a scenario names (a trace, an agent,
on request images and weights) are in `inputs/`, and `inputs.json` maps their original paths to
them. Equal directories make equal bundles.
"""

import hashlib
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from orchestrator.archive.crate import METADATA, README, About, metadata, readme
from orchestrator.campaigning.folder import CAMPAIGN, CampaignFolder, manifest_of, stored_point
from orchestrator.campaigning.spec import cells, named_files
from orchestrator.records.checkpoint import FOLDER as CHECKPOINT
from orchestrator.records.directory import LOCK, MANIFEST
from orchestrator.records.manifest import command_of, environment
from orchestrator.records.reader import read_object, read_run
from orchestrator.reporting.formatting import without_links
from orchestrator.scenario.loading import OWN
from orchestrator.scenario.schema import Scenario
from orchestrator.scenario.yaml_text import MOST_CHARACTERS, parse
from testbed.core.errors import InputError
from testbed.core.progress import Progress, silent
from testbed.system.files import check_writable, read_regular, write_whole
from workloads.models.language import CONFIG, model_folder

SUMS = "SHA256SUMS"
INPUTS = "inputs.json"
ENVIRONMENT = "environment.json"
CITATION = "CITATION.cff"
CONTENT = {"run": "run", "campaign": "campaign"}
"""By kind: the folder in the bundle that is a copy of the directory."""
EXCLUDED = {LOCK, ".lock", CHECKPOINT, "unfinished"}
"""Files and folders that only a running computation needs."""
CHUNK = 1 << 20


@dataclass(frozen=True)
class _Content:
    """Content of a bundle."""

    kind: str
    name: str
    workflow: str
    """Name of the scenario or campaign file in the directory."""
    scenarios: Sequence[tuple[Scenario, str | None]]
    """Scenarios, each with the path of the trace that it replays."""
    manifests: Sequence[Mapping[str, Any]]


def bundle(
    directory: Path, out: Path, *, with_data: bool = False, progress: Progress = silent
) -> list[str]:
    """Write a run's or campaign's directory as a bundle.

    Args:
        directory: The directory of a complete run, or of a campaign with a finished point.
        out: The zip file.
        with_data: Whether to include images and weights that scenarios name.
        progress: Called with the number of files.

    Returns:
        Paths that scenarios name and that are not included.

    Raises:
        InputError: The folder is not such a directory, the run is not complete, or a file is
            missing.
    """
    check_writable("out", out, ".zip")
    content = _campaign(directory) if (directory / CAMPAIGN).is_file() else _run(directory)
    folder = CONTENT[content.kind]
    files = {f"{folder}/{path.relative_to(directory)}": path for path in _files(directory)}
    inputs: dict[str, str] = {}
    excluded: list[str] = []
    for path, wanted in _inputs(content, with_data):
        if not wanted:
            excluded.append(path)
            continue
        place = f"inputs/{len(inputs)}/{Path(path).absolute().name}"
        inputs[path] = place
        source = Path(path)
        found = _files(source) if source.is_dir() else [source]
        files |= {
            place if file == source else f"{place}/{file.relative_to(source)}": file
            for file in found
        }
    texts = {INPUTS: _json(inputs), ENVIRONMENT: _json(_environment())}
    if (citation := OWN.parent / CITATION).is_file():
        texts[CITATION] = citation.read_bytes()
    page = f"{folder}/report.html"
    if page in files:  # The pages that it has links to are not in the bundle.
        text = files.pop(page).read_text("utf-8", "surrogateescape")
        texts[page] = without_links(text).encode("utf-8", "surrogateescape")
    about = _about(content, files)
    texts[README] = readme(about).encode()
    when = datetime.fromisoformat(about.finished).astimezone(UTC).timetuple()[:6]
    write_whole(out, partial(_write, files, texts, about, when, progress))
    return excluded


def _run(directory: Path) -> _Content:
    run = read_run(directory)
    if (status := run.manifest.get("status")) != "complete":
        raise InputError(f"{directory}: its status is {status!r}; only a complete run is bundled")
    if "decisions" not in run.tables:
        raise InputError(f"{directory}: {run.absent['decisions']}, needed to repeat the prediction")
    return _Content(
        "run", run.scenario_name, "scenario.json", [(run.scenario, None)], [run.manifest]
    )


def _campaign(directory: Path) -> _Content:
    folder = CampaignFolder(directory)
    campaign = folder.campaign()
    found = folder.finished([cell.point for cell in cells(campaign)])
    finished = dict(sorted(found.items(), key=lambda item: item[1].name))
    if not finished:
        raise InputError(f"{directory}: no point is finished yet")
    points = [stored_point(path) for path in finished.values()]
    return _Content(
        "campaign",
        campaign.name,
        CAMPAIGN,
        [(point.scenario, point.trace) for point in points],
        [manifest_of(path) for path in finished.values()],
    )


def _files(directory: Path) -> list[Path]:
    """The result files of a folder, sorted.

    Raises:
        InputError: The folder contains a link or a special file.
    """
    found = []
    for path in sorted(directory.rglob("*")):
        parts = path.relative_to(directory).parts
        if set(parts) & EXCLUDED or any(p.startswith(".") and p.endswith(".part") for p in parts):
            continue
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise InputError(f"{path}: is not a regular file")
        if path.is_file():
            found.append(path)
    return found


def _inputs(content: _Content, with_data: bool) -> Iterator[tuple[str, bool]]:
    """The distinct paths that scenarios name, and whether to include them."""
    seen = set()
    for scenario, trace in content.scenarios:
        workload = scenario.workload
        data = {workload.data.source, workload.weights, model_folder(workload.model)}
        for path in named_files(scenario, trace):
            if path not in seen:
                seen.add(path)
                wanted = with_data or path not in data
                if wanted and not Path(path).exists():
                    raise InputError(f"{path}: no longer exists")
                yield path, wanted
        folder = model_folder(workload.model)
        # Predictions need the configuration of a model, and not its weights.
        if folder is not None and not with_data and (config := f"{folder}/{CONFIG}") not in seen:
            seen.add(config)
            yield config, True


def _environment() -> dict[str, Any]:
    """The environment of this process; manifests describe the environment of the results."""
    packages = {d.metadata["Name"]: d.version for d in distributions() if d.metadata["Name"]}
    return environment() | {"installed": dict(sorted(packages.items()))}


def described(kind: str, directory: Path, files: Iterable[str]) -> About:
    """The facts about a bundle with this directory and these files.

    No other file is read: the bundle need not come from a trusted source.

    Raises:
        InputError: It is not the directory of a complete run, or of a campaign with a point.
    """
    if kind == "run":
        return _about(_run(directory), files)
    # Without the files that it may name, see `load_campaign`.
    file = directory / CAMPAIGN
    tree = parse(read_regular(file, MOST_CHARACTERS).decode("utf-8", "replace"), str(file))
    name = tree.get("name", "") if isinstance(tree, dict) else ""
    places = sorted((directory / "points").glob("[!.]*"))
    manifests = [read_object(place / MANIFEST) for place in places]
    if not manifests:
        raise InputError(f"{directory}: no point is finished yet")
    return _about(_Content(kind, str(name), CAMPAIGN, [], manifests), files)


def _about(content: _Content, files: Iterable[str]) -> About:
    inputs = [path for path in files if path.startswith("inputs/") or path == "run/trace.npz"]
    manifests = content.manifests
    first = manifests[0]
    return About(
        kind=content.kind,
        name=content.name,
        workflow=f"{CONTENT[content.kind]}/{content.workflow}",
        inputs=sorted(inputs),
        command=command_of(first) or "testbed",
        started=min(str(m["started"]) for m in manifests),
        finished=max(str(m["finished"]) for m in manifests),
        version=str(first.get("testbed_version") or "unknown"),
        revision=str(first.get("revision") or ""),
    )


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()


def _write(
    files: Mapping[str, Path],
    texts: dict[str, bytes],
    about: About,
    when: Any,
    progress: Progress,
    part: Path,
) -> None:
    sums: dict[str, tuple[int, str]] = {}
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:

        def put(name: str, data: bytes) -> None:
            archive.writestr(zipfile.ZipInfo(name, when), data, zipfile.ZIP_DEFLATED)
            sums[name] = len(data), hashlib.sha256(data).hexdigest()

        for done, (name, path) in enumerate(sorted(files.items())):
            progress("bundled", done, len(files))
            sums[name] = _put_file(archive, zipfile.ZipInfo(name, when), path)
        for name, data in texts.items():
            put(name, data)
        put(METADATA, _json(metadata(about, sums)))
        lines = "".join(f"{digest}  {name}\n" for name, (_, digest) in sorted(sums.items()))
        archive.writestr(zipfile.ZipInfo(SUMS, when), lines.encode(), zipfile.ZIP_DEFLATED)


def _put_file(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    info.compress_type = zipfile.ZIP_DEFLATED
    info.file_size = path.stat().st_size  # decides whether 64-bit sizes are needed
    with path.open("rb") as source, archive.open(info, "w") as target:
        while chunk := source.read(CHUNK):
            digest.update(chunk)
            size += len(chunk)
            target.write(chunk)
    return size, digest.hexdigest()
