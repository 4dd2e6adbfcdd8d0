"""What makes a convolution one that some kernel can compute, on whatever target."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from tilewright.errors import counted, nearest
from tilewright.ops.base import Violation
from tilewright.ops.conv.problem import ConvProblem, Sizes
from tilewright.ops.conv.spec import INPUTS, VARIANTS
from tilewright.ops.fused import epilogue_violations
from tilewright.ops.spans import MAX_SPAN, too_far, written_apart

MAX_SIZE = 1 << 40  # of one dimension
_SPLIT = "split the problem"
# What would work in the place of a number that no split makes smaller.
_SMALLER = {
    "stride": "use one no longer than the padded input: from there on a line has one output",
    "dilation": "use a smaller one: the window must fit the padded input",
    "padding": "use less: what is padded is read as zeros, and adds nothing",
}

AXES = {1: ("width",), 2: ("height", "width"), 3: ("depth", "height", "width")}


def problem_violations(problem: ConvProblem) -> list[Violation]:
    """Every rule that is broken; those on numbers only where the numbers are there."""
    if _plain(problem):
        return []
    violations = [*_names(problem), *_ranks(problem)]
    if not violations:
        violations = list(_sizes(problem))
    if not violations:
        violations = [*_groups(problem), *_windows(problem)]
    if not violations:
        violations = list(_spans(problem))
    return violations


def _plain(p: ConvProblem) -> bool:
    """Whether it surely breaks no rule: of dense operands that is quickly known, and most calls are such."""
    size, window, stride, dilation, before, after = p.size, p.window, p.stride, p.dilation, p.before, p.after
    count = len(size)
    if count not in AXES or not count == len(window) == len(stride) == len(dilation) == len(before) == len(after):
        return False
    sizes = (p.channels, p.filters, p.groups, *size, *window, *stride, *dilation)
    if min(sizes) < 1 or min(p.batch, *before, *after) < 0 or max(p.batch, *sizes, *before, *after) > MAX_SIZE:
        return False
    if p.channels % p.groups or p.filters % p.groups or 0 in p.out or not p.lies_dense:
        return False
    largest = max(p.x_strides[0], p.y_strides[0]) * max(1, p.batch), p.w_strides[0] * p.filters
    return max(largest) < MAX_SPAN and not _broken_names(p.variant, p.dtype, p.epilogue, p.num_d, p.full_d)


def _names(p: ConvProblem) -> Iterator[Violation]:
    yield from _broken_names(p.variant, p.dtype, p.epilogue, p.num_d, p.full_d)


@lru_cache(maxsize=4096)
def _broken_names(variant: str, dtype: str, epilogue: str, num_d: int, full_d: int) -> tuple[Violation, ...]:
    """Few problems differ in these."""
    return tuple(_name_rules(variant, dtype, epilogue, num_d, full_d))


def _name_rules(variant: str, dtype: str, epilogue: str, num_d: int, full_d: int) -> Iterator[Violation]:
    if variant not in VARIANTS:
        yield Violation("variant-name", f"variant {variant!r} is not known", nearest(variant, list(VARIANTS)))
    if dtype not in INPUTS:
        yield Violation("dtype-input", f"{dtype} is not an input type", f"use {', '.join(INPUTS)}")
    yield from epilogue_violations(epilogue, num_d)
    if variant != "forward" and (epilogue != "PassThrough" or num_d):
        yield Violation(
            "fused-backward",
            f"{variant} with {epilogue} and {num_d} D tensors: only forward has a fused epilogue",
            "use PassThrough, and apply the epilogue separately",
        )
    if not 0 <= full_d <= num_d:
        yield Violation("full-d", f"{full_d} of {num_d} D tensors are as large as y", f"use 0 to {num_d}")


def _ranks(p: ConvProblem) -> Iterator[Violation]:
    count = len(p.size)
    if count not in AXES:
        yield Violation("spatial-rank", f"{count} spatial dimensions", "use 1, 2 or 3")
        return
    for name in ("window", "stride", "dilation", "before", "after"):
        if len(getattr(p, name)) != count:
            message = f"{name} has {counted(len(getattr(p, name)), 'number')}, and there are {count} spatial dimensions"
            yield Violation("spatial-rank", message, f"give {count}")
    for name in "xwy":
        strides: Sizes = getattr(p, f"{name}_strides")
        if len(strides) != count + 2:
            yield Violation("stride-rank", f"{name} has {len(strides)} strides", f"give {count + 2}, or none if dense")


def _sizes(p: ConvProblem) -> Iterator[Violation]:
    if p.batch < 0:
        yield Violation("size-negative", f"the batch is {p.batch}", "use 0 or more")
    named = [("channels", p.channels), ("filters", p.filters), ("groups", p.groups)]
    for what, sizes in (("input", p.size), ("window", p.window), ("stride", p.stride), ("dilation", p.dilation)):
        named += [(f"{what} {axis}", size) for axis, size in zip(AXES[len(p.size)], sizes, strict=True)]
    for what, size in named:
        if size < 1:
            yield Violation("size-positive", f"{what} is {size}", "use 1 or more")
    for what, sizes in (("before", p.before), ("after", p.after)):
        for axis, size in zip(AXES[len(p.size)], sizes, strict=True):
            if size < 0:
                yield Violation("padding-negative", f"padding {what} of {axis} is {size}", "use 0 or more, and slice x")
            named.append((f"padding {what} of {axis}", size))
    for what, size in (("batch", p.batch), *named):
        if size > MAX_SIZE:
            yield Violation("size-huge", f"{what} is {size}, over {MAX_SIZE}", _SMALLER.get(what.split()[0], _SPLIT))


def _groups(p: ConvProblem) -> Iterator[Violation]:
    for what, size in (("channels", p.channels), ("filters", p.filters)):
        if size % p.groups:
            below = size // p.groups * p.groups
            yield Violation(
                "groups-divide",
                f"{size} {what} are not a multiple of {p.groups} groups",
                f"use {below or p.groups} or {below + p.groups} {what}, or a divisor of {size} as groups",
            )


def _windows(p: ConvProblem) -> Iterator[Violation]:
    for i, axis in enumerate(AXES[len(p.size)]):
        reach, there = (p.window[i] - 1) * p.dilation[i] + 1, p.size[i] + p.before[i] + p.after[i]
        if reach > there:
            yield Violation(
                "window-fits",
                f"the filter spans {reach} pixels of {axis}, and the padded input has {there}: there is no output",
                f"pad by {reach - there} more, or use a smaller filter or dilation",
            )


def _spans(p: ConvProblem) -> Iterator[Violation]:
    for name, shape, strides in (
        ("x", p.x_shape, p.x_strides),
        ("w", p.w_shape, p.w_strides),
        ("y", p.y_shape, p.y_strides),
    ):
        yield from too_far(name, shape, strides)
    written, shape, strides = {
        "forward": ("y", p.y_shape, p.y_strides),
        "backward_data": ("x", p.x_shape, p.x_strides),
        "backward_weight": ("w", p.w_shape, p.w_strides),
    }[p.variant]
    yield from written_apart(written, shape, strides)
