"""Questions about problems: `GemmProblem`, `explain` and `select` with fields of any kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

import tilewright as tw
from tests.fuzz.memory import Shown
from tests.fuzz.running import Wrong
from tilewright.errors import InternalError, TilewrightError

SIZES = (
    8,
    1,
    0,
    7,
    64,
    -1,
    2**31,
    2**40,
    2**41,
    2**63,
    2**100,
    True,
    4.0,
    "4",
    None,
    np.int64(5),
    np.uint8(3),
    1j,
    [4],
)
TYPES = (
    "fp32",
    "fp16",
    "bf16",
    "fp8_e4m3",
    "fp8_e5m2",
    "int8",
    "int32",
    "tf32",
    "fp64",
    "float32",
    "",
    None,
    3,
    b"fp32",
)
FIELDS: dict[str, tuple[Any, ...]] = {
    "dtype_a": TYPES,
    "dtype_b": TYPES,
    "dtype_c": TYPES,
    "dtype_d": TYPES,
    "layout": ("rrr", "rcr", "crr", "ccr", "rrc", "r", "", "rxr", None, 5),
    "batch": SIZES,
    "epilogue": ("PassThrough", "Relu", "MultiDAdd", "relu", "nonsense", "", None),
    "num_d": (0, 1, 2, 3, -1, True, "1"),
    "beta": (False, True, 0, 1, "yes", None),
    "preshuffled": (False, True, 1),
    "a_stride": SIZES,
    "b_stride": SIZES,
    "c_stride": SIZES,
    "broadcast_a": (False, True),
    "broadcast_b": (False, True),
    "aligned": (True, False),
}
THREADS = (None, 1, 2, 0, 64, -1, True, 1.5, "2")
STRICT = (None, True, False, "no", 1)


@dataclass(frozen=True, repr=False)
class Question(Shown):
    sizes: tuple[Any, Any, Any]
    fields: tuple[tuple[str, Any], ...] = ()
    threads: Any = None
    strict: Any = None
    way: str = "explain"


@st.composite
def questions(draw: Any) -> Question:
    most = draw(st.sampled_from((4, 7, len(SIZES))))
    sizes = tuple(draw(st.sampled_from(SIZES[:most])) for _ in range(3))
    names = draw(st.lists(st.sampled_from(sorted(FIELDS)), max_size=4, unique=True))
    fields = tuple((name, draw(st.sampled_from(FIELDS[name]))) for name in names)
    usual = draw(st.booleans())
    threads, strict = (None, None) if usual else (draw(st.sampled_from(THREADS)), draw(st.sampled_from(STRICT)))
    return Question(sizes, fields, threads, strict, draw(st.sampled_from(("explain", "select", "run"))))


def ask(registry: Any, question: Question) -> None:
    """An answer that can be printed, or one clear error."""
    try:
        problem = tw.GemmProblem(*question.sizes, **dict(question.fields))
        text = problem.describe()
        if question.way == "explain":
            text += str(tw.explain(problem, threads=question.threads, strict=question.strict))
        elif question.way == "select":
            text += registry.select(problem, threads=question.threads, strict=question.strict).name
        assert text
    except InternalError as error:
        raise Wrong(f"a bug: {error}\n  {question!r}") from error
    except TilewrightError as error:
        if not (error.rule and error.remedy and str(error)):
            raise Wrong(f"an error without a rule or a remedy: {error}\n  {question!r}") from error
    except Exception as error:
        raise Wrong(f"a raw {type(error).__name__}: {error}\n  {question!r}") from error
