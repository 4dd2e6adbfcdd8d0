"""NaN and infinity go where the reference says: padding must neither make nor hide one."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.backends.cpu.gemm import catalog
from tests.backends.cpu.gemm.harness import Array, Call, Values, ordinary, prove
from tests.backends.cpu.gemm.shapes import calls
from tests.built import Built
from tilewright.runtime.numpy_types import numpy_dtype

KERNELS = tuple(catalog.core().values())
FLOATS = tuple(name for name, one in catalog.core().items() if one.signature.dtype_acc == "fp32")


def _sprinkled(special: tuple[float, ...], zeros: float) -> Values:
    def values(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
        made = ordinary(rng, shape, dtype).astype(np.float32)
        made[rng.random(shape) < zeros] = 0.0
        if made.size:
            # A corner and a random place: edges are where padding is near.
            for place in (made.size - 1, int(rng.integers(made.size))):
                if rng.random() < 0.5:
                    made.flat[place] = special[int(rng.integers(len(special)))]
        with np.errstate(invalid="ignore", over="ignore"):
            return made.astype(numpy_dtype(dtype))

    return values


SPECIALS = {"nan": (np.nan,), "inf": (np.inf, -np.inf), "all": (np.nan, np.inf, -np.inf)}


@pytest.mark.parametrize("special", list(SPECIALS.values()), ids=list(SPECIALS))
@pytest.mark.parametrize("name", FLOATS)
def test_like_the_reference(built: Built, name: str, special: tuple[float, ...]) -> None:
    spec = catalog.core()[name]
    for zeros in (0.0, 0.4):
        for call in calls(spec, seed=77):
            prove(built[spec], call, values=_sprinkled(special, zeros))


class OneInfinity:
    """Positive numbers, and one infinity in A, which is asked for first."""

    def __init__(self, line: int, place: int) -> None:
        self.line, self.place, self.first = line, place, True

    def __call__(self, rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
        made = np.abs(ordinary(rng, shape, dtype).astype(np.float32)) + 0.125
        if self.first:
            made[0, self.line, self.place] = np.inf
        self.first = False
        return made.astype(numpy_dtype(dtype))


@pytest.mark.parametrize("name", [one for one in FLOATS if catalog.core()[one].signature.dtype_a != "fp8_e4m3"])
def test_one_infinity_touches_its_row_alone(built: Built, name: str) -> None:
    """Said without the reference: A has one infinity, so one row is not finite and no NaN appears."""
    spec, rng = catalog.core()[name], random.Random(name)
    for call in calls(spec, seed=78):
        p = call.problem
        if 0 in (p.m, p.n, p.k) or p.batch != 1 or p.beta or call.alpha == 0:
            continue
        row, at = rng.randrange(p.m), rng.randrange(p.k)
        values = OneInfinity(row, at) if p.layout[0] == "r" else OneInfinity(at, row)
        result = prove(built[spec], Call(p, alpha=call.alpha, gap=call.gap), values=values).result[0]
        finite = np.isfinite(result.astype(np.float32))
        assert not finite[row].any()
        assert finite[np.arange(p.m) != row].all()
        assert not np.isnan(result.astype(np.float32)).any()
