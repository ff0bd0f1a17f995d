# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Reads and writes YAML with the numbers of YAML 1.2, and limits what a text may expand to."""

import re
from typing import Any

import yaml

from testbed.core.errors import InputError

MOST_CHARACTERS = 4_000_000
"""Largest size of a YAML text."""
MOST_VALUES = 200_000
"""Largest number of keys and values in a text, and of values with aliases and merge keys
expanded."""
LONGEST_NUMBER = 300
"""Largest number of characters of a number; a float can hold an integer of this length."""

_TAG = "tag:yaml.org,2002:"
_NULL, _BOOL, _INT, _FLOAT, _STR, _MERGE, _LEADING_ZERO = (
    _TAG + name for name in ("null", "bool", "int", "float", "str", "merge", "leading-zero")
)
_NUMBER_BEGINS = "-+.0123456789"
_CORE_SCHEMA = (
    (_NULL, r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    (_BOOL, r"true|True|TRUE|false|False|FALSE", "tTfF"),
    (_LEADING_ZERO, r"[-+]?0[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?", _NUMBER_BEGINS),
    (_INT, r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", _NUMBER_BEGINS),
    (_FLOAT, r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", _NUMBER_BEGINS),
    (_FLOAT, r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", "-+."),
    (_MERGE, r"<<", "<"),
)
"""Plain scalars of the core schema of YAML 1.2, section 10.3, and merge keys: the tag, the pattern,
and the characters with which they may begin."""
_PROGRAM_TEXT = re.compile(r"(^|\.)nodes\.[^.]+\.(command|env\.[^.]+)(\.(values|choice))?$")
"""Paths of values that programs are given as they are written."""


def parse(text: str, source: str, key: str = "") -> Any:
    """The values that a YAML text describes.

    Commands and environment variables of nodes are texts, as they are written. Merge keys (`<<`)
    are expanded, as in YAML 1.1.

    Args:
        text: The text.
        source: Where it is from, for error messages.
        key: The dotted key of the scenario that the text is the value of; empty for a whole file.

    Raises:
        InputError: It is not YAML, has a key twice, has a number with a leading zero or with too
            many digits, or expands to too many values. The message names the line.
    """
    if len(text) > MOST_CHARACTERS:
        raise InputError(f"{source}: longer than {MOST_CHARACTERS} characters")
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _count(node, {})
        return loader.construct_document(_as_written(node, key))
    except yaml.MarkedYAMLError as error:
        where = error.problem_mark or error.context_mark
        line = f", line {where.line + 1}" if where and "\n" in text else ""
        what = "" if isinstance(error, _RefusedError) else "not YAML: "
        raise InputError(f"{source}{line}: {what}{_one_line(error.problem)}") from None
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError) as error:
        raise InputError(f"{source}: not YAML: {_one_line(error)}") from None


def dump(tree: Any, *, flow: bool = False) -> str:
    """A YAML text from which `parse`, and readers of YAML 1.1, read equal values.

    Args:
        tree: Plain values.
        flow: Whether the innermost lists and mappings are written in one line each.
    """
    style = None if flow else False
    options: dict[str, Any] = {"sort_keys": False, "allow_unicode": True, "width": 100}
    return str(yaml.dump(tree, Dumper=_Dumper, default_flow_style=style, **options))


class _RefusedError(yaml.MarkedYAMLError):
    """Valid YAML that may mean something else than its author thinks."""

    def __init__(self, problem: str, node: yaml.Node):
        super().__init__(None, None, problem, node.start_mark)


class _Loader(yaml.SafeLoader):
    """YAML's safe loader with the core schema of YAML 1.2, without equal keys.

    PyYAML follows YAML 1.1, in which `1e6` is a text, `020` is 16 and `12:30` is 750, and it keeps
    the last one of equal keys.
    """

    yaml_implicit_resolvers = {}  # noqa: RUF012  # PyYAML declares it as a variable of instances
    # Without the dates, sets and bytes of YAML 1.1.
    yaml_constructors = {  # noqa: RUF012
        tag: yaml.SafeLoader.yaml_constructors[tag]
        for tag in (*(_TAG + name for name in ("null", "str", "seq", "map")), None)
    }

    _composed = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """A node, or a shared one for an alias.

        Raises:
            ValueError: The text has too many keys and values.
        """
        self._composed += 1
        if self._composed > MOST_VALUES:
            raise ValueError(f"it has more than {MOST_VALUES} keys and values")
        return super().compose_node(parent, index)

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """A mapping as it is written, before merge keys are resolved.

        Raises:
            _RefusedError: A key occurs twice.
        """
        node = super().compose_mapping_node(anchor)
        first: dict[Any, yaml.ScalarNode] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            # Keys may be equal that are written differently, such as 16 and 0x10.
            value = (_MERGE,) if key.tag == _MERGE else self.construct_object(key)
            if (other := first.setdefault(value, key)) is not key:
                line, here = other.start_mark.line + 1, key.start_mark.line + 1
                where = f"first in line {line}" if line != here else "both times in this line"
                name = f"{key.value[:60]!r}"
                raise _RefusedError(f"the key {name} occurs twice, {where}", key)
        return node

    def number(self, node: yaml.ScalarNode) -> int | float:
        """An integer or a float.

        Raises:
            _RefusedError: It is too long, or an explicit tag names something that is no number.
        """
        text, kind = node.value, "an integer" if node.tag == _INT else "a number"
        if len(text) > LONGEST_NUMBER:
            problem = f"{kind} has {len(text):,} characters; at most {LONGEST_NUMBER} are allowed"
            raise _RefusedError(problem, node)
        tag = _core_tag(text)
        if tag == _INT:
            base = {"0o": 8, "0x": 16}.get(text[:2], 10)
            return int(text, base) if node.tag == _INT else float(int(text, base))
        if tag != _FLOAT or node.tag == _INT:
            raise _RefusedError(f"{text!r} is not {kind}", node)
        return float(re.sub(r"\.(?=[a-z])", "", text.lower()))

    def truth(self, node: yaml.ScalarNode) -> bool:
        """True or false.

        Raises:
            _RefusedError: An explicit tag names something else.
        """
        if _core_tag(node.value) != _BOOL:
            raise _RefusedError(f"{node.value!r} is neither true nor false", node)
        return bool(node.value.lower() == "true")

    def refuse_leading_zero(self, node: yaml.ScalarNode) -> None:
        """Refuse a number that is octal in YAML 1.1 and decimal in YAML 1.2.

        Raises:
            _RefusedError: Always.
        """
        text = node.value
        number = re.sub(r"^([-+]?)0+(?=\d)", r"\1", text)
        raise _RefusedError(
            f"{text} has a leading zero: write {number} for the number, or '{text}' for the text",
            node,
        )


class _Dumper(yaml.SafeDumper):
    """Puts texts between quotes that are numbers in YAML 1.1 or in YAML 1.2."""


for _tag, _pattern, _begins in _CORE_SCHEMA:
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(_tag, re.compile(rf"(?:{_pattern})\Z"), list(_begins))
_Loader.add_constructor(_INT, _Loader.number)
_Loader.add_constructor(_FLOAT, _Loader.number)
_Loader.add_constructor(_BOOL, _Loader.truth)
_Loader.add_constructor(_LEADING_ZERO, _Loader.refuse_leading_zero)


def _core_tag(text: str) -> str:
    """The tag of a plain scalar in the core schema."""
    tags = (tag for tag, pattern, _ in _CORE_SCHEMA if re.fullmatch(pattern, text))
    return next(tags, _STR)


def _count(node: yaml.Node, known: dict[int, int]) -> int:
    """Number of values that a node expands to; shared ones count each time they occur.

    Raises:
        ValueError: There are too many, or the node contains itself.
    """
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) not in known:
        known[id(node)] = MOST_VALUES + 1  # until it has been counted, since it may contain itself
        is_mapping = isinstance(node, yaml.MappingNode)
        inner = (value for _, value in node.value) if is_mapping else node.value
        known[id(node)] = 1 + sum(_count(value, known) for value in inner)
    if known[id(node)] > MOST_VALUES:
        raise ValueError(f"it expands to more than {MOST_VALUES} values")
    return known[id(node)]


def _as_written(node: yaml.Node, path: str) -> yaml.Node:
    """A node in which the scalars that programs are given are texts.

    Null stays null, because it may mean that there is no value.

    Args:
        node: The node. A changed part is copied, because an alias may use it elsewhere.
        path: Its dotted key.
    """
    if isinstance(node, yaml.ScalarNode):
        is_text = node.tag != _NULL and _PROGRAM_TEXT.search(path)
        return yaml.ScalarNode(_STR, node.value, node.start_mark) if is_text else node
    if isinstance(node, yaml.SequenceNode):
        values = [_as_written(value, path) for value in node.value]
        same = all(new is old for new, old in zip(values, node.value, strict=True))
        return node if same else yaml.SequenceNode(node.tag, values, node.start_mark)
    keys = [key.value if isinstance(key, yaml.ScalarNode) else "" for key, _ in node.value]
    # An axis of a campaign names its key beside its values.
    axis = next((value.value for key, value in node.value if key.value == "key"), None)
    pairs = []
    for key, (key_node, value) in zip(keys, node.value, strict=True):
        if key_node.tag == _MERGE:
            inner = path
        elif isinstance(axis, str) and key in ("values", "choice"):
            inner = axis
        else:
            inner = f"{path}.{key}" if path else key
        pairs.append((key_node, _as_written(value, inner)))
    same = all(new is old for (_, new), (_, old) in zip(pairs, node.value, strict=True))
    return node if same else yaml.MappingNode(node.tag, pairs, node.start_mark)


def _one_line(text: object) -> str:
    return " ".join(str(text)[:1000].split())[:200]
