# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Puts files of a bundle in place of the paths that its scenario names.

A scenario from an untrusted source is changed as text, before it is validated, because validation
may read the model that it names. Nothing is opened on this machine, and no hub is asked.
"""

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from testbed.core.errors import InputError
from workloads.models.language import CONFIG, FAMILIES, PREFIX, is_language

KEYS = (
    ("allocation", "agent"),
    ("workload", "weights"),
    ("workload", "data", "source"),
    ("workload", "data", "tokenizer"),
)


def placed(tree: Mapping[str, Any], inputs: Mapping[str, str]) -> dict[str, Any]:
    """A scenario with the paths of unpacked files.

    Args:
        tree: The scenario's keys and values, which may be of any type.
        inputs: By path in the scenario: path of the unpacked file.

    Raises:
        InputError: Its validation would read a model that is not in the bundle.
    """
    made = copy.deepcopy(dict(tree))
    for *sections, last in KEYS:
        section: Any = made
        for name in sections:
            section = section.get(name) if isinstance(section, dict) else None
        if isinstance(section, dict) and _text(section.get(last)) in inputs:
            section[last] = inputs[section[last]]
    workload = made.get("workload")
    if isinstance(workload, dict) and is_language(name := _text(workload.get("model"))):
        if folder := _folder(name, inputs):
            workload["model"] = f"{PREFIX}{folder}"
        elif "classes" not in workload and (why := missing(tree, inputs)):
            raise InputError(f"workload.classes: is missing, and {why}")
    return made


def missing(tree: Mapping[str, Any], inputs: Mapping[str, str], *, wholly: bool = False) -> str:
    """Reason for which a scenario's model is not known here; empty if it is.

    Args:
        tree: The scenario as the bundle has it.
        inputs: By path in the scenario: path of the unpacked file.
        wholly: Whether the model's weights are needed, too; its costs need its configuration only.
    """
    workload = tree.get("workload")
    workload = workload if isinstance(workload, Mapping) else {}
    model, name = _text(workload.get("model")), ""
    if is_language(model):
        name = model.removeprefix(PREFIX)
        from_hub = workload.get("weights") == "pretrained"
        if _folder(model, inputs):
            is_whole = name in inputs or _expanded(name) in inputs
            if (wholly or workload.get("head") == "file") and not is_whole:
                return f"it needs {name[:200]}, of which the bundle has the configuration only"
        elif from_hub:
            return f"it needs {name[:200]} of the Hugging Face hub, which is not asked"
        elif name not in FAMILIES or Path(name).is_dir():
            return f"it needs {name[:200]}, which is not in the bundle"
    elif wholly and workload.get("weights") == "pretrained":
        return "it needs pretrained weights, which would be downloaded"
    for text in _parameters(tree):
        if text.startswith(("/", "~")) or _exists(text):
            return f"it needs {text[:200]}, which is not in the bundle"
    return ""


def _folder(model: str, inputs: Mapping[str, str]) -> str:
    """The unpacked folder of a language model's configuration; empty if there is none."""
    name = model.removeprefix(PREFIX)
    for path in (name, _expanded(name)):
        if path in inputs:
            return inputs[path]
        if (config := f"{path}/{CONFIG}") in inputs:
            return str(Path(inputs[config]).parent)
    return ""


def _expanded(name: str) -> str:
    try:
        return str(Path(name).expanduser())
    except (ValueError, RuntimeError):  # `~` of a user who does not exist
        return name


def _parameters(tree: Any, inside: bool = False) -> Iterator[str]:
    """All texts in sections of parameters, which a plug-in gets."""
    if isinstance(tree, str) and inside:
        yield tree
    values = tree.items() if isinstance(tree, Mapping) else ()
    for key, value in values if not isinstance(tree, list) else ((inside, item) for item in tree):
        yield from _parameters(value, inside or str(key).endswith("parameters"))


def _exists(text: str) -> bool:
    return bool(text) and Path(text).exists()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
