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

This page explains the terms of the pages that the testbed writes, for readers of these pages. Each
page also explains the terms that it uses. Clients and iterations count from 1. Rounds and slots
count from 0. Times are seconds of emulated time. `python -m orchestrator.reporting.glossary` prints
this page.
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
        "SM": "the base station broadcasts to each client its part of the adapters; all clients "
        "begin when the slowest client has received its part",
        "CF": "the client computes the forward pass of the first u stages",
        "CA": "the client sends its activations and labels (smashed data) to the base station",
        "S": "the base station computes the forward and backward pass of the other stages",
        "SG": "the base station sends the gradient of the smashed data to the client",
        "CB": "the client computes the backward pass",
        "CM": "after the last iteration, the client sends its adapters to the base station",
    }
    for step, meaning in meanings.items():
        yield Term(step, f"{STEP_TITLES[step]}: {meaning}", STEPS)


def _word(name: str, meaning: str, pattern: str | None = None) -> Term:
    """A term; by default its name is found as a word, also in the plural."""
    return Term(name, meaning, pattern or rf"(?i:\b{re.escape(name)}s?\b)")


TERMS: dict[str, tuple[Term, ...]] = {
    "Steps of a round": tuple(_steps()),
    "Symbols": (
        _word(
            "u", "split point: the number of stages of the model that the client computes", r"\bu\b"
        ),
        _word("K", "number of UAVs, which are the clients", r"\bK\b(?! needs| factor)"),
        _word("I", "local iterations: the number of repetitions of CF to CB in a round", r"\bI\b"),
        _word("τ0", "length of a slot, 0.1 s in the paper", "τ0|τ₀"),
        _word(
            "α, β, ρ",
            "shares of each client in server computing, bandwidth and transmit power",
            r"[αβρ]\b|\b(?:alpha|beta|rho)\b",
        ),
        _word("λ", "weight of energy in the objective, in s/J", "λ"),
        _word("ς", "ratio of backward to forward computing", "ς"),
        _word("τ2, τ3, τ_PP", "closed forms of the latency of a round", "τ2|τ3|τ_PP|tau[23]"),
        _word("objective", "latency of a round plus λ times the largest energy of a client, in s"),
    ),
    "Rounds": (
        _word(
            "slot", "period in which the channel, and therefore the rate of every link, is constant"
        ),
        _word(
            "smashed data", "activations at the split point, which a client sends with their labels"
        ),
        _word(
            "adapter",
            "low-rank matrices (LoRA) that are trained in addition to frozen weights; in names of "
            "steps and keys: all parameters that a client trains",
        ),
        _word(
            "lag",
            "time that the computing and the transfers for the next gradient of a client have "
            "taken; clients with a larger lag are served earlier",
        ),
        _word(
            "gate",
            "condition for computing or sending: there is none, or the data of all clients must "
            "have arrived",
        ),
        _word(
            "backhaul",
            "wired link between an edge server and the cloud; in the error budget: the two "
            "transfers over this link at the end of a round",
        ),
        _word("paradigm", "rule that shares and orders the server's computing and its downlink"),
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
            "intra-round asynchronous training: no client waits for all others; '-no-at' means "
            "without AT",
            r"\bAT\b|-no-at",
        ),
        _word(
            "PS",
            "priority scheduling: larger lag first; '-no-ps' means without PS",
            r"w/o PS|-no-ps|without PS",
        ),
    ),
    "Radio": (
        _word(
            "MCS",
            "modulation and coding scheme of LTE, from 0 (robust) to 28 (most bits per resource "
            "block)",
        ),
        _word("resource block", "180 kHz of an LTE cell: the unit that the scheduler assigns"),
        _word("TTI", "transmission time interval of LTE, 1 ms: the duration of a transport block"),
        _word(
            "RSRP",
            "reference signal received power: the mean power of one subcarrier of LTE's "
            "reference signals at the UAV",
        ),
        _word("SNR", "signal-to-noise ratio"),
        _word("block error rate", "share of the transport blocks that cannot be decoded"),
        _word("goodput", "rate of the data that are received without errors"),
        _word(
            "path loss exponent",
            "the factor n of a path loss of 10 n log10(distance) dB",
            r"(?i:\bexponents?\b)",
        ),
        _word(
            "shadowing",
            "slow variation of the received level, which is correlated along the path of a UAV",
        ),
        _word(
            "decorrelation distance",
            "length of the path after which the correlation of shadowing is 1/e",
            r"(?i:\bdecorrelat)",
        ),
        _word("scatter", "variation of the level that is independent from one value to the next"),
    ),
    "Fits and forecasts": (
        _word(
            "AIC",
            "Akaike's information criterion: twice the number of parameters minus twice the "
            "log-likelihood; smaller values are better",
        ),
        _word(
            "cross-validation",
            "CV: the likelihood of each segment of the flights is computed with parameters that "
            "were fitted to all other segments",
            r"(?i:cross-validation)|\bCV\b",
        ),
        _word("residual", "a measured value minus the expected value"),
        _word(
            "90 % band",
            "the range between the 5 % and the 95 % quantile",
            r"90 % band|band of 90 %",
        ),
        _word(
            "CRPS",
            "continuous ranked probability score: the integral of the squared difference "
            "between the forecast distribution and that of the measured value; smaller values are "
            "better",
        ),
        _word(
            "KS distance",
            "Kolmogorov-Smirnov distance: the largest difference between two "
            "cumulative distributions, from 0 to 1",
        ),
        _word("Rician factor", "power of the direct path divided by that of all other paths"),
    ),
    "Predicted and measured": (
        _word("payload", "only the bytes of the tensors, as in the paper"),
        _word(
            "with frames",
            "with all bytes on the link: payload and protocol bytes",
            r"(?i:with frames|predicted, frames|engine, frames|\bwire\b)",
        ),
        _word(
            "protocol bytes",
            "all bytes on the link except for the payload, such as packet headers and message "
            "framing",
        ),
        _word(
            "message framing",
            "headers of the testbed's messages, labels and receipts",
        ),
        _word("emulated time", "time in the emulated network: real time divided by dilation"),
        _word("dilation", "factor by which emulated time is slower than real time"),
        _word("overrun", "time by which a computing step exceeded its model"),
        _word(
            "error budget",
            "the difference between measured and predicted latency by cause: start of the round, "
            "protocol bytes, delay, loss, computing, rate injection, order of service, clock "
            "offsets of several machines, unexplained",
        ),
        _word(
            "injector", "the process that sets the rate of every link at the start of every slot"
        ),
        _word(
            "calibration",
            "transfers over every link before a run, whose durations are compared with the rates",
        ),
        _word(
            "valid",
            "every check is within its limit; do not use the results of a run that is not valid",
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
