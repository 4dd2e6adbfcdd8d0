"""CMake, g++ and an installed prefix are all that a user of C++ needs: the examples, in a chroot that has no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cpp import bare_machine, programs

WHY_NOT = programs.why_not() or bare_machine.why_not()

pytestmark = [pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "it can be had here"), pytest.mark.proof]


@pytest.mark.parametrize(
    ("examples", "wheel"),
    [
        (("gemm/01_basic", "end_to_end/01_inference_from_bundle"), False),
        (("gemm/01_basic",), True),
        pytest.param(tuple(bare_machine.NAMES), False, marks=pytest.mark.whole),
        pytest.param(tuple(bare_machine.NAMES), True, marks=pytest.mark.whole),
    ],
    ids=["two", "one of a wheel", "all", "all of a wheel"],
)
def test_examples_on_a_bare_machine(examples: tuple[str, ...], wheel: bool, tmp_path: Path) -> None:
    pytest.importorskip("pip" if wheel else "tilewright")
    bare_machine.attempt(examples, tmp_path, wheel=wheel)
