# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Explanations of the terms on pages; each page lists the terms that occur on it.

``python -m orchestrator.reporting.glossary > docs/glossary.md``
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.reporting.legend import STEP_TITLES

STEPS = r"\b(?:SM|CF|CA|SG|CB|CM)\b"
"""If one of these occurs, all steps are explained."""

DOCS = """<!--
SPDX-FileCopyrightText: UAV-SFL testbed authors
SPDX-License-Identifier: MIT
-->

# Glossary

Written by `python -m orchestrator.reporting.glossary`; pages explain the terms that they use.
Clients and iterations count from 1, rounds and slots from 0; times are seconds of emulated time.
"""


@dataclass(frozen=True)
class Term:
    """A word or symbol with its explanation."""

    name: str
    meaning: str
    pattern: str
    """Regular expression that finds the term in a text."""


def _steps() -> Iterator[Term]:
    meanings = {
        "SM": "the base station broadcasts each client's part of the adapters; all clients begin "
        "when the slowest has received it",
        "CF": "the client computes the first u stages forward",
        "CA": "the client sends its activations and labels (smashed data) up",
        "S": "the base station computes the rest forward and backward",
        "SG": "the gradient of the smashed data goes down",
        "CB": "the client computes backward",
        "CM": "after the last iteration the client sends its adapters up",
    }
    for step, meaning in meanings.items():
        yield Term(step, f"{STEP_TITLES[step]}: {meaning}", STEPS)


def _word(name: str, meaning: str, pattern: str | None = None) -> Term:
    """A term; by default its name is found as a word, also in the plural."""
    return Term(name, meaning, pattern or rf"(?i:\b{re.escape(name)}s?\b)")


TERMS: dict[str, tuple[Term, ...]] = {
    "Steps of a round": tuple(_steps()),
    "Symbols": (
        _word("u", "split point: how many stages of the model the client computes", r"\bu\b"),
        _word("K", "number of UAVs, the clients", r"\bK\b(?! needs)"),
        _word("I", "local iterations: how often CF to CB repeat in a round", r"\bI\b"),
        _word("τ0", "length of a slot, 0.1 s in the paper", "τ0|τ₀"),
        _word(
            "α, β, ρ",
            "shares of server computing, of bandwidth, and of transmit power of each client",
            r"[αβρ]\b|\b(?:alpha|beta|rho)\b",
        ),
        _word("λ", "weight of energy in the objective, in s/J", "λ"),
        _word("ς", "backward computing over forward computing", "ς"),
        _word("τ2, τ3, τ_PP", "closed forms of a round's latency", "τ2|τ3|τ_PP|tau[23]"),
        _word("objective", "latency of a round plus λ times the largest energy of a client"),
    ),
    "Rounds": (
        _word("slot", "the time for which the channel, and so every link's rate, is constant"),
        _word("smashed data", "activations at the split point, sent up with their labels"),
        _word(
            "adapter",
            "low-rank matrices (LoRA) that are trained next to frozen weights; in names of steps "
            "and keys, all that a client trains",
        ),
        _word(
            "lag",
            "how far a client is behind: the time that its next gradient has already taken; a "
            "larger lag is served earlier",
        ),
        _word(
            "gate",
            "condition for computing or sending: none, or the data of all clients have arrived",
        ),
        _word(
            "backhaul",
            "wired link between an edge server and the cloud; in the error budget, the two "
            "transfers over it at the end of a round",
        ),
        _word("paradigm", "how the server's computing and its downlink are shared and ordered"),
        _word(
            "CPSFL",
            "parallel computing, sequential gradients, larger lag first",
            r"\bCPSFL\b|\bcpsfl\b",
        ),
        _word(
            "PipeSFL",
            "sequential computing, larger lag first, parallel gradients",
            r"(?i:\bPipeSFL\b)",
        ),
        _word("SFL-PP", "computing and gradients in parallel", r"(?i:\bSFL-PP\b)"),
        _word(
            "SFL-PS, SFL-SP",
            "vanilla: sequential gradients (PS) or sequential computing (SP), first come first "
            "served, with synchronised clients",
            r"(?i:\bSFL-(?:PS|SP)\b)",
        ),
        _word(
            "AT",
            "intra-round asynchronous training: no client waits for all; '-no-at' is without",
            r"\bAT\b|-no-at",
        ),
        _word(
            "PS",
            "priority scheduling: larger lag first; '-no-ps' is without",
            r"w/o PS|-no-ps|without PS",
        ),
    ),
    "Radio": (
        _word(
            "MCS",
            "modulation and coding scheme of LTE, from 0 (robust) to 28 (most bits per resource "
            "block)",
        ),
        _word("resource block", "180 kHz of an LTE cell, the unit that its scheduler assigns"),
        _word("TTI", "transmission time interval of LTE, 1 ms: a transport block is sent in it"),
        _word(
            "RSRP",
            "reference signal received power: the mean power of one subcarrier of LTE's "
            "reference signals at the UAV",
        ),
        _word("SNR", "signal-to-noise ratio"),
        _word("block error rate", "part of the transport blocks that cannot be decoded"),
        _word("goodput", "rate of the data that are received without errors"),
        _word(
            "path loss exponent",
            "n, where the path loss in dB is 10 n log10 of the distance",
            r"(?i:\bexponents?\b)",
        ),
        _word(
            "shadowing",
            "slow variation of the level around that of the path loss, which is "
            "correlated along the path of a UAV",
        ),
        _word(
            "decorrelation distance",
            "path after which the correlation of shadowing is 1/e",
            r"(?i:\bdecorrelat)",
        ),
        _word("scatter", "variation of the level that is independent from one value to the next"),
    ),
    "Fits and forecasts": (
        _word(
            "AIC",
            "Akaike's information criterion: twice the number of parameters less twice "
            "the log-likelihood; the smaller, the better",
        ),
        _word(
            "cross-validation",
            "CV: each segment of the flights is judged by its likelihood "
            "under parameters that were fitted to all other segments",
            r"(?i:cross-validation)|\bCV\b",
        ),
        _word("residual", "a measured value less the expected one"),
        _word(
            "90 % band",
            "the range between the 5 % and the 95 % quantile",
            r"90 % band|band of 90 %",
        ),
        _word(
            "CRPS",
            "continuous ranked probability score: the integral of the squared difference "
            "between the forecast distribution and that of the measured value; the smaller, the "
            "better",
        ),
        _word(
            "KS distance",
            "Kolmogorov-Smirnov distance: the largest difference between two "
            "cumulative distributions, from 0 to 1",
        ),
        _word("Rician factor", "power of the direct path over that of all other paths"),
    ),
    "Predicted and measured": (
        _word("payload", "only the bytes of the tensors, as in the paper"),
        _word(
            "with frames",
            "all bytes on the link, including headers and framing",
            r"(?i:with frames|predicted, frames|engine, frames|\bwire\b)",
        ),
        _word("emulated time", "time in the emulated network: real time divided by dilation"),
        _word("dilation", "factor by which emulated time is slower than real time"),
        _word("overrun", "time by which a computing step exceeded its model"),
        _word(
            "error budget",
            "the difference of measured and predicted latency, split by cause: "
            "start of the round, framing, delay, loss, computing, rate injection, order, clocks of "
            "several machines, rest",
        ),
        _word("injector", "the process that sets every link's rate at the start of every slot"),
        _word("calibration", "a transfer over every link before the run, compared with its rate"),
        _word(
            "valid",
            "every check is within its limit; results of a run that is not valid must not be used",
            r"(?i:\bvalid(?:ity)?\b)",
        ),
        _word("CI95", "95 % confidence interval of a mean", r"(?i:ci95|95 % conf)"),
    ),
}
"""Terms by heading."""


def terms_on(html: str) -> list[Term]:
    """The terms that occur in a page's text, in the glossary's order."""
    text = re.sub(r"<style>.*?</style>|<script>.*?</script>|<[^>]*>", " ", html, flags=re.S)
    return [term for terms in TERMS.values() for term in terms if re.search(term.pattern, text)]


def page() -> str:
    """The glossary as Markdown."""
    lines = [DOCS]
    for heading, terms in TERMS.items():
        rows = [f"| {term.name} | {term.meaning} |" for term in terms]
        lines += [f"## {heading}\n", "| term | meaning |", "|---|---|", *rows, ""]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    print(page(), end="")
