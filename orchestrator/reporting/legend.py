# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""Titles and colours for pages and plots, without any dependency."""

STEP_TITLES = {
    "SM": "adapters broadcast",
    "CF": "client forward",
    "CA": "smashed data up",
    "S": "server forward and backward",
    "SG": "gradient down",
    "CB": "client backward",
    "CM": "adapters up",
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
    "compute": "computing",
    "injection": "rate injection",
    "grant": "waiting for grants",
    "harq": "retransmissions (HARQ)",
    "radio": "granted resources",
}
"""Titles of the error budget's parts, if they differ from their names."""

IMPAIRMENT_PARTS = ("delay", "loss", "grant", "harq", "radio", "backhaul")
"""Parts of the error budget that exist only if links delay or lose frames, if packets pass through
ns-3's radio, or if there are edge servers."""

PURPOSES = {
    "payload": "tensors",
    "framing": "the testbed's headers, labels and receipts",
    "tls": "TLS records",
    "grpc": "gRPC and HTTP/2",
    "quic": "QUIC's headers and tags",
    "header": "Ethernet, IP, TCP and UDP headers of frames with data",
    "ack": "frames without data: acknowledgements",
    "resent_lost": "retransmissions of frames that the channel lost",
    "resent_dropped": "retransmissions of frames that a queue dropped",
    "resent_spurious": "spurious retransmissions: premature timeouts and probes",
    "handshake": "opening connections",
    "other": "other bytes that the links counted",
}
"""By account of a link's bytes: their purpose."""

STYLES = {
    "cpsfl": ("#aa0044", "-", "o"),
    "cpsfl-no-at": ("#aa0044", "--", "v"),
    "cpsfl-no-ps": ("#aa0044", ":", "s"),
    "pipesfl": ("#4433bb", "-", "o"),
    "pipesfl-no-at": ("#4433bb", "--", "v"),
    "pipesfl-no-ps": ("#4433bb", ":", "s"),
    "sfl-pp": ("#667700", "-", "D"),
}
"""Colour, line and marker of each paradigm on all pages and figures.

No paradigm has the colour of a step. Lines and markers distinguish paradigms in print, too."""
COLOURS = ("#006666", "#cc00aa", "#8a5a2b", "#333333", "#808080")
"""Colours of other series, by number; neither paradigms nor steps have them."""
MARKERS = "osD^v"


def part_title(part: str) -> str:
    """Title of a part of the error budget."""
    return PART_TITLES.get(part, part)


def line_style(axis: str | None, value: str, number: int) -> tuple[str, str, str]:
    """Colour, line and marker: those of a paradigm, else by number."""
    if axis == "paradigm" and value in STYLES:
        return STYLES[value]
    lines = ("-", "--", ":")
    cycle, place = divmod(number, len(COLOURS))
    return COLOURS[place], lines[cycle % len(lines)], MARKERS[place]
