# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Draw random sentences of the documentation and the help texts, for a reader to judge.

python tests/prose/draw.py [--seed 1] [--sentences 60]
"""

import argparse
import random

from passages import WORD, documentation, of_command_line, of_markdown

FEWEST_WORDS = 5
"""Shorter sentences and cells are mostly names and numbers."""


def sentences() -> list[tuple[str, str]]:
    """Place and text of each sentence."""
    passages = [passage for page in documentation() for passage in of_markdown(page)]
    return [
        (passage.where, sentence)
        for passage in [*passages, *of_command_line()]
        if passage.kind != "heading"
        for sentence in passage.sentences()
        if len(WORD.findall(sentence)) >= FEWEST_WORDS
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sentences", type=int, default=60)
    given = parser.parse_args()
    drawn = random.Random(given.seed).sample(sentences(), given.sentences)
    for number, (where, sentence) in enumerate(drawn, 1):
        print(f"{number}. [{where}] {sentence}")
