# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What a bundle says of itself: RO-Crate 1.1 metadata, by the Workflow Run Crate profile 0.5.

The scenario or campaign file is the workflow, the testbed its engine, the run an action that made
the results from the channel and whatever else the scenario names. JSON-LD as plain values: a crate
has a dozen kinds of entities, and the library for it would bring a client of the web.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

METADATA = "ro-crate-metadata.json"
CRATE = "https://w3id.org/ro/crate/1.1"
PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": "Process Run Crate",
    "https://w3id.org/ro/wfrun/workflow/0.5": "Workflow Run Crate",
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": "Workflow RO-Crate",
}
TERMS = "https://w3id.org/ro/terms/workflow-run/context"
"""Brings `sha256`."""
TESTBED, LANGUAGE, ACTION, AGENT = "#testbed", "#language", "#action", "#who"
LICENCE = "#licence"
README = "README.md"
ENCODINGS = {
    ".json": "application/json",
    ".yaml": "application/yaml",
    ".html": "text/html",
    ".csv": "text/csv",
    ".pdf": "application/pdf",
    ".png": "image/png",
    ".cff": "application/yaml",
    ".md": "text/markdown",
    ".parquet": "application/vnd.apache.parquet",
    ".pcapng": "application/x-pcapng",
}
"""By suffix; other files are bytes."""


@dataclass(frozen=True)
class About:
    """What a crate says beside its files."""

    kind: str
    """`run` or `campaign`."""
    name: str
    workflow: str
    """Path of the scenario or campaign file."""
    inputs: Sequence[str]
    """Paths of what was read besides."""
    command: str
    started: str
    finished: str
    version: str
    """The testbed's."""
    revision: str
    """Of its sources; empty if that is not known."""


def metadata(about: About, files: Mapping[str, tuple[int, str]]) -> dict[str, Any]:
    """The crate's metadata file, as plain values.

    Args:
        about: What it is.
        files: By path: bytes and SHA-256 in hex.
    """
    data = sorted(files.keys() - {METADATA})
    results = [path for path in data if path not in {about.workflow, *about.inputs}]
    return {
        "@context": [f"{CRATE}/context", TERMS],
        "@graph": [
            {
                "@id": METADATA,
                "@type": "CreativeWork",
                "about": {"@id": "./"},
                "conformsTo": _refer([CRATE, "https://w3id.org/workflowhub/workflow-ro-crate/1.0"]),
            },
            {
                "@id": "./",
                "@type": "Dataset",
                "name": f"{about.kind} {about.name} of the UAV-SFL testbed",
                "description": _describe(about),
                "datePublished": about.finished,
                "license": {"@id": LICENCE},
                "author": {"@id": AGENT},
                "conformsTo": _refer(PROFILES),
                "mainEntity": {"@id": about.workflow},
                "mentions": {"@id": ACTION},
                "hasPart": _refer(data),
            },
            {
                "@id": LICENCE,
                "@type": "CreativeWork",
                "name": "as those who made it say; the testbed's own licence is MIT",
            },
            *({"@id": id_, "@type": "CreativeWork", "name": n} for id_, n in PROFILES.items()),
            *(_file(path, *files[path], about) for path in data),
            {
                "@id": LANGUAGE,
                "@type": "ComputerLanguage",
                "name": "UAV-SFL testbed scenario or campaign (YAML)",
            },
            {
                "@id": TESTBED,
                "@type": "SoftwareApplication",
                "name": "UAV-SFL testbed",
                "softwareVersion": about.version
                + f", revision {about.revision}" * bool(about.revision),
            },
            {"@id": AGENT, "@type": "Person", "name": "whoever ran the command"},
            {
                "@id": "#engine",
                "@type": "OrganizeAction",
                "name": "the testbed plays the scenario",
                "instrument": {"@id": TESTBED},
                "result": {"@id": ACTION},
                "agent": {"@id": AGENT},
                "startTime": about.started,
                "endTime": about.finished,
            },
            {
                "@id": ACTION,
                "@type": "CreateAction",
                "name": f"{about.kind} {about.name}",
                "description": about.command,
                "instrument": {"@id": about.workflow},
                "agent": {"@id": AGENT},
                "object": _refer(about.inputs),
                "result": _refer(results),
                "startTime": about.started,
                "endTime": about.finished,
                "actionStatus": {"@id": "http://schema.org/CompletedActionStatus"},
            },
        ],
    }


def readme(about: About) -> str:
    """What the bundle says to people."""
    return (
        f"# {about.kind.capitalize()} {about.name}\n\n{_describe(about)}\n\n"
        f"- `{about.workflow}`: what was asked for\n"
        "- `SHA256SUMS`: digests of all files (`sha256sum -c SHA256SUMS`)\n"
        "- `environment.json`: program, versions and machine that wrote this file\n"
        f"- `{METADATA}`: all of it for machines, an RO-Crate\n"
    )


def _describe(about: About) -> str:
    return (
        f"Made by `{about.command}` from {about.started} to {about.finished}. `testbed verify` "
        "predicts it again bit for bit, emulates a sample of it, and explains what differs."
    )


def _file(path: str, size: int, sha256: str, about: About) -> dict[str, Any]:
    suffix = path[path.rfind(".") :] if "." in path else ""
    entity: dict[str, Any] = {
        "@id": path,
        "@type": "File",
        "name": path,
        "contentSize": str(size),
        "sha256": sha256,
        "encodingFormat": ENCODINGS.get(suffix, "application/octet-stream"),
    }
    if path == README:
        entity["about"] = {"@id": "./"}
    if path == about.workflow:
        entity |= {
            "@type": ["File", "SoftwareSourceCode", "ComputationalWorkflow"],
            "name": about.name,
            "programmingLanguage": {"@id": LANGUAGE},
            "version": sha256[:16],
        }
    return entity


def _refer(ids: Iterable[str]) -> Any:
    """References: one by itself, several as a list."""
    found = [{"@id": id_} for id_ in ids]
    return found[0] if len(found) == 1 else found
