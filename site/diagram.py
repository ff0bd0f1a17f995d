# SPDX-FileCopyrightText: UAV-SFL testbed authors
# SPDX-License-Identifier: MIT

"""A flowchart of mermaid as a drawing, for pages that no browser needs a network for.

Of mermaid's language, what the pages use: `flowchart TD`, and `  one --> other` a line, without
cycles. Boxes stand in layers, each below all that point to it; an arrow that passes layers takes a
place in each of them, so that it goes around boxes.
"""

from collections import defaultdict
from html import escape
from itertools import pairwise
from statistics import fmean

HIGH, GAP, LETTER, BETWEEN = 30, 42, 8, 26
"""A box's height, what is between layers, a letter's width, and between two in a layer; pixels."""
SWEEPS = 24
Node = str | tuple[str, str, int]
"""A box by its name; where an arrow passes a layer, its ends and the layer."""


def drawing(text: str) -> str:
    """The flowchart as SVG, in the colour of the text around it."""
    first, *lines = text.split("\n")
    if first.strip() != "flowchart TD":
        raise ValueError(f"only `flowchart TD` is drawn, not {first.strip()!r}")
    ends = (line.split("-->") for line in lines if line.strip())
    arrows = [(one.strip(), other.strip()) for one, other in ends]
    depth = _depths(arrows)
    chains: list[list[Node]] = [
        [one, *((one, other, at) for at in range(depth[one] + 1, depth[other])), other]
        for one, other in arrows
    ]
    layers = _layers(chains, depth)
    place, wide = _places(layers)
    high = len(layers) * (HIGH + GAP) - GAP
    drawn = [_arrow([place[node] for node in chain]) for chain in chains]
    drawn += [_box(name, *place[name]) for name in depth]
    label = escape("; ".join(f"{one} uses {other}" for one, other in arrows))
    return (
        f'<svg role="img" aria-label="{label}" viewBox="-1 -1 {wide + 2} {high + 2}" '
        f'style="max-width:{wide}px;width:100%" font-size="13" text-anchor="middle" '
        'font-family="inherit" fill="currentColor">'
        f"{''.join(drawn)}</svg>"
    )


def _depths(arrows: list[tuple[str, str]]) -> dict[str, int]:
    """The layer of each box: the longest way to it."""
    depth = dict.fromkeys((name for arrow in arrows for name in arrow), 0)
    # Nothing moves any more after as many passes as there are boxes.
    for _ in depth:
        for one, other in arrows:
            depth[other] = max(depth[other], depth[one] + 1)
    return depth


def _layers(chains: list[list[Node]], depth: dict[str, int]) -> list[list[Node]]:
    """Who stands in each layer, in an order in which few arrows cross: each near its neighbours."""
    layers: list[list[Node]] = [[] for _ in range(max(depth.values()) + 1)]
    for node in dict.fromkeys(node for chain in chains for node in chain):
        layers[depth[node] if isinstance(node, str) else node[2]].append(node)
    above, below = defaultdict(list), defaultdict(list)
    for chain in chains:
        for one, other in pairwise(chain):
            above[other].append(one)
            below[one].append(other)
    for sweep in range(SWEEPS):
        neighbours, way = ((above, 1), (below, -1))[sweep % 2]
        for layer in layers[::way]:
            place, _ = _places(layers)
            middle = {n: fmean(place[near][0] for near in neighbours[n] or [n]) for n in layer}
            layer.sort(key=middle.__getitem__)
    return layers


def _width(node: Node) -> int:
    return len(node) * LETTER + 16 if isinstance(node, str) else 0


def _places(layers: list[list[Node]]) -> tuple[dict[Node, tuple[float, float]], float]:
    """The middle of each node, and how wide all is."""
    widths = [sum(map(_width, layer)) + BETWEEN * (len(layer) - 1) for layer in layers]
    place: dict[Node, tuple[float, float]] = {}
    for row, (layer, width) in enumerate(zip(layers, widths, strict=True)):
        x = (max(widths) - width) / 2
        for node in layer:
            place[node] = (x + _width(node) / 2, row * (HIGH + GAP) + HIGH / 2)
            x += _width(node) + BETWEEN
    return place, max(widths)


def _arrow(points: list[tuple[float, float]]) -> str:
    """From the lower edge of a box to the upper one of another, upright through what it passes."""
    path = "M"
    for (x, y), (x_next, y_next) in pairwise(points):
        bottom, top = y + HIGH / 2, y_next - HIGH / 2
        half = (bottom + top) / 2
        path += f"{x:.0f} {bottom:.0f}C{x:.0f} {half:.0f} {x_next:.0f} {half:.0f} "
        path += f"{x_next:.0f} {top:.0f}L"
    x, y = points[-1]
    tip = f"{x:.0f} {y - HIGH / 2:.0f}"
    return (
        f'<path d="{path.removesuffix("L")}" fill="none" stroke="currentColor" opacity=".6"/>'
        f'<path d="M{tip}l-4 -8h8z"/>'
    )


def _box(name: str, x: float, y: float) -> str:
    wide = _width(name)
    return (
        f'<rect x="{x - wide / 2:.0f}" y="{y - HIGH / 2:.0f}" width="{wide}" height="{HIGH}" '
        'rx="4" fill="none" stroke="currentColor"/>'
        f'<text x="{x:.0f}" y="{y + 4.5:.1f}">{escape(name)}</text>'
    )
