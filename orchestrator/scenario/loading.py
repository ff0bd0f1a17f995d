# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Reads scenarios: YAML and ``key=value`` overrides become a `Scenario`; errors are one line."""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from orchestrator.scenario.schema import Fitted, Scenario
from orchestrator.scenario.unused import say_unused
from orchestrator.scenario.yaml_text import MOST_CHARACTERS, parse
from testbed.core.errors import InputError
from testbed.core.words import LONGEST, did_you_mean, place_of, why
from testbed.system.files import json_digest, json_value, read_regular

log = logging.getLogger(__name__)

_TYPE_TAGS = {
    "bool",
    *("Profile", "list", "float", "int", "str", "constrained-float", "constrained-int"),
    *("number", "directions", "link-model", "independent", "gilbert-elliott"),
    *("snr", "trace", "distance"),
}
OWN = Path(__file__).parents[1]
"""Folder of the `scenarios` and `campaigns` that come with the testbed."""
PAPER = OWN / "scenarios" / "paper.yaml"
FITTED_KEY = "radio.fitted"


def load(path: Path, overrides: Sequence[str] = ()) -> Scenario:
    """Read a scenario file and apply ``dotted.key=value`` overrides (values are YAML).

    Keys that have no effect together with others are logged.

    Raises:
        InputError: The file or a field is not valid. The one-line message names the field and the
            allowed values.
    """
    tree = read_tree(path, "scenario")
    for override in overrides:
        _override(tree, override)
    scenario = with_epochs(tree, str(path))
    say_unused(scenario)
    return scenario


def own_or(path: Path, what: str) -> Path:
    """The file, or if it does not exist, the testbed's own scenario or campaign of that name, e.g.
    `paper`.

    Args:
        path: The path from the user.
        what: Kind of file: `scenario` or `campaign`.
    """
    own = OWN / f"{what}s" / f"{path.name}.yaml"
    bare = path == Path(path.name) and not path.is_file()
    return own if bare and own.is_file() else path


def read_tree(path: Path, what: str) -> dict[str, Any]:
    """The keys and values of a YAML file, with fits of channels in place of their paths; see
    `own_or` and `with_fits`.

    Raises:
        InputError: There is no such file, it is not a YAML mapping, or a fit cannot be read.
    """
    file = own_or(path, what)
    if file.is_dir():
        raise InputError(f"{path}: is a folder, not a {what} file")
    try:
        text = read_regular(file, 4 * MOST_CHARACTERS).decode()
    except FileNotFoundError:
        own = [file.stem for file in (OWN / f"{what}s").glob("*.yaml")]
        hint = did_you_mean(path.name, own) if path == Path(path.name) else ""
        raise InputError(f"{path}: no such {what} file{hint}") from None
    except UnicodeError:
        raise InputError(f"{path}: is not a {what} file (it is not UTF-8 text)") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({why(error)})") from None
    tree = parse(text, str(path))
    if not isinstance(tree, dict):
        raise InputError(f"{path}: must be a mapping of keys to values")
    if {"scenario", "rounds"} <= tree.keys() and isinstance(tree["rounds"], list):
        raise InputError(f"{path}: this is a result written with --json, not a {what}")
    is_campaign = "studies" in tree
    if is_campaign and what == "scenario":
        raise InputError(f"{path}: this is a campaign, not a scenario: see `testbed campaign run`")
    if not is_campaign and what == "campaign" and {"uavs", "paradigm", "workload"} & tree.keys():
        raise InputError(
            f"{path}: this is a scenario, not a campaign: see `testbed predict` and `testbed run`"
        )
    if what == "scenario" and tree and not tree.keys() & Scenario.model_fields.keys():
        first = str(next(iter(tree)))[:40]
        raise InputError(f"{path}: is not a scenario: none of its keys is known, such as {first!r}")
    made: dict[str, Any] = with_fits(tree, file.parent)
    return made


def with_fits(tree: Any, folder: Path, key: str = "") -> Any:
    """Plain values with the channel of a fit in place of each path of one.

    Paths are the values of `radio.fitted`, wherever a scenario, a campaign or a space has that key.
    On an axis of a campaign, they become names of points.

    Args:
        tree: The values.
        folder: Paths are relative to this folder.
        key: The key of the values.

    Raises:
        InputError: A fit cannot be read; the message names its file.
    """
    if key == FITTED_KEY and isinstance(tree, str | Path):
        return read_fit(folder / tree, FITTED_KEY)["channel"]
    if isinstance(tree, list):
        return [with_fits(value, folder, key) for value in tree]
    if not isinstance(tree, dict):
        return tree
    if key == "axes":
        tree = {name: _with_points(name, axis) for name, axis in tree.items()}
    is_fit = {FITTED_KEY: True, "fitted": key == "radio", "choice": key == FITTED_KEY}
    return {
        name: with_fits(value, folder, FITTED_KEY if is_fit.get(name) else name)
        for name, value in tree.items()
    }


def _with_points(name: Any, axis: Any) -> Any:
    """An axis of a campaign with points in place of the paths of fits."""
    given = {"values": axis} if isinstance(axis, list) else axis
    if not isinstance(given, dict) or not isinstance(given.get("values"), list):
        return axis
    if given.get("key", name) != FITTED_KEY:
        return axis
    others = {key: value for key, value in given.items() if key not in ("key", "values")}
    return others | {"points": {str(path): {FITTED_KEY: path} for path in given["values"]}}


def read_fit(path: Path, key: str) -> dict[str, Any]:
    """The content of a file of a fitted channel, whose object `channel` is checked.

    Args:
        path: The file.
        key: The key or option that names it, for error messages.

    Raises:
        InputError: There is no such file, or it has no such channel.
    """
    where = f"{key}: {path}"
    try:
        tree = json_value(path, MOST_CHARACTERS)
    except FileNotFoundError:
        raise InputError(f"{where}: no such file") from None
    except OSError as error:
        raise InputError(f"{where}: cannot be read ({why(error)})") from None
    except ValueError as error:
        raise InputError(f"{where}: is not JSON{place_of(error)}") from None
    channel = tree.get("channel") if isinstance(tree, dict) else None
    if isinstance(tree, dict) and "channel" in tree and channel is None:
        raise InputError(
            f"{where}: has no channel: the flights give no gain, because no signal-to-noise ratio "
            "was measured"
        )
    if not isinstance(channel, dict):
        raise InputError(f"{where}: has no object 'channel'; it is no fit of a channel")
    try:
        Fitted.model_validate(channel)
    except ValidationError as error:
        reason = explain(error.errors(include_url=False), Fitted)
        raise InputError(f"{where}: channel.{reason}") from None
    if channel["digest"] != (digest := json_digest(channel)):
        raise InputError(
            f"{where}: channel.digest: the channel was changed after the fit; if this is intended, "
            f"its digest is {digest}"
        )
    return dict(tree)


def validate(tree: dict[str, Any], source: str) -> Scenario:
    """The scenario that a tree of plain values describes.

    Raises:
        InputError: A field is wrong; one line gives source, field, allowed values and given value.
    """
    try:
        return Scenario.model_validate(tree)
    except ValidationError as error:
        raise InputError(f"{source}: {explain(error.errors(include_url=False))}") from None


def with_epochs(tree: dict[str, Any], source: str) -> Scenario:
    """As `validate`, with the local iterations that follow from `workload.local_epochs` if this key
    is given: the data are opened, and the numbers of their samples are counted.

    A scenario that was recorded has these iterations, and is read with `validate`.

    Raises:
        InputError: A field is wrong, or the data do not fit it; one line.
    """
    workload = tree.get("workload")
    if not isinstance(workload, dict) or workload.get("local_epochs") is None:
        scenario = validate(tree, source)
        # With too few samples or natural clients, no round could begin.
        of_data = (
            scenario.workload.sampling == "epochs",
            scenario.workload.data.partition == "column",
        )
        if any(of_data) and scenario.workload.compute == "real":
            with _of(source):
                _epochs().shares_of(scenario)
        return scenario
    given = workload.get("local_iterations")
    free = {key: value for key, value in workload.items() if key != "local_iterations"}
    scenario = validate(tree | {"workload": free}, source)
    with _of(source):
        found = _epochs().iterations_of_epochs(scenario)
    if given is not None and given != found:
        log.info("workload.local_iterations: %s, which workload.local_epochs makes", found)
    return validate(tree | {"workload": free | {"local_iterations": found}}, source)


def _epochs() -> Any:
    from orchestrator.scenario import epochs  # Models and their costs are not always needed.

    return epochs


@contextmanager
def _of(source: str) -> Iterator[None]:
    """Put the source of a scenario before the message of an error."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


_PATTERNS = dict.fromkeys(
    (r"^[\w.-]+$", r"^[A-Za-z_][\w.-]*$", r"^\w[\w.-]*$"),
    "must consist of letters, digits, '_', '.' and '-'",
) | {
    "^[0-9a-f]{64}$": "must consist of 64 hexadecimal digits",
    "^[a-z0-9_]+$": "must consist of lower-case letters, digits and '_'",
    r"^(auto|cpu|cuda(:\d+)?)$": "must be 'auto', 'cpu', 'cuda' or 'cuda:N'",
}
"""By pattern of a text: what it must be."""
_MUST = {
    "bool": "must be true or false",
    "date": "must be a date",
    "dict": "must have keys and values",
    "float": "must be a number",
    "int": "must be a whole number",
    "list": "must be a list",
    "model": "must have keys and values",
    "string": "must be a text",
    "finite_number": "must be a finite number",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be at least {ge}",
    "int_from_float": "must be a whole number",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
    "string_pattern_mismatch": "must match the pattern {pattern}",
    "string_too_long": "must have at most {max_length} characters",
    "string_too_short": "must have at least {min_length} characters",
    "too_long": "must have at most {max_length} values",
    "too_short": "must have at least {min_length} values",
    "tuple": "must be a list",
    "union_tag_invalid": "must be one of {expected_tags}",
    "union_tag_not_found": "is missing",
}
"""By kind of pydantic's errors, without `_type` and `_parsing`: what a value must be."""


_SAID = {"value_error", "union_tag_not_found", "too_long", "too_short"}
"""Kinds of errors whose message has the value, or needs none."""


def must_be(error: Any) -> str:
    """What a value must be, in one line and in our words; pydantic's, if there are none."""
    kind = re.sub("_(type|parsing|parsing_size)$", "", error["type"])
    pattern = error.get("ctx", {}).get("pattern")
    if pattern in _PATTERNS:
        return _PATTERNS[pattern]
    if kind in _MUST:
        context = error.get("ctx", {})
        if context.get("min_length") == 1:
            return "must not be empty"
        numbers = {k: f"{v:.12g}" for k, v in context.items() if isinstance(v, float)}
        return _MUST[kind].format(**context | numbers)
    message: str = error["msg"].removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


def explain(errors: Sequence[Any], model: type[BaseModel] = Scenario) -> str:
    """The first wrong field of a validation and its allowed values, in one line.

    Args:
        errors: Errors as `ValidationError.errors` returns them.
        model: The model that was validated; for unknown keys, its keys are suggested.
    """
    # Each member of a union reports an error. The error of the member closest to the value is more
    # helpful than that of a literal or of a wrong type.
    field = _path(errors[0])
    same = [e for e in errors if _path(e)[: len(field)] == field]
    closer = [
        e
        for e in same
        if e["type"] not in ("literal_error", "default_factory_not_called")
        and not (e["type"] == "extra_forbidden" and e["loc"][-1] in _keys(model, e["loc"]))
        and not e["type"].endswith("_type")
        and not (e["type"] == "float_parsing" and _path(e) == field)
    ]
    error = closer[0] if closer else max(same, key=lambda e: len(_path(e)))
    others = {e["type"] for e in same} if error["type"] == "literal_error" else set()
    may_be = " or a list" if "list_type" in others else ""
    may_be += " or a number" if others & {"float_type", "float_parsing"} else ""
    keys = [str(part) for part in _path(error)]
    message = must_be(error) + may_be
    if error["type"] == "extra_forbidden":
        known = _keys(model, error["loc"])
        if keys[-1] in known and "model" in known:  # a key of another member of a union
            return f"{'.'.join(keys[:-1])}.model: is missing"
        hint = did_you_mean(keys[-1], known) or _elsewhere(model, keys)
        listed = ", ".join(known)
        if not hint and 0 < len(listed) <= 2 * LONGEST:
            hint = f"; the keys are {listed}"
        return f"{'.'.join(keys)}: no such key{hint}"
    if error["type"] == "missing" and keys[-1].isdigit():
        missing = [int(_path(e)[-1]) for e in same if e["type"] == "missing"]
        wrong = f"must have {max(missing) + 1} values, not {min(missing)}"
        return f"{'.'.join(keys[:-1])}: {wrong}"
    if error["type"] == "missing":
        return f"{'.'.join(keys)}: is missing"
    given = error["input"]
    if error["type"] == "value_error" and ": " in message and isinstance(given, dict):
        return message if not keys else f"{'.'.join(keys)}.{message}"
    if error["type"].startswith("union_tag"):
        keys.append(error["ctx"]["discriminator"].strip("'"))
        given = given.get(keys[-1]) if isinstance(given, dict) else given
    shown = "" if error["type"] in _SAID else f", not {_as_yaml(given)}"
    if error["type"] == "literal_error" and isinstance(given, str):
        shown += did_you_mean(given, re.findall("'([^']*)'", error["ctx"]["expected"]))
    return _one_line(f"{'.'.join(keys) or 'scenario'}: {message}{shown}")


def _as_yaml(given: Any) -> str:
    """A value in the words of YAML, shortened; of a list or a mapping, only its kind."""
    if isinstance(given, dict | list | tuple):
        return "keys and values" if isinstance(given, dict) else "a list"
    if given is None or isinstance(given, bool):
        return "empty" if given is None else str(given).lower()
    return repr(given[:60]) if isinstance(given, str) else str(given)[:60]


def _elsewhere(model: type[BaseModel], keys: Sequence[str]) -> str:
    """End of a message: the sections in which an unknown key exists."""
    others = [
        f"{name}.{keys[-1]}"
        for name, field in model.model_fields.items()
        if any(keys[-1] in part.model_fields for part in _models(field.annotation))
    ]
    return f"; did you mean {' or '.join(others)}?" if others else ""


def _keys(model: type[BaseModel], location: Sequence[Any]) -> list[str]:
    """The keys that are allowed at a location in the error of a validation."""
    level = {model}
    for part in location[:-1]:
        fields = [m.model_fields[part] for m in level if part in m.model_fields]
        if fields:
            level = {m for field in fields for m in _models(field.annotation)}
    return sorted({key for m in level for key in m.model_fields})


def _models(annotation: Any) -> set[type[BaseModel]]:
    """All models that an annotation names, including those within lists and unions."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    return {model for part in get_args(annotation) for model in _models(part)}


def _path(error: Any) -> tuple[Any, ...]:
    location = error["loc"]
    # An unknown key is named by the file and may look like a tag of pydantic.
    tagged = len(location) - (error["type"] == "extra_forbidden")
    return tuple(p for n, p in enumerate(location) if n >= tagged or not _is_type_tag(p))


def _is_type_tag(part: Any) -> bool:
    """Whether pydantic added this part of a location to name a member of a union."""
    return isinstance(part, str) and ("[" in part or part in _TYPE_TAGS)


def _override(tree: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise InputError(f"`overrides` {override}: must be dotted.key=value")
    set_key(tree, key, parse(text, f"`overrides` {key}", key), f"`overrides` {key}")


def set_key(tree: dict[str, Any], key: str, value: Any, source: str) -> None:
    """Set a dotted key as `put`; the path of a fit is relative to the working directory.

    Raises:
        InputError: See `put` and `with_fits`.
    """
    put(tree, key, with_fits({key: value}, Path())[key], source)


def put(tree: dict[str, Any], key: str, value: Any, source: str) -> None:
    """Set a dotted key in a tree of plain values.

    Raises:
        InputError: A part of the key is a value; the message begins with `source`.
    """
    *path, last = key.split(".")
    node = tree
    for part in path:
        child = node.setdefault(part, {})
        if not isinstance(child, dict):
            raise InputError(f"{source}: {part} is a value, not a section")
        node = child
    node[last] = value


def varied(scenario: Scenario, changes: Mapping[str, Any]) -> Scenario:
    """The scenario with other values, by dotted key.

    Raises:
        InputError: A value is not allowed for its field.
    """
    tree = scenario.model_dump()
    for key, value in changes.items():
        put(tree, key, value, f"{scenario.name}: {key}")
    return (with_epochs if changes_epochs(changes) else validate)(tree, scenario.name)


def changes_epochs(keys: Iterable[str]) -> bool:
    """Whether the number of iterations per epoch may depend on one of these dotted keys; with
    others, the data need not be opened again."""
    return any(key.split(".")[0] in ("workload", "uavs", "seed") for key in keys)


def _one_line(text: object) -> str:
    return " ".join(str(text).split())
