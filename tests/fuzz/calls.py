"""A whole call as plain data, and what it becomes: live operands and keywords."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tilewright as tw
from tests.fuzz import oddities
from tests.fuzz.libraries import torch
from tests.fuzz.memory import Array, Foreign, Junk, Live, Operand, Same, Shown, Strange, make_arrays
from tests.fuzz.oddities import ABSENT


@dataclass(frozen=True, repr=False)
class Pack(Shown):
    """B is packed first; `dtype_a` is a name of tilewright's, or wrong, `rows` the number of rows A will have."""

    dtype_a: Any = None
    rows: Any = 256


@dataclass(frozen=True, repr=False)
class Call(Shown):
    """Names stand for what `oddities` lists under them."""

    function: str  # gemm, matmul, run, kernel
    a: Operand
    b: Operand
    c: Operand | None = None
    ds: tuple[Operand, ...] = ()
    out: Operand | None = None
    alpha: str = ABSENT
    beta: str = ABSENT
    epilogue: str = ABSENT
    out_dtype: str = ABSENT
    math: str = ABSENT
    copy: str = ABSENT
    target: str = ABSENT
    ds_kind: str = "tuple"
    pack: Pack | None = None
    kernel: int = 0  # which of the session's, where one is called directly
    context: tuple[str, ...] = ()

    def operands(self) -> dict[str, Operand]:
        found: dict[str, Operand | None] = {"a": self.a, "b": self.b, "c": self.c, "out": self.out}
        found |= {f"ds[{index}]": one for index, one in enumerate(self.ds)}
        return {name: one for name, one in found.items() if one is not None}


@dataclass(frozen=True, repr=False)
class Example(Shown):
    """Calls one after another; `threads` of them at once where it is more than 1."""

    calls: tuple[Call, ...]
    threads: int = 1


@dataclass
class LiveCall:
    """A call whose operands were made."""

    call: Call
    lives: dict[str, Live]
    keywords: dict[str, Any] = field(default_factory=dict)

    def thing(self, name: str) -> Any:
        return self.lives[name].thing if name in self.lives else None


def make(call: Call) -> LiveCall | None:
    """None where an operand cannot be had of this PyTorch."""
    given = call.operands()
    lives = make_arrays({name: one for name, one in given.items() if isinstance(one, Array)})
    for live in lives.values():
        live.thing = oddities.thing_of(live)
    for name, one in given.items():
        if isinstance(one, Strange):
            lives[name] = Live(one, oddities.strange(one))
            if lives[name].thing is None:
                return None
        elif isinstance(one, Foreign):
            lives[name] = Live(one, oddities.foreign(one))
        elif isinstance(one, Junk):
            lives[name] = Live(one, oddities.junk(one))
    for name, one in given.items():
        if isinstance(one, Same):
            lives[name] = lives[one.of]
    made = LiveCall(call, lives)
    made.keywords = _keywords(made)
    return made


def _keywords(made: LiveCall) -> dict[str, Any]:
    call = made.call
    found: dict[str, Any] = {}
    for name in ("alpha", "beta"):
        if getattr(call, name) != ABSENT:
            found[name] = oddities.SCALARS[getattr(call, name)][0]()
    tables = {
        "epilogue": oddities.EPILOGUES,
        "out_dtype": oddities.OUT_DTYPES,
        "math": oddities.MATHS,
        "copy": oddities.COPIES,
    }
    for name, table in tables.items():
        if getattr(call, name) != ABSENT:
            found[name] = table[getattr(call, name)][0]
    if call.target != ABSENT:
        found["target"] = oddities.target(call.target)
    if call.ds or call.ds_kind != "tuple":
        things = tuple(made.thing(f"ds[{index}]") for index in range(len(call.ds)))
        found["ds"] = oddities.DS_KINDS[call.ds_kind](things)
    if call.out is not None:
        found["out"] = made.thing("out")
    return found


@contextlib.contextmanager
def _default_device(name: str) -> Iterator[None]:
    torch.set_default_device(name)
    try:
        yield
    finally:
        torch.set_default_device(None)


@contextlib.contextmanager
def _default_dtype() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


CONTEXTS: dict[str, Any] = {
    "one thread": lambda: tw.settings.override(threads=1),
    "two threads": lambda: tw.settings.override(threads=2),
    "strict": lambda: tw.settings.override(strict=True),
    "errors of NumPy": lambda: np.errstate(all="raise"),
}
if torch is not None:
    CONTEXTS |= {
        "no_grad": torch.no_grad,
        "inference_mode": torch.inference_mode,
        "meta by default": lambda: torch.device("meta"),
        "meta by default for all": lambda: _default_device("meta"),
        "float64 by default": _default_dtype,
    }
ONE_AT_A_TIME = ("meta by default for all", "float64 by default")  # of the whole process


@contextlib.contextmanager
def within(names: tuple[str, ...]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(CONTEXTS[name]())
        yield
