# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Messages as JSON and bytes: frozen dataclasses are encoded, and checked when they are decoded.

A message's kind is the name of its class; its fields hold numbers, text, `NodeId`, `Path`, tuples,
mappings, and other frozen dataclasses. At most one field is `bytes`; it is sent next to the JSON. A
received message must have exactly the fields of its kind, each of its type: there are no defaults.
A name in a message is only looked up among the kinds that are expected.
"""

import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args, get_origin

from testbed.core.errors import RunError
from testbed.core.node import NodeId

Json = Mapping[str, Any]
"""A JSON object whose content is the business of those who write and read it."""
Received = TypeVar("Received")
Read = Callable[[Any], Any]


class MessageError(RunError):
    """A received message is of a kind that is not expected, or has other fields."""


class Kinds(Generic[Received]):
    """The kinds of message that one side may receive."""

    def __init__(self, kinds: Any):
        """Create a codec; `kinds` is the union of the message classes."""
        self._kinds = {kind.__name__: kind for kind in get_args(kinds)}

    def decode(self, header: Json, blob: bytes) -> Received:
        """The message from which `encode` made these arguments.

        Raises:
            MessageError: The message is none of these kinds, or a field is missing, unknown or of
                another type.
        """
        name = header.get("kind")
        kind = self._kinds.get(name) if isinstance(name, str) else None
        if kind is None:
            raise MessageError(f"message: the kind {name!r} is unknown here")
        given = {field: value for field, value in header.items() if field != "kind"}
        try:
            if (place := _blob_field(kind)) in given:
                raise _UnfitError("is unknown").within(place)
            if place is not None:
                given[place] = blob
            elif blob:
                raise _UnfitError(f"has {len(blob)} bytes where none are due")
            message: Received = _reader(kind)(given)
        except _UnfitError as unfit:
            raise MessageError(
                f"message: {'.'.join([kind.__name__, *unfit.path])} {unfit}"
            ) from None
        return message


def encode(message: Any) -> tuple[Json, bytes]:
    """A message as a JSON object, and its field of bytes, which is sent next to it."""
    header, blob = {"kind": type(message).__name__}, b""
    for field in fields(message):
        value = getattr(message, field.name)
        if isinstance(value, bytes):
            blob = value
        else:
            header[field.name] = _plain(value)
    return header, blob


def _plain(value: Any) -> Any:
    if isinstance(value, (NodeId, Path)):
        return str(value)
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(content) for key, content in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(content) for content in value]
    return value


class _UnfitError(Exception):
    """A value is not of the type that is due; `path` leads to it."""

    path: tuple[str, ...] = ()

    def within(self, name: object) -> "_UnfitError":
        self.path = (str(name), *self.path)
        return self


@cache
def _blob_field(kind: type) -> str | None:
    names = [name for name, due in typing.get_type_hints(kind).items() if due is bytes]
    assert len(names) <= 1, f"{kind.__name__} has more than one field of bytes"
    return names[0] if names else None


@cache
def _reader(due: Any) -> Read:
    """A function that converts JSON to a value of a type, or raises `_UnfitError`."""
    origin, of = get_origin(due), get_args(due)
    if due is Any:
        return lambda value: value
    if due is NodeId:
        return _node
    if due is Path:
        text = _reader(str)
        return lambda value: Path(text(value))
    if is_dataclass(due):
        return _fields_of(due)
    if origin is typing.Literal:
        return lambda value: _checked(value, value in of, f"one of {', '.join(map(repr, of))}")
    if origin in (typing.Union, types.UnionType):
        return _either([_reader(kind) for kind in of if kind is not types.NoneType], of)
    if origin is tuple and of[-1] is not Ellipsis:
        return _row([_reader(kind) for kind in of])
    if origin in (tuple, Sequence):
        return _many(_reader(of[0]))
    if origin is Mapping:
        return _mapping(int if of[0] is int else str, _reader(of[1]))
    if due is float:
        return _number
    assert due in (bool, int, str, bytes), f"messages cannot hold {due}"
    return lambda value: _checked(value, type(value) is due, f"of type {due.__name__}")


def _checked(value: Any, fits: bool, due: str) -> Any:
    if not fits:
        raise _UnfitError(f"must be {due}, not {value!r:.80}")
    return value


def _number(value: Any) -> float:
    try:
        return float(_checked(value, type(value) in (int, float), "a number"))
    except OverflowError:
        raise _UnfitError("must be a number of 64 bits") from None


def _node(value: Any) -> NodeId:
    try:
        return NodeId.parse(_checked(value, type(value) is str, "a node"))
    except ValueError as error:
        raise _UnfitError(f"must be a node: {error}") from None


def _fields_of(kind: Any) -> Read:
    readers = {name: _reader(due) for name, due in typing.get_type_hints(kind).items()}

    def read(value: Any) -> Any:
        _checked(value, isinstance(value, dict), "an object")
        for name in sorted(readers.keys() ^ value.keys()):
            raise _UnfitError("is missing" if name in readers else "is unknown").within(name)
        return kind(**{name: _within(name, read, value[name]) for name, read in readers.items()})

    return read


def _within(name: object, read: Read, value: Any) -> Any:
    try:
        return read(value)
    except _UnfitError as unfit:
        raise unfit.within(name) from None


def _either(readers: list[Read], of: Sequence[Any]) -> Read:
    def read(value: Any) -> Any:
        if value is None and types.NoneType in of:
            return None
        for reader in readers[:-1]:
            try:
                return reader(value)
            except _UnfitError:
                continue
        return readers[-1](value)

    return read


def _row(readers: list[Read]) -> Read:
    def read(value: Any) -> Any:
        fits = isinstance(value, list) and len(value) == len(readers)
        _checked(value, fits, f"a list of {len(readers)}")
        cells = enumerate(zip(readers, value, strict=True))
        return tuple(_within(place, read, cell) for place, (read, cell) in cells)

    return read


def _many(reader: Read) -> Read:
    def read(value: Any) -> Any:
        _checked(value, isinstance(value, list), "a list")
        return tuple(_within(place, reader, cell) for place, cell in enumerate(value))

    return read


def _mapping(key_of: Callable[[str], Any], reader: Read) -> Read:
    def read(value: Any) -> Any:
        _checked(value, isinstance(value, dict), "an object")
        try:
            keys = [key_of(key) for key in value]
        except ValueError:
            raise _UnfitError("must have numbers for keys") from None
        cells = zip(keys, value.values(), strict=True)
        return {key: _within(key, reader, cell) for key, cell in cells}

    return read
