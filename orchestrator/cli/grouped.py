# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Command groups whose help has sections."""

from typing import Any

from typer.core import TyperGroup


class Grouped(TyperGroup):
    """Lists commands under their headings (`rich_help_panel`) with full descriptions."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one section per heading."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            if not command.hidden:
                heading = getattr(command, "rich_help_panel", None) or "Commands"
                row = (name, command.get_short_help_str(limit=500))
                sections.setdefault(heading, []).append(row)
        for heading, rows in sections.items():
            with formatter.section(heading):
                formatter.write_dl(rows)
