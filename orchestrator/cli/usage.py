# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Messages about wrong options and arguments, in the same form as those about keys."""

import re
from typing import Any

import typer

from testbed.core.words import did_you_mean


def described(error: typer.TyperException) -> str:
    """The option or argument, what it must be, and what was given, in one line."""
    parameter: Any = getattr(error, "param", None)
    name = getattr(error, "option_name", None)
    if parameter is not None:
        name = max(parameter.opts, key=len)
        name = name if name.startswith("-") else parameter.metavar or name
    kind = type(error).__name__
    if kind == "MissingParameter":
        return f"{name}: is missing"
    if kind == "NoSuchOption":
        known = [option for each in _parameters(error) for option in each.opts]
        return f"{name}: no such option{did_you_mean(str(name), known)}"
    if kind == "BadOptionUsage":
        return f"{name}: needs a value" if "requires" in error.message else error.message
    cause: Any = error.__cause__
    if parameter is not None and hasattr(cause, "errors"):
        from orchestrator.scenario.loading import must_be

        (first, *_) = cause.errors(include_url=False)
        if first["type"] == "value_error":
            return f"{name}: {must_be(first).rstrip('.')}"
        return f"{name}: {must_be(first)}, not {_shown(str(first['input']))}"
    message = error.format_message()
    if found := re.match(r"No such command '([^']*)'", message):
        context: Any = getattr(error, "ctx", None)
        known = list(getattr(context and context.command, "commands", {}))
        return f"{found[1]}: no such command{did_you_mean(found[1], known)}"
    if found := re.fullmatch(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)", message):
        return f"{found[1]}: unexpected argument"
    return message


def _parameters(error: Any) -> list[Any]:
    return [] if error.ctx is None else list(error.ctx.command.params)


def _shown(text: str) -> str:
    """A value that was given: numbers as they are, other texts in quotes."""
    return text if re.fullmatch(r"[-+]?[\d.]+(e[-+]?\d+)?", text) else repr(text[:60])
