"""One picture of an evaluation: for each problem the fastest time measured, and that of the kernel chosen for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from tilewright.learn.evaluate import Choice

MARK = '<svg xmlns="http://www.w3.org/2000/svg"'  # how a picture of ours begins
_SIZE, _EDGE = 640, 60
_COLOURS = ("#1b6ca8", "#c0392b", "#27824a", "#8e44ad", "#b9770e", "#34495e", "#0e8c8c", "#a04070")


def scatter(choices: Sequence[Choice], title: str) -> str:
    """SVG, both axes logarithmic: a point on the diagonal is a choice that was the fastest."""
    times = [seconds * 1e6 for choice in choices for seconds in (choice.oracle, choice.seconds)]
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    high = max(high, low + 1)

    def at(seconds: float) -> float:
        share = (math.log10(seconds * 1e6) - low) / (high - low)
        return _EDGE + share * (_SIZE - 2 * _EDGE)

    families = sorted({choice.family for choice in choices})
    parts = [
        f'{MARK} viewBox="0 0 {_SIZE} {_SIZE}" font-size="12">',
        f'<rect width="{_SIZE}" height="{_SIZE}" fill="white"/>',
        f'<text x="{_EDGE}" y="24" font-size="15">{escape(title)}: fastest measured against chosen</text>',
        f'<line x1="{_EDGE}" y1="{_SIZE - _EDGE}" x2="{_SIZE - _EDGE}" y2="{_EDGE}" stroke="#999"/>',
    ]
    for power in range(low, high + 1):
        place = at(10.0**power * 1e-6)
        parts += [
            f'<text x="{place:.1f}" y="{_SIZE - _EDGE + 18}" text-anchor="middle">{10.0**power:g}</text>',
            f'<text x="{_EDGE - 6}" y="{_SIZE - place + 4:.1f}" text-anchor="end">{10.0**power:g}</text>',
        ]
    for choice in choices:
        colour = _COLOURS[families.index(choice.family) % len(_COLOURS)]
        tip = escape(f"{choice.problem.describe()}: {choice.efficiency:.1%} of the fastest")
        x, y = at(choice.oracle), _SIZE - at(choice.seconds)
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}" fill-opacity="0.7"><title>{tip}</title></circle>'
        )
    for index, name in enumerate(families):
        colour = _COLOURS[index % len(_COLOURS)]
        parts.append(f'<text x="{_EDGE + 8}" y="{_EDGE + 16 * index}" fill="{colour}">{escape(name)}</text>')
    middle = _SIZE / 2
    parts += [
        f'<text x="{middle}" y="{_SIZE - 16}" text-anchor="middle">fastest, us</text>',
        f'<text x="16" y="{middle}" text-anchor="middle" transform="rotate(-90 16 {middle})">chosen, us</text>',
        "</svg>",
    ]
    return "\n".join(parts) + "\n"
