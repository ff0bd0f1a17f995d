# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Titles and colours for pages and plots."""

import zlib
from typing import NamedTuple

from testbed.core.registry import PARADIGMS

STEP_TITLES = {
    "SM": "adapter broadcast",
    "CF": "client forward",
    "CA": "smashed data uplink",
    "S": "server forward and backward",
    "SG": "gradient downlink",
    "CB": "client backward",
    "CM": "adapter uplink",
}

STEP_COLOURS = {
    "SM": "#f0e442",
    "CF": "#56b4e9",
    "CA": "#e69f00",
    "S": "#cc79a7",
    "SG": "#009e73",
    "CB": "#0072b2",
    "CM": "#d55e00",
}
"""Okabe and Ito's colours, which can be distinguished with every colour blindness."""

PART_TITLES = {
    "start": "start of the round",
    "framing": "protocol bytes",
    "codec": "sizes of encoded data",
    "compute": "computing",
    "injection": "rate injection",
    "order": "order of service",
    "request": "scheduling requests",
    "grant": "waiting for grants",
    "harq": "retransmissions (HARQ)",
    "recovery": "recovery from losses",
    "handover": "handovers",
    "outage": "ends of outages",
    "radio": "granted resources",
    "clock": "clock offsets",
    "rest": "unexplained",
}
"""Titles of the error budget's parts, if they differ from their names. Protocol bytes are all bytes
on the link except for the payload."""

IMPAIRMENT_PARTS = (
    *("delay", "loss", "grant", "request", "harq", "recovery", "handover", "outage", "radio"),
    *("backhaul", "codec"),
)
"""Parts of the error budget that exist only if links delay or lose frames, if packets pass through
ns-3's radio, if there are edge servers, or if the sizes of codecs depend on the data."""

PURPOSES = {
    "payload": "tensors",
    "framing": "headers of the testbed's messages, labels and receipts",
    "tls": "TLS records",
    "grpc": "gRPC and HTTP/2",
    "quic": "headers and tags of QUIC",
    "header": "Ethernet, IP, TCP and UDP headers of frames with data",
    "ack": "frames without data: acknowledgements",
    "resent_lost": "retransmissions of frames that the channel lost",
    "resent_dropped": "retransmissions of frames that a queue dropped",
    "resent_spurious": "unnecessary retransmissions: premature timeouts and probes",
    "handshake": "opening connections",
    "other": "other bytes that the links counted",
}
"""By account of a link's bytes: their purpose."""

PURPOSE_TITLES = {
    "framing": "message framing",
    "tls": "TLS",
    "grpc": "gRPC",
    "quic": "QUIC",
    "header": "packet headers",
    "ack": "acknowledgements",
    "resent_lost": "retransmissions after loss",
    "resent_dropped": "retransmissions after drops",
    "resent_spurious": "spurious retransmissions",
    "handshake": "connection set-up",
}
"""Titles of the accounts of a link's bytes, if they differ from their names."""

CAUSE_TITLES = PURPOSE_TITLES | {
    "headers": "packet headers",
    "handshakes": "connection set-up",
    "delay": "one-way delay and TCP windows",
    "overruns": "overruns of computing",
    "slots": "late rate changes",
    "start": PART_TITLES["start"],
    "order": PART_TITLES["order"],
    "rest": PART_TITLES["rest"],
}
"""Titles of the parts of a round's latency, if they differ from their names."""

STYLES = {
    "cpsfl": ("#aa0044", "-", "o"),
    "cpsfl-no-at": ("#aa0044", "--", "v"),
    "cpsfl-no-ps": ("#aa0044", ":", "s"),
    "pipesfl": ("#4433bb", "-", "o"),
    "pipesfl-no-at": ("#4433bb", "--", "v"),
    "pipesfl-no-ps": ("#4433bb", ":", "s"),
    "sfl-pp": ("#667700", "-", "D"),
}
"""Colour, line and marker of paradigms; `style_of` has those of all others.

No paradigm has the colour of a step. Lines and markers distinguish paradigms in print, too."""
COLOURS = ("#006666", "#cc00aa", "#8a5a2b", "#333333", "#808080")
"""Colours of other paradigms and series, by number; no step has them."""
LINES = ("-", "--", ":")
DASHES = {"-": "", "--": "7 4", ":": "2 3"}
"""By line style of matplotlib: dashes and gaps of a line on a page, pixels."""
MARKERS = "osD^v"


RAMP = ("#440154", "#3b528b", "#21918c", "#5ec962", "#fde725")
"""Colours of an order, from the first to the last: viridis, whose lightness increases evenly, so
that they can be ordered with every colour blindness."""


def ramp(place: int, count: int) -> str:
    """The colour of a place in an order of `count` places, from 0."""
    at = (len(RAMP) - 1) * place / max(1, count - 1)
    low = min(int(at), len(RAMP) - 2)
    ends = (bytes.fromhex(colour[1:]) for colour in RAMP[low : low + 2])
    mixed = (round(a + (b - a) * (at - low)) for a, b in zip(*ends, strict=True))
    return "#" + bytes(mixed).hex()


def part_title(part: str) -> str:
    """Title of a part of the error budget."""
    return PART_TITLES.get(part, part)


class Style(NamedTuple):
    """How a series is drawn, on pages and in figures."""

    colour: str
    line: str
    """A line style of matplotlib."""
    marker: str


def style_of(paradigm: str) -> Style:
    """Colour, line and marker of a paradigm, the same on all pages and figures.

    Plug-ins follow the built-in paradigms in the order of their names, so that all that are
    installed look different; the style of a paradigm that is not installed follows from its name.
    """
    if paradigm in STYLES:
        return Style(*STYLES[paradigm])
    others = [name for name in PARADIGMS.names() if name not in STYLES]
    known = paradigm in others
    return numbered(others.index(paradigm) if known else zlib.crc32(paradigm.encode()) % 15)


def numbered(number: int) -> Style:
    """Colour, line and marker of a series that is no paradigm, by its number."""
    cycle, place = divmod(number, len(COLOURS))
    return Style(COLOURS[place], LINES[cycle % len(LINES)], MARKERS[place])


def line_style(axis: str | None, value: str, number: int) -> Style:
    """Colour, line and marker: those of a paradigm, else by number."""
    return style_of(value) if axis == "paradigm" else numbered(number)
