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
    arrows = [tuple(word.strip() for word in line.split("-->")) for line in lines if line.strip()]
    chains = _chains([(one, other) for one, other in arrows])
    layers = _layers(chains)
    place, wide = _places(layers)
    high = len(layers) * (HIGH + GAP) - GAP
    drawn = [_arrow([place[node] for node in chain]) for chain in chains]
    drawn += [_box(node, *place[node]) for layer in layers for node in layer if _is_box(node)]
    label = escape("; ".join(f"{one} uses {other}" for one, other in arrows))
    return (
        f'<svg role="img" aria-label="{label}" viewBox="-1 -1 {wide + 2} {high + 2}" '
        f'style="max-width:{wide}px;width:100%" font-size="13" text-anchor="middle" '
        'font-family="inherit" fill="currentColor">'
        f"{''.join(drawn)}</svg>"
    )


def _chains(arrows: list[tuple[str, str]]) -> list[list[Node]]:
    """Each arrow from layer to layer: its ends, and the places it passes between them."""
    depth: dict[str, int] = defaultdict(int)
    # Longest ways, found when nothing moves any more: there are no more steps than boxes.
    for _ in {name for arrow in arrows for name in arrow}:
        for one, other in arrows:
            depth[other] = max(depth[other], depth[one] + 1)
    return [
        [one, *((one, other, at) for at in range(depth[one] + 1, depth[other])), other]
        for one, other in arrows
    ]


def _layers(chains: list[list[Node]]) -> list[list[Node]]:
    """Who stands in each layer, in an order in which few arrows cross: each near its neighbours."""
    above, below = defaultdict(list), defaultdict(list)
    for chain in chains:
        for one, other in pairwise(chain):
            above[other].append(one)
            below[one].append(other)
    layers: list[list[Node]] = []
    now: list[Node] = [node for node in below if node not in above]
    while now:
        layers.append(now)
        placed = {node for layer in layers for node in layer}
        reached = dict.fromkeys(other for node in now for other in below[node])
        now = [node for node in reached if placed.issuperset(above[node])]
    for sweep in range(SWEEPS):
        neighbours = (above, below)[sweep % 2]
        place, _ = _places(layers)

        middle = {
            node: sum(place[other][0] for other in near or [node]) / len(near or [node])
            for node in place
            for near in [neighbours[node]]
        }
        for layer in layers:
            layer.sort(key=middle.__getitem__)
    return layers


def _is_box(node: Node) -> bool:
    return isinstance(node, str)


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
    (x, y), *rest = points
    path = f"M{x:.0f} {y + HIGH / 2:.0f}"
    at = top = y + HIGH / 2
    for x_next, y_next in rest:
        top = y_next - HIGH / 2
        half = (at + top) / 2
        path += f"C{x:.0f} {half:.0f} {x_next:.0f} {half:.0f} {x_next:.0f} {top:.0f}"
        if (x_next, y_next) != points[-1]:
            path += f"V{y_next + HIGH / 2:.0f}"
        x, at = x_next, y_next + HIGH / 2
    return (
        f'<path d="{path}" fill="none" stroke="currentColor" opacity=".6"/>'
        f'<path d="M{x:.0f} {top:.0f}l-4 -8h8z"/>'
    )


def _box(name: Node, x: float, y: float) -> str:
    wide = _width(name)
    return (
        f'<rect x="{x - wide / 2:.0f}" y="{y - HIGH / 2:.0f}" width="{wide}" height="{HIGH}" '
        'rx="4" fill="none" stroke="currentColor"/>'
        f'<text x="{x:.0f}" y="{y + 4.5:.1f}">{escape(str(name))}</text>'
    )
