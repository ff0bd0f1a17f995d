# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Names: error messages for misspelt ones with suggestions, and their order."""

import json
import re
from collections.abc import Iterable
from difflib import get_close_matches

LONGEST = 150
"""Longest list of valid names in characters; if it is longer, only similar names are listed."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """End of an error message: `; did you mean 'swin'?`, or empty if no name is similar.

    A name that differs only in its digits, such as `uav3` for `uav9`, is another thing.
    """
    letters = re.sub(r"\d+", "0", str(word))
    others = [name for name in known if re.sub(r"\d+", "0", name) != letters or name == word]
    by_case = {name.lower(): name for name in reversed(others)}
    close = get_close_matches(str(word).lower(), by_case, n=1)
    return f"; did you mean {by_case[close[0]]!r}?" if close else ""


def not_one_of(word: str, known: Iterable[str]) -> str:
    """Error message for an unknown name, with the valid or the similar names."""
    words = list(known)
    if len(named := ", ".join(words)) <= LONGEST:
        return f"{word!r} is not one of {named}{did_you_mean(word, words)}"
    close = get_close_matches(str(word), words, n=3) or words[:3]
    return f"{word!r} is not one of the {len(words)} known names, such as {', '.join(close)}"


def why(error: Exception) -> object:
    """The reason of an error, without the number and the path in those of the system."""
    return getattr(error, "strerror", None) or error


def place_of(error: Exception) -> str:
    """Where a text is not JSON, or why, as the end of a message."""
    if isinstance(error, json.JSONDecodeError):
        return f" (line {error.lineno}, column {error.colno})"
    return f" ({' '.join(str(error).split())[:80]})"


def by_number(name: str) -> list[tuple[int, float, str]]:
    """A key that sorts names by the numbers in them: `2` before `10`, and `uav2` before `uav10`.

    Names that are numbers are sorted by value and come first. In other names, numbers are compared
    by value, and the text around them by character.
    """
    if re.fullmatch(r"[-+]?\d+(\.\d+)?", name):
        return [(0, _number(name), ""), (1, 0, name)]
    parts = re.split(r"(\d+(?:\.\d+)?)", name)
    compared = [(0, _number(part), "") if i % 2 else (1, 0, part) for i, part in enumerate(parts)]
    return [*compared, (1, 0, name)]


def _number(text: str) -> float:
    return float(text) if "." in text else int(text)
