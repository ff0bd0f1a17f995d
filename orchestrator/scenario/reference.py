# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Writes the reference of every scenario key from the models that validate scenarios.

``python -m orchestrator.scenario.reference > docs/scenario.md``
"""

import ast
import functools
import inspect
import json
import re
import textwrap
from collections.abc import Iterator, Sequence
from itertools import pairwise
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from orchestrator.scenario.schema import Scenario, Section
from testbed.core.registry import GROUPS

HEAD = """# Scenario keys

Written by `python -m orchestrator.scenario.reference` from the models that validate scenarios. Any
key can be set on the command line with `--set dotted.key=value`. Units are in the names: `_s`
seconds, `_m` metres, `_w` watts, `_hz` hertz, `_flops` FLOP/s (in costs of a split: FLOP).

| key | default | meaning |
|---|---|---|
"""

EXAMPLE = {"uavs": {"tx_power_w": [1.0, 0.4, 0.1]}}
"""Values in a template for keys without a default."""


def reference() -> str:
    """The reference as Markdown."""
    rows = [f"| `{key}` | {default} | {what} |" for key, default, what in _keys(Scenario, "")]
    return HEAD + "\n".join(rows) + "\n"


def values() -> dict[str, list[str]]:
    """The enumerated values of each key that `--set` accepts, by dotted key.

    Other keys, such as numbers, have an empty list. Names from plug-ins are included.
    """
    by_key = {group.key: group.names() for group in GROUPS}
    found: dict[str, list[str]] = {}
    for section, name, key in _fields(Scenario, ""):
        if "[]" not in key:  # `--set` cannot name an entry of a list
            own = by_key.get(key) or _enumerated(section.model_fields[name].annotation)
            found[key] = [*found.get(key, []), *own]  # variants of a union share keys
    return found


def _enumerated(annotation: Any) -> list[str]:
    if annotation is bool:
        return ["true", "false"]
    return [] if get_origin(annotation) is list else _choices(annotation)


def _keys(section: type[Section], prefix: str) -> Iterator[tuple[str, str, str]]:
    for owner, name, key in _fields(section, prefix):
        yield key, _default(owner.model_fields[name]), _what(owner, name)


def _fields(section: type[Section], prefix: str) -> Iterator[tuple[type[Section], str, str]]:
    """Each field that is not a section: its owner, its name and its dotted key."""
    for name, field in section.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Section):
            yield from _fields(inner, f"{prefix}{name}.")
            continue
        yield section, name, f"{prefix}{name}"
        mark = "[]" if get_origin(inner) is list else ""
        for below in _sections(inner):
            yield from _fields(below, f"{prefix}{name}{mark}.")


def template(name: str) -> str:
    """A scenario file with every key at its default, and its description in a comment above.

    Args:
        name: Name of the scenario; characters that a name cannot contain become `-`.
    """
    own = re.sub(r"[^\w.-]", "-", name)[:80] or "scenario"
    head = (
        "# A scenario: `testbed show`, `predict` and `run` take it. Delete what is not changed.\n"
    )
    lines = _template(Scenario, "", EXAMPLE | {"name": own})
    return head + "\n".join(lines) + "\n"


def _template(section: type[Section], indent: str, given: dict[str, Any]) -> Iterator[str]:
    for key, field in section.model_fields.items():
        inner = field.annotation
        yield ""
        if isinstance(inner, type) and issubclass(inner, Section):
            yield from _comment(inspect.getdoc(inner) or "", indent)
            yield f"{indent}{key}:"
            below = list(_template(inner, indent + "  ", given.get(key, {})))
            yield from below[1:]  # no empty line before the first
            continue
        yield from _comment(_what(section, key).replace("\\|", "|"), indent)
        value = given.get(key, field.default)
        yield f"{indent}{key}: {json.dumps(value)}"


def _comment(text: str, indent: str) -> Iterator[str]:
    for line in textwrap.wrap(text, 98 - len(indent)):
        yield f"{indent}# {line}"


def _sections(annotation: Any) -> Iterator[type[Section]]:
    """The sections that a union or a container in a field's type may contain."""
    for part in get_args(annotation):
        if isinstance(part, type) and issubclass(part, Section):
            yield part
        elif get_origin(part) in (Annotated, Union, UnionType):
            yield from _sections(part)


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "(required)"
    value = field.default
    return "none" if value is None else f"`{json.dumps(value)}`"


@functools.cache
def _descriptions(section: type[BaseModel]) -> dict[str, str]:
    """The docstring below each field; pydantic would read them at every start instead."""
    said = {}
    for owner in reversed(section.__mro__):
        if owner is BaseModel or not issubclass(owner, BaseModel):
            continue
        if owner.__pydantic_generic_metadata__["origin"]:
            continue  # no source of its own
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
        assert isinstance(tree, ast.ClassDef)
        for before, after in pairwise(tree.body):
            match before, after:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    said[name] = text
    return said


def _what(section: type[BaseModel], name: str) -> str:
    field = section.model_fields[name]
    parts = [" ".join(_descriptions(section).get(name, "").split())]
    choices = _choices(field.annotation)
    if choices:
        parts.append("One of " + ", ".join(f"`{choice}`" for choice in choices) + ".")
    if bounds := _bounds(field):
        parts.append(f"From {bounds}.")
    return " ".join(part for part in parts if part).replace("|", "\\|")


def _bounds(field: FieldInfo) -> str:
    """The bounds of a field's numbers in words; empty if it has no numbers."""
    found = dict.fromkeys(_ranges(field.annotation, field.metadata))
    return " or ".join(found)


def _ranges(annotation: Any, metadata: Sequence[Any]) -> Iterator[str]:
    at_least = [f"{_number(m.ge)}" for m in metadata if isinstance(m, Ge)]
    at_least += [f"above {_number(m.gt)}" for m in metadata if isinstance(m, Gt)]
    at_most = [f"{_number(m.le)}" for m in metadata if isinstance(m, Le)]
    at_most += [f"below {_number(m.lt)}" for m in metadata if isinstance(m, Lt)]
    if at_least and at_most:
        yield f"{at_least[0]} to {at_most[0]}"
    for part in get_args(annotation):
        if isinstance(part, type) and issubclass(part, Section):
            continue
        own = [m for field in getattr(part, "__metadata__", ()) for m in _constraints(field)]
        yield from _ranges(part, own)


def _constraints(field: Any) -> Sequence[Any]:
    return field.metadata if isinstance(field, FieldInfo) else (field,)


def _number(value: Any) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def _choices(annotation: Any) -> list[str]:
    literals = re.findall(r"Literal\[([^\]]*)\]", str(annotation))
    return re.findall(r"'([^']*)'", " ".join(literals))


if __name__ == "__main__":
    print(reference(), end="")
