"""What the fuzzer found, each as the shortest call that shows it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import tilewright as tw
from tests.fuzz.oddities import Raises
from tilewright.errors import ProblemError, TilewrightError

F32 = np.float32
A, B = np.ones((4, 6), F32), np.ones((6, 5), F32)


def refused(rule: str, call: Any, kind: type[TilewrightError] = ProblemError) -> TilewrightError:
    with pytest.raises(kind) as caught:
        call()
    assert caught.value.rule == rule, str(caught.value)
    assert caught.value.remedy
    return caught.value


class OddShape:
    shape = 3


@pytest.mark.parametrize(
    "value",
    [-(10**5000), 10**400, np.str_("2"), np.array("2"), np.bytes_(b"2"), np.timedelta64(2, "s"), np.array(2, "m8[s]"),
     np.array(True, object), np.array(None, object), np.void(b"\0\0\0\0"), OddShape(), Raises(),
     torch.empty((), device="meta")],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_scalars_that_float_takes_or_that_cannot_be_printed(value: Any) -> None:
    refused("scalar", lambda: tw.gemm(A, B, alpha=value))
    refused("scalar", lambda: tw.gemm(A, B, np.ones((4, 5), F32), beta=value))


def test_the_gradient_of_a_scalar_is_not_lost() -> None:
    alpha = torch.tensor(2.0, requires_grad=True)
    assert "detach" in refused("array-grad", lambda: tw.gemm(A, B, alpha=alpha)).remedy
    with torch.no_grad():
        assert (tw.gemm(A, B, alpha=alpha) == 12).all()
    assert (tw.gemm(A, B, alpha=alpha.detach()) == 12).all()
    assert (tw.gemm(A, B, alpha=np.array(2.0, object)) == 12).all()
