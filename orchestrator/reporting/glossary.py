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

This glossary is for readers of the HTML pages that the testbed writes. Each HTML page also explains
the terms that occur on it. [A round in pictures](round.md) shows the steps on a timeline. Clients
and iterations are counted from 1, and rounds and slots from 0. Times are in seconds of emulated
time. The command `python -m orchestrator.reporting.glossary` prints this page.
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
        "SM": "the base station broadcasts the adapters, so that each client receives its part; "
        "all clients begin computing when the slowest client has received its part",
        "CF": "the client computes the forward pass through the first u stages",
        "CA": "the client sends its activations and labels (smashed data) to the base station",
        "S": "the base station computes the forward and backward passes through the other stages",
        "SG": "the base station sends the gradient of the smashed data to the client",
        "CB": "the client computes the backward pass through its stages",
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
        _word("u", "split point: number of stages of the model that the client computes", r"\bu\b"),
        _word("K", "number of UAVs; each UAV is a client", r"\bK\b(?! needs| factor)"),
        _word(
            "I",
            "local iterations: number of times that the steps CF to CB are repeated in a round",
            r"\bI\b",
        ),
        _word("τ0", "length of a slot (0.1 s in the paper)", "τ0|τ₀"),
        _word(
            "α, β, ρ",
            "each client's share of the server's computing capacity, of the bandwidth and of the "
            "transmit power",
            r"[αβρ]\b|\b(?:alpha|beta|rho)\b",
        ),
        _word("λ", "weight of the energy in the objective, in s/J", "λ"),
        _word(
            "ς", "ratio of the computing time of the backward pass to that of the forward pass", "ς"
        ),
        _word(
            "τ2, τ3, τ_PP",
            "the paper's closed forms for the latency of a round",
            "τ2|τ3|τ_PP|tau[23]",
        ),
        _word(
            "objective", "latency of a round plus λ times the largest energy of any client, in s"
        ),
    ),
    "Rounds": (
        _word(
            "slot",
            "time interval in which the channel, and therefore the rate of every link, is constant",
        ),
        _word(
            "smashed data",
            "activations at the split point, which a client sends together with the labels",
        ),
        _word(
            "adapter",
            "low-rank matrices (LoRA) that are trained while the original weights stay frozen; in "
            "the names of steps and keys, adapters are all parameters that a client trains",
        ),
        _word(
            "lag",
            "total duration of the computing steps and transfers that lead to the next gradient "
            "of a client; clients with a larger lag are served first",
        ),
        _word(
            "gate",
            "condition that the data of all clients must have arrived before the server begins to "
            "compute or send",
        ),
        _word(
            "backhaul",
            "wired link between an edge server and the cloud; in the error budget, backhaul is the "
            "time of the two transfers over this link at the end of a round",
        ),
        _word(
            "paradigm",
            "rule that determines how clients share the server's computing capacity and downlink, "
            "and in which order they are served",
        ),
        _word(
            "CPSFL",
            "paradigm with parallel computing and sequential transmission of gradients; the "
            "client with the larger lag is served first",
            r"\bCPSFL\b|\bcpsfl\b",
        ),
        _word(
            "PipeSFL",
            "paradigm with sequential computing and parallel transmission of gradients; the client "
            "with the larger lag is served first",
            r"(?i:\bPipeSFL\b)",
        ),
        _word(
            "SFL-PP",
            "paradigm with parallel computing and parallel transmission of gradients",
            r"(?i:\bSFL-PP\b)",
        ),
        _word(
            "SFL-PS, SFL-SP",
            "vanilla paradigms with sequential transmission of gradients (PS) or sequential "
            "computing (SP); clients are served in first-come, first-served order and wait for "
            "each other in every iteration",
            r"(?i:\bSFL-(?:PS|SP)\b)",
        ),
        _word(
            "AT",
            "intra-round asynchronous training, in which no client waits for other clients during "
            "a round; '-no-at' means without AT",
            r"\bAT\b|-no-at",
        ),
        _word(
            "PS",
            "priority scheduling, in which the client with the larger lag is served first; "
            "'-no-ps' means without PS",
            r"w/o PS|-no-ps|without PS",
        ),
    ),
    "Radio": (
        _word(
            "MCS",
            "modulation and coding scheme of LTE or NR, from 0 (robust) to 28 (most bits per "
            "resource block)",
        ),
        _word(
            "resource block",
            "12 subcarriers of an LTE or NR cell, 180 kHz with LTE: the smallest unit that the "
            "scheduler assigns",
        ),
        _word("TTI", "transmission time interval of LTE, 1 ms: the duration of a transport block"),
        _word(
            "NR slot",
            "1 ms, 0.5 ms or 0.25 ms: the duration of a transport block of 5G NR",
        ),
        _word(
            "RSRP",
            "reference signal received power: mean power of a subcarrier that carries LTE's "
            "reference signals, as received by the UAV",
        ),
        _word("SNR", "signal-to-noise ratio"),
        _word("block error rate", "fraction of the transport blocks that cannot be decoded"),
        _word("goodput", "rate at which data are received without errors"),
        _word(
            "path loss exponent",
            "factor n in a path loss of 10 n log10(distance) dB",
            r"(?i:\bexponents?\b)",
        ),
        _word(
            "shadowing",
            "slow variation of the received signal level, which is correlated along the flight "
            "path of a UAV",
        ),
        _word(
            "decorrelation distance",
            "distance along the flight path after which the correlation of the shadowing has "
            "dropped to 1/e",
            r"(?i:\bdecorrelat)",
        ),
        _word(
            "scatter", "variation of the signal level that is independent for each measured value"
        ),
    ),
    "Fits and forecasts": (
        _word(
            "AIC",
            "Akaike's information criterion: twice the number of parameters minus twice the "
            "log-likelihood; smaller values are better",
        ),
        _word(
            "cross-validation",
            "CV: method in which the likelihood of each segment of the flights is computed with "
            "parameters that have been fitted to all other segments",
            r"(?i:cross-validation)|\bCV\b",
        ),
        _word("residual", "measured value minus expected value"),
        _word(
            "90 % band",
            "range between the 5 % quantile and the 95 % quantile",
            r"90 % band|band of 90 %",
        ),
        _word(
            "CRPS",
            "continuous ranked probability score: integral of the squared difference between the "
            "cumulative distribution of the forecast and that of the measured value; smaller "
            "values are better",
        ),
        _word(
            "KS distance",
            "Kolmogorov-Smirnov distance: largest difference between two cumulative distributions, "
            "from 0 to 1",
        ),
        _word(
            "Rician factor",
            "power of the direct path divided by the total power of all other paths",
        ),
    ),
    "Predicted and measured": (
        _word(
            "payload",
            "bytes of the transferred tensors only, without protocol bytes, as in the paper",
        ),
        _word(
            "with frames",
            "prediction that counts all bytes on the link: payload and protocol bytes",
            r"(?i:with frames|predicted, frames|engine, frames|\bwire\b)",
        ),
        _word(
            "protocol bytes",
            "all bytes on the link except for the payload, such as packet headers and message "
            "framing",
        ),
        _word(
            "message framing",
            "headers of the testbed's messages, together with labels and receipts",
        ),
        _word(
            "emulated time",
            "time in the emulated network: time on the machine's clock divided by the dilation",
        ),
        _word(
            "dilation", "factor by which emulated time passes more slowly than the machine's clock"
        ),
        _word("overrun", "time by which a computing step exceeds its modelled duration"),
        _word(
            "error budget",
            "difference between measured and predicted latency, broken down by cause: start of "
            "the round, protocol bytes, delay, loss, computing, rate injection, order of service, "
            "clock offsets between several machines, and an unexplained part",
        ),
        _word("injector", "process that sets the rate of every link at the start of every slot"),
        _word(
            "calibration",
            "test transfers over every link before a run; their durations are checked against the "
            "rates of the links",
        ),
        _word(
            "valid",
            "a run is valid if every check is within its limit; do not use the results of a run "
            "that is not valid",
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
