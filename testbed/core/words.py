# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Words that somebody got wrong, and those that he may have meant."""

from collections.abc import Iterable
from difflib import get_close_matches

LONGEST = 150
"""Characters of all that a word could have been; of more, only what resembles it is named."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a complaint: `; did you mean 'swin'?`, or nothing where no word resembles it."""
    close = get_close_matches(str(word), list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def not_one_of(word: str, known: Iterable[str]) -> str:
    """The complaint that a word is none of those that are known, in a line one can read."""
    words = list(known)
    if len(named := ", ".join(words)) <= LONGEST:
        return f"{word!r} is not one of {named}{did_you_mean(word, words)}"
    close = get_close_matches(str(word), words, n=3) or words[:3]
    return f"{word!r} is not one of the {len(words)} that are known, such as {', '.join(close)}"
