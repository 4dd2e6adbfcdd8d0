"""Words and numbers that attention and its gradients share: types, heads, windows, and how people write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

from tilewright.errors import ProblemError
from tilewright.ops.schedules import Schedule

Sizes = tuple[int, ...]
FLOATS = ("fp32", "fp16", "bf16")
MASKS = ("none", "window", "generic")  # generic: a window, and first keys that are seen from everywhere
BIASES = ("none", "tensor", "alibi")
ALIGNMENTS = ("top_left", "bottom_right")
MAX_SIZE = 1 << 31  # of one dimension: places are int32 in tables
MOST_WINDOW = 1 << 40  # beyond every key

# The heads kernels are made for; those of a problem are rounded up to one of them.
HEADS = (32, 64, 96, 128, 160, 192, 256, 512, 576)
MOST_HEAD = HEADS[-1]


class AttentionSchedule(Schedule, Protocol):
    """What the schedules of both have beyond `ops.schedules`: the families of signatures they are for."""

    serves: ClassVar[tuple[str, ...]]


def head_class(size: int) -> int:
    """The heads of the kernels that hold heads of a size; the size itself where none does."""
    return next((known for known in HEADS if known >= size), size)


def settle_window(problem: Any) -> None:
    """In `__post_init__` of a problem: what a window without a bound leaves unread has its default."""
    if problem.window_left < 0:
        if problem.sink_tokens > 0:
            object.__setattr__(problem, "sink_tokens", 0)
        if problem.window_right < 0:
            object.__setattr__(problem, "align", "top_left")


def fill_strides(problem: Any, operands: Sequence[str]) -> None:
    """Likewise: operands without strides are dense."""
    for name in operands:
        if not getattr(problem, f"{name}_strides"):
            object.__setattr__(problem, f"{name}_strides", problem.dense_strides(name))


def seen_pairs(rows: int, keys: int, align: str, left: int, right: int, sinks: int) -> int:
    """Pairs of one sequence and head, in closed form."""
    shift = keys - rows if align == "bottom_right" else 0

    def below(limit: int, cut: int) -> int:
        """Pairs with key < row + limit and key < cut: a staircase."""
        stairs = max(0, min(rows, cut - limit))  # rows above those that see all
        low, high = max(limit, 0), stairs - 1 + limit
        return (rows - stairs) * cut + ((low + high) * (high - low + 1) // 2 if high >= low else 0)

    upper = below(shift + right + 1, keys) if right >= 0 else rows * keys
    if left < 0:
        return upper
    return upper - below(shift - left, keys) + below(shift - left, min(sinks, keys))


def _wrong(name: str, value: object, remedy: str) -> ProblemError:
    return ProblemError(f"{name} is {value!r:.60}", rule="option-value", value=value, remedy=remedy)


def sizes(name: str, text: str) -> Sizes:
    if not text:
        return ()
    try:
        return tuple(int(extent) for extent in str(text).lower().split("x"))
    except ValueError:
        raise _wrong(name, text, "write whole numbers with an x between, such as 1x8x128x128") from None


def window(options: Mapping[str, Any]) -> dict[str, Any]:
    """Window and alignment of `--causal`, `--window` and `--align`; `--sink-tokens` without a window is refused."""
    bounds, tokens = _window(options), options.get("sink_tokens", 0)
    if tokens > 0 and bounds.get("window_left", -1) < 0:
        raise ProblemError(
            f"sink_tokens is {tokens} and no window bounds keys on the left: nothing reads it",
            rule="sink",
            value=tokens,
            remedy="leave --sink-tokens out, or give --window left,right",
        )
    return bounds


def _window(options: Mapping[str, Any]) -> dict[str, Any]:
    causal, text, align = options["causal"], options["window"], options["align"]
    if causal and causal not in (*ALIGNMENTS, "true"):
        raise _wrong("causal", causal, "use top_left or bottom_right")
    if causal and text:
        raise _wrong("window", text, "leave --causal out: 'left,0' is a causal window")
    if causal and causal != "true" and align not in ("", causal):
        raise _wrong("align", align, f"leave it out: --causal {causal} aligns the window")
    if causal:
        return {"window_right": 0, "align": align or ("top_left" if causal == "true" else causal)}
    if not text:
        return {"align": align or "top_left"}
    try:
        left, right = (int(bound) for bound in text.split(","))
    except ValueError:
        raise _wrong("window", text, "write two whole numbers, such as 128,0; -1 for no bound") from None
    return {"window_left": left, "window_right": right, "align": align or "top_left"}
