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

This page lists every key of a scenario file, with its default, its bounds and its meaning.
`python -m orchestrator.scenario.reference` generates it from the models that validate scenarios.

```sh
testbed show scenarios/quickstart.yaml --set radio.line_of_sight=probability --set uavs.height_m=50
testbed init my.yaml
```

`--set dotted.key=value` sets a key on the command line and may be repeated. `testbed init` writes a
scenario with all keys. The end of a key's name gives its unit: `_s` seconds, `_m` metres, `_w`
watts, `_hz` hertz, `_bps` bit/s, `_flops` FLOP/s (in the costs of a split: FLOP).

Scenarios, campaigns and values of `--set` are YAML with the numbers of YAML 1.2: `1e6` is a number,
and `12:30`, `1_000` and `yes` are texts. A number with a leading zero, such as `020`, is refused,
because it is octal for some programs; so is a key that occurs twice.
"""

PAGE = re.compile(r"docs/([\w-]+)\.md")
EXAMPLE = {"uavs": {"tx_power_w": [1.0, 0.4, 0.1]}}
"""Values in a template for keys without a default."""


def reference() -> str:
    """The reference as Markdown: a heading for each section, a row with an anchor for each key."""
    return HEAD + "".join(_section(Scenario, "", {}, set()))


def _section(
    section: type[Section], path: str, seen: dict[type[Section], str], anchors: set[str]
) -> Iterator[str]:
    """Heading, description and table of a section, followed by the sections in it.

    Args:
        section: Its model.
        path: Its dotted key; empty for the whole scenario.
        seen: Where sections were described before, by model; extended.
        anchors: Keys that have an anchor; extended.
    """
    seen[section] = path
    forms = [f for n, f in section.model_fields.items() if n == "model" and _choices(f.annotation)]
    form = f" with `model: {_choices(forms[0].annotation)[0]}`" if forms else ""
    title = f"`{path}`{form}" if path else "The whole scenario"
    yield f"\n{'###' if '.' in path else '##'} {title}\n\n"
    yield f"{_linked(' '.join((inspect.getdoc(section) or '').split()))}\n\n"
    rows, below = [], []
    for name, field in section.model_fields.items():
        key = f"{path}.{name}" if path else name
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Section):
            below.append((inner, key))
            continue
        anchor = "" if key in anchors else f'<a id="{key.replace("[]", "")}"></a>'
        anchors.add(key)
        mark = "[]" if get_origin(inner) is list else ""
        # Forms without forms of their own first: a model is described where its key is shortest.
        parts = sorted(_sections(inner), key=lambda part: any(_nested(part)))
        known = [seen[part] for part in parts if part in seen]
        also = f" The keys of a mapping are those of [`{known[0]}`](#{known[0]})." if known else ""
        below += [(part, f"{key}{mark}") for part in parts if part not in seen]
        meaning = f"{_linked(_what(section, name))}{also}"
        rows.append(f"| {anchor}`{key}` | {_default(field)} | {meaning} |\n")
    if rows:
        yield "| key | default | meaning |\n|---|---|---|\n"
        yield from rows
    for inner, key in below:
        if inner not in seen:
            yield from _section(inner, key, seen, anchors)


def _nested(section: type[Section]) -> Iterator[type[Section]]:
    for field in section.model_fields.values():
        yield from _sections(field.annotation)


def _linked(text: str) -> str:
    """A description with links to the pages of the documentation that it names."""
    return PAGE.sub(lambda page: f"[{page[1].replace('-', ' ')}]({page[1]}.md)", text)


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
        "# A scenario for `testbed predict` and `run`. Delete all keys that you do not change.\n"
        "# Files named docs/… are pages of the documentation.\n"
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
    choices = [f"`{choice}`" for choice in _choices(field.annotation)]
    bounds = _bounds(field)
    if len(choices) > 1 and not all(choice in parts[0] for choice in choices):
        parts.append(f"One of {', '.join(choices)}.")
    elif choices and bounds:
        parts.append(f"{choices[0]}, or numbers.")
    if bounds:
        parts.append(f"{bounds[0].upper()}{bounds[1:]}.")
    return " ".join(part for part in parts if part).replace("|", "\\|")


def _bounds(field: FieldInfo) -> str:
    """The bounds of a field's numbers in words; empty if it has no numbers."""
    found = dict.fromkeys(_ranges(field.annotation, field.metadata))
    return ", or ".join(found)


def _ranges(annotation: Any, metadata: Sequence[Any]) -> Iterator[str]:
    lowest = [m for m in metadata if isinstance(m, Ge | Gt)]
    highest = [m for m in metadata if isinstance(m, Le | Lt)]
    match lowest, highest:
        case [Ge(ge=low), *_], [Le(le=high), *_]:
            yield f"from {_number(low)} to {_number(high)}"
        case [Ge(ge=low), *_], [Lt(lt=high), *_]:
            yield f"at least {_number(low)}, below {_number(high)}"
        case [Gt(gt=low), *_], [Le(le=high), *_]:
            yield f"above {_number(low)}, at most {_number(high)}"
        case [Gt(gt=low), *_], [Lt(lt=high), *_]:
            yield f"above {_number(low)}, below {_number(high)}"
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
    found = re.findall(r"'([^']*)'|(\d+)", " ".join(literals))
    return [word or number for word, number in found]


if __name__ == "__main__":
    print(reference(), end="")
