# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Metadata of a bundle: RO-Crate 1.1, Workflow Run Crate profile 0.5.

The scenario or campaign file is the workflow, the testbed its engine, and the run an action that
made the results from the inputs. The JSON-LD is written directly: a crate has few kinds of
entities, and the library for it depends on a web client.
"""

import re
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
"""Defines the property `sha256`."""
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
"""By file suffix: media type; other files are `application/octet-stream`."""


@dataclass(frozen=True)
class About:
    """Facts about a bundle, in addition to its files."""

    kind: str
    """`run` or `campaign`."""
    name: str
    workflow: str
    """Path of the scenario or campaign file."""
    inputs: Sequence[str]
    """Paths of the files that the computation has read."""
    command: str
    started: str
    finished: str
    version: str
    """Version of the testbed."""
    revision: str
    """Revision of the testbed's sources; empty if unknown."""


def metadata(about: About, files: Mapping[str, tuple[int, str]]) -> dict[str, Any]:
    """The crate's metadata, as JSON values.

    Args:
        about: Facts about the bundle.
        files: By path: size in bytes and SHA-256 in hexadecimal digits.
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
                "name": "as stated by the authors; the testbed's own licence is MIT",
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
            {"@id": AGENT, "@type": "Person", "name": "user who ran the command"},
            {
                "@id": "#engine",
                "@type": "OrganizeAction",
                "name": "the testbed runs the scenario",
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
    """Text of the bundle's README."""
    runs = re.findall("`+", about.command)
    fence = "`" * (1 + max(2, *map(len, runs), 0))  # longer than all backticks of the command
    return (
        f"# {about.kind.capitalize()} {about.name}\n\n{_describe(about)}\n\n"
        f"The command:\n\n{fence}sh\n{about.command}\n{fence}\n\n"
        f"- `{about.workflow}`: the scenario or campaign file\n"
        "- `SHA256SUMS`: digests of all files (`sha256sum -c SHA256SUMS`)\n"
        "- `environment.json`: program, versions and machine that wrote this file\n"
        f"- `{METADATA}`: machine-readable description (RO-Crate)\n"
    )


def _describe(about: About) -> str:
    return (
        f"Computed between {about.started} and {about.finished}. `testbed verify` "
        "repeats the prediction bit for bit, emulates a sample again, and explains differences."
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
    """References: a single one as an object, several as a list."""
    found = [{"@id": id_} for id_ in ids]
    return found[0] if len(found) == 1 else found
