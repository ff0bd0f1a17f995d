# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""What pages and figures call things, and in which colours they draw them. Needs nothing."""

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
"""Okabe and Ito's seven colours, told apart under every kind of colour blindness."""

PART_TITLES = {
    "start": "start of the round",
    "compute": "computing",
    "injection": "rate injection",
}
"""What the page calls the parts of the error budget that need more than their name."""

OF_THE_AIR = ("delay", "loss")
"""Parts of the error budget that there are where links delay or lose frames, and nowhere else."""

PURPOSES = {
    "payload": "tensors",
    "framing": "the testbed's headers, labels and receipts",
    "tls": "TLS records",
    "grpc": "gRPC and HTTP/2",
    "quic": "QUIC's headers and tags",
    "header": "Ethernet, IP, TCP and UDP headers of frames with data",
    "ack": "frames without data: acknowledgements",
    "resent_lost": "frames sent again, since the air had lost some",
    "resent_dropped": "frames sent again, since a queue had dropped some",
    "resent_spurious": "frames sent again that were not missing: timeouts and probes too early",
    "handshake": "opening connections",
    "other": "what the links counted beyond that",
}
"""What the bytes of a link are for, in words."""

STYLES = {
    "cpsfl": ("#d55e00", "-", "o"),
    "cpsfl-no-at": ("#d55e00", "--", "v"),
    "cpsfl-no-ps": ("#d55e00", ":", "s"),
    "pipesfl": ("#0072b2", "-", "o"),
    "pipesfl-no-at": ("#0072b2", "--", "v"),
    "pipesfl-no-ps": ("#0072b2", ":", "s"),
    "sfl-pp": ("#009e73", "-", "D"),
}
"""Colour, line and marker of each paradigm; colours tell apart under colour blindness."""
COLOURS = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
MARKERS = "osD^v<>"


def part_title(part: str) -> str:
    """What the page calls a part of the error budget."""
    return PART_TITLES.get(part, part)


def line_style(axis: str | None, value: str, number: int) -> tuple[str, str, str]:
    """Colour, line and marker of a line: a paradigm's own, else by its number."""
    if axis == "paradigm" and value in STYLES:
        return STYLES[value]
    lines = ("-", "--", ":")
    cycle, place = divmod(number, len(COLOURS))
    return COLOURS[place], lines[cycle % len(lines)], MARKERS[place]
