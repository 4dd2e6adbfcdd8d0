"""What models_cpu.py and models_h200.py share: how large an error may be, how ratios are summed up, options."""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any


def rounding(model: Any) -> float:
    """What the sums of all layers in fp32 may add to the error, as a part of the largest element."""
    import torch

    layers = [
        one.weight for one in model.modules() if isinstance(one, (torch.nn.Linear, torch.nn.modules.conv._ConvNd))
    ]
    return float(torch.finfo(torch.float32).eps) * sum(math.sqrt(weight[0].numel()) for weight in layers)


def times(seconds: Sequence[float]) -> dict[str, float]:
    return {"least": min(seconds), "median": statistics.median(seconds), "most": max(seconds)}


def ratios(theirs: Sequence[float], ours: Sequence[float]) -> dict[str, float]:
    """Their time over ours, round by round."""
    found = [one / other for one, other in zip(theirs, ours, strict=True)]
    low, middle, high = statistics.quantiles(found, n=4) if len(found) > 1 else found * 3
    return {"median": middle, "quartile_1": low, "quartile_3": high, "low": min(found), "high": max(found)}


def geometric_mean(values: Iterable[float]) -> float:
    return round(math.exp(statistics.fmean(math.log(one) for one in values)), 3)


def asked_for(text: str, known: Sequence[str], parser: argparse.ArgumentParser) -> list[str]:
    """Names with commas between; all where there is no text."""
    names = [one.strip() for one in text.split(",")] if text else list(known)
    for one in names:
        if one not in known:
            parser.error(f"{one!r} is none of {', '.join(known)}")
    return names


def shown(ratio: dict[str, Any]) -> str:
    return f"{ratio['median']:.2f} ({ratio['quartile_1']:.2f} to {ratio['quartile_3']:.2f})"
