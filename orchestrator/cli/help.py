# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Help texts of commands: usage, arguments, options by section, and examples.

A command's docstring may end with `Examples:` and one command line per line. These lines are shown
unchanged. If an option has several long names, only the first one is shown. The others are former
names, which still work.
"""

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

EXAMPLES = "Examples:\n"
REQUIRED = "required"
ONCE = {"like", "command"}
"""Lists that are not values of one kind: a second value is refused, or is part of a command."""


@dataclass(frozen=True)
class Row:
    """An argument or option of a command, as its help shows it."""

    section: str
    """Heading of the section of the help."""
    name: str
    """Name of the argument, or names of the option."""
    value: str
    """Placeholder of the option's value; empty for flags and arguments."""
    meaning: str
    default: str
    """Default value; empty if there is none."""
    notes: tuple[str, ...]
    """Allowed range, whether it is required, and whether it can be repeated."""

    def record(self) -> tuple[str, str]:
        """Both columns of the help."""
        notes = [*([f"default: {self.default}"] if self.default else []), *self.notes]
        end = f"  [{'; '.join(notes)}]" if notes else ""
        return f"{self.name} {self.value}".strip(), self.meaning + end


def rows(command: Any, context: Any) -> list[Row]:
    """All arguments and options of a command that are not hidden, arguments first."""
    shown = [each for each in command.get_params(context) if not getattr(each, "hidden", False)]
    shown.sort(key=lambda each: each.param_type_name != "argument")
    return [_row(each) for each in shown]


def _row(parameter: Any) -> Row:
    notes = [_range(getattr(parameter, "min", None), getattr(parameter, "max", None))]
    notes.append(REQUIRED if parameter.required else "")
    is_argument = parameter.param_type_name == "argument"
    if is_argument:
        name, value = _placeholder(parameter), ""
        repeated = parameter.nargs == -1
    else:
        name = ", ".join((*parameter.opts, *parameter.secondary_opts))
        value = "" if parameter.is_flag else _placeholder(parameter)
        repeated = parameter.multiple
    notes.append("can be repeated" if repeated and parameter.name not in ONCE else "")
    return Row(
        getattr(parameter, "rich_help_panel", None) or ("Arguments" if is_argument else "Options"),
        name,
        value,
        parameter.help or "",
        _default(parameter),
        tuple(note for note in notes if note),
    )


def _default(parameter: Any) -> str:
    shown = getattr(parameter, "show_default", True)
    if isinstance(shown, str):
        return shown
    is_flag = getattr(parameter, "is_flag", False)
    if is_flag or parameter.default is None or callable(parameter.default):
        return ""
    return str(parameter.default)


def _range(least: float | None, most: float | None) -> str:
    if least is None and most is None:
        return ""
    if most is None:
        return f"at least {least}"
    return f"at most {most}" if least is None else f"{least} to {most}"


class _Described:
    """Help texts that commands and groups have in common."""

    examples: Sequence[str] = ()

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Write the examples, which are not wrapped."""
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write one section per heading."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for row in rows(self, ctx):
            sections.setdefault(row.section, []).append(row.record())
        for heading, records in sections.items():
            with formatter.section(heading):
                formatter.write_dl(records)


class Command(_Described, TyperCommand):
    """A command whose help shows examples, and options in sections."""

    def __init__(self, *, help: str | None = None, **options: Any) -> None:
        text, self.examples = _parts(help)
        super().__init__(help=text, **options)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The words after the command's name in the line of usage."""
        return ["[OPTIONS]", *(_usage(each) for each in self.get_params(ctx) if _positional(each))]


def _parts(text: str | None) -> tuple[str, list[str]]:
    """A description, and its examples."""
    description, _, examples = inspect.cleandoc(text or "").partition(EXAMPLES)
    return description.strip(), [line.strip() for line in examples.splitlines() if line.strip()]


def _placeholder(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def _positional(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")


def _usage(argument: Any) -> str:
    name = _placeholder(argument) + ("..." if argument.nargs == -1 else "")
    return name if argument.required else f"[{name}]"


class Grouped(_Described, TyperGroup):
    """A group that lists its commands under headings; alone it prints its help."""

    def __init__(self, *, help: str | None = None, **options: Any) -> None:
        text, self.examples = _parts(help)
        super().__init__(help=text, **options)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words after the group's name; without any, its help is printed."""
        return super().parse_args(ctx, args or ([] if ctx.resilient_parsing else ["--help"]))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options and then the commands."""
        super().format_options(ctx, formatter)
        for heading, commands in headings(self).items():
            with formatter.section(heading):
                formatter.write_dl(
                    [(name, each.get_short_help_str(limit=500)) for name, each in commands.items()]
                )


def headings(group: Any) -> dict[str, dict[str, Any]]:
    """The commands of a group that are not hidden, by heading (`rich_help_panel`) and name."""
    found: dict[str, dict[str, Any]] = {}
    for name, command in group.commands.items():
        if not command.hidden:
            heading = getattr(command, "rich_help_panel", None) or "Commands"
            found.setdefault(heading, {})[name] = command
    return found


def leaves(group: Any, words: str = "testbed") -> Iterator[tuple[str, Any]]:
    """Every command that is not hidden, with its words, in the order of the headings."""
    for commands in headings(group).values():
        for name, command in commands.items():
            if hasattr(command, "commands"):
                yield from leaves(command, f"{words} {name}")
            else:
                yield f"{words} {name}", command


class Application(typer.Typer):
    """A group of commands whose helps have examples."""

    def __init__(self, **options: Any) -> None:
        super().__init__(cls=Grouped, rich_markup_mode=None, **options)

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        """Register a function as a command, as `typer.Typer.command` does."""
        return super().command(name, **({"cls": Command} | options))
