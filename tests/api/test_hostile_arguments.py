"""Every argument of every public call, fed what no call expects: one typed error, or a result."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import TilewrightError

pytestmark = pytest.mark.usefixtures("needs_compiler")


class Silent:
    """Nothing can be learned of it."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    __str__ = __repr__
    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    def __bool__(self) -> bool:
        raise RuntimeError("no truth")

    def __len__(self) -> int:
        raise RuntimeError("no length")


class Deceitful(Silent):
    """It says that it has everything, and raises when it is asked."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")

    def __index__(self) -> int:
        raise RuntimeError("no index")

    def __float__(self) -> float:
        raise RuntimeError("no float")

    def __iter__(self) -> Any:
        raise RuntimeError("no items")


class Text(str):
    """A text of the user's own."""

    __slots__ = ()

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


HOSTILE: dict[str, Any] = {
    "two ones": np.ones(2),
    "an array of nothing": np.zeros((0,)),
    "a matrix of truth": np.ones((2, 2), bool),
    "an array of no dimensions": np.array(3),
    "an array of objects": np.array([None, Silent()], dtype=object),
    "not a number": float("nan"),
    "infinity": float("inf"),
    "a huge number": 10**30,
    "a number below all": -(10**30),
    "a million digits": 10**10000,
    "a complex number": 1j,
    "truth": True,
    "text": "nonsense",
    "text with a NUL": "a\0b",
    "text that is no Unicode": "\udcff",
    "a text of the user's own": Text("nonsense"),
    "bytes": b"nonsense",
    "an empty tuple": (),
    "a tuple of nothing": (None, None),
    "a tuple of three": (np.ones(2), Silent(), "half"),
    "a deep tuple": ((((((1,),),),),),),
    "a list": [1, [2]],
    "a dict": {"a": 1},
    "a set": {1},
    "a function": len,
    "a type": int,
    "a structured type": np.dtype([("a", "f4")]),
    "silent": Silent(),
    "deceitful": Deceitful(),
}


def normal(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


X, W, Y = normal(1, 6, 6, 4), normal(8, 3, 3, 4), normal(1, 4, 4, 8)
QKV = normal(1, 2, 2, 8), normal(1, 3, 2, 8), normal(1, 3, 2, 8)
CACHE = normal(1, 8, 2, 8), normal(1, 8, 2, 8), normal(1, 1, 2, 8), normal(1, 1, 2, 8)
POOLS = normal(2, 4, 2, 8), normal(2, 4, 2, 8)
SEQLENS, TABLE = np.array([3], np.int32), np.array([[0, 1]], np.int32)

CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = {
    "gemm": (tw.gemm, (normal(3, 4), normal(4, 5)), {}),
    "gemm with c": (tw.gemm, (normal(3, 4), normal(4, 5), normal(3, 5)), {}),
    "matmul": (tw.matmul, (normal(3, 4), normal(4, 5)), {}),
    "pack": (tw.pack, (normal(4, 5),), {}),
    "conv": (tw.conv, (X, W), {}),
    "conv_backward_data": (tw.conv_backward_data, (Y, W, X.shape), {}),
    "conv_backward_weight": (tw.conv_backward_weight, (X, Y, W.shape), {}),
    "attention": (tw.attention, QKV, {}),
    "attention in pages": (tw.attention, (QKV[0], *POOLS), {"block_table": TABLE, "seqlens_k": SEQLENS}),
    "attention with dropout": (tw.attention, QKV, {"dropout_p": 0.5, "seed": 1}),
    "append_kv": (tw.append_kv, CACHE, {"cache_seqlens": SEQLENS}),
    "append_kv in pages": (tw.append_kv, (*POOLS, *CACHE[2:]), {"block_table": TABLE, "cache_seqlens": SEQLENS}),
    "explain": (tw.explain, (tw.GemmProblem(3, 4, 5),), {}),
    "to_device": (tw.to_device, (normal(3),), {}),
}


def parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return [one for one in inspect.signature(function).parameters.values() if one.kind is not one.VAR_KEYWORD]


LONG = ("attention in pages", "attention with dropout", "append_kv in pages")  # read as those without are


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.proof] * (name in LONG)) for name in CALLS])
def test_a_hostile_argument_is_one_typed_error(name: str) -> None:
    function, operands, keywords = CALLS[name]
    raw = []
    for index, parameter in enumerate(parameters(function)):
        for what, value in HOSTILE.items():
            given, named = list(operands), dict(keywords)
            if index < len(given):
                given[index] = value
            else:
                named[parameter.name] = value
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    function(*given, **named)
            except TilewrightError as error:
                str(error)
            except Exception as error:
                raw.append(f"{parameter.name} = {what}: {type(error).__name__}: {error}")
    assert not raw, "\n".join(raw)
