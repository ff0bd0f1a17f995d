# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Error messages for misspelt names, with suggestions."""

from collections.abc import Iterable
from difflib import get_close_matches

LONGEST = 150
"""Longest list of valid names in characters; if it is longer, only similar names are listed."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """End of an error message: `; did you mean 'swin'?`, or empty if no name is similar."""
    close = get_close_matches(str(word), list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def not_one_of(word: str, known: Iterable[str]) -> str:
    """Error message for an unknown name, with the valid or the similar names."""
    words = list(known)
    if len(named := ", ".join(words)) <= LONGEST:
        return f"{word!r} is not one of {named}{did_you_mean(word, words)}"
    close = get_close_matches(str(word), words, n=3) or words[:3]
    return f"{word!r} is not one of the {len(words)} known names, such as {', '.join(close)}"
