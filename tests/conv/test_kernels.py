"""Every pipeline of the CPU by itself: right in poisoned memory, and its check in C says what `supports` says."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.backends.cpu.gemm import catalog
from tests.built import Built
from tests.conv.conftest import CONV
from tests.conv.drawing import convolutions
from tests.conv.harness import gapped, prove
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv.problem import ConvProblem
from tilewright.ops.conv.problem_rules import problem_violations
from tilewright.ops.conv.spec import VARIANTS
from tilewright.runtime.bindings.conv.args import ConvArgs
from tilewright.runtime.bindings.conv.dense import sampled_ds, stage
from tilewright.runtime.loader import Kernel


def specs(level: str) -> tuple[KernelSpec, ...]:
    """One of each pipeline of a direction, and all floors."""
    one_of_each = [
        spec
        for variant, rank in (("forward", 2), ("backward_data", 3), ("backward_weight", 2))
        for spec in CONV.proposals("tiny", level, variants=(variant,), spatial=(rank,), datatypes=("fp32",))
    ]
    axes = {"variants": VARIANTS, "spatial": (2, 3), "datatypes": ("fp32",)}
    plain = dict.fromkeys(one.signature for one in CONV.proposals("default", level, **axes))
    return tuple(dict.fromkeys([*one_of_each, *(CONV.fallback_spec(one, level) for one in (*plain, FUSED))]))


FUSED = ConvProblem(1, 1, 1, (1, 1), (1, 1), epilogue="Relu", num_d=2).signature
KERNELS = specs(catalog.plain())


@pytest.fixture(scope="module")
def kernels(built: Built) -> dict[KernelSpec, Kernel]:
    return {one: built[one] for one in KERNELS}


def served(problem: ConvProblem) -> list[KernelSpec]:
    return [one for one in KERNELS if one.signature == problem.signature and not CONV.supports(one, problem)]


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(convolutions(), st.integers(0, 3), st.integers(0, 2))
def test_a_kernel_is_right_and_stays_in_its_memory(
    kernels: dict[KernelSpec, Kernel], problem: ConvProblem, seed: int, gap: int
) -> None:
    for one in (problem, gapped(problem, gap)):
        found = served(one)
        assert found, "the floor takes everything"
        for spec in found:
            prove(kernels[spec], one, seed, threads=1 + seed % 2)


@pytest.mark.parametrize("full_d", [0, 1, 2])
def test_d_tensors_and_the_activation(kernels: dict[KernelSpec, Kernel], full_d: int) -> None:
    p = ConvProblem(2, 6, 20, (7, 5), (3, 3), 2, (2, 1), before=(1, 1), epilogue="Relu", num_d=2, full_d=full_d)
    for one in (p, gapped(p)):
        assert served(one)
        for spec in served(one):
            prove(kernels[spec], one, full_d)


# -- checks --------------------------------------------------------------------------------------------------------


def _check(kernel: Kernel, args: ConvArgs) -> tuple[int, str]:
    why = ctypes.create_string_buffer(200)
    code = int(kernel._check(ctypes.addressof(args), why, 200))
    return code, why.value.decode()


def _args(problem: ConvProblem) -> ConvArgs:
    args = stage(problem, sampled_ds(problem)).args
    args.x = args.w = args.y = 1 << 20
    for index in range(problem.num_d):
        args.d[index] = 1 << 20
    made: ConvArgs = args  # type: ignore[assignment]
    return made


# What Python calls wrong and C cannot see: it is told the result's sizes, and no padding behind the last pixel.
UNSEEN = ("size-huge", "groups-divide", "stride-overlap")
changes = st.sampled_from(["batch", "channels", "filters", "size", "window", "stride", "dilation", "before"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(convolutions(), changes, st.sampled_from([-1, 0, 1, 2, 40, 73, 1 << 33]), st.integers(0, 2))
def test_c_and_python_agree(
    kernels: dict[KernelSpec, Kernel], problem: ConvProblem, field: str, value: int, place: int
) -> None:
    old = getattr(problem, field)
    if isinstance(old, tuple):
        place %= len(old)
        new: Any = (*old[:place], value, *old[place + 1 :])
    else:
        new = value * problem.groups if field != "batch" else value
    changed = replace(problem, **{field: new}, x_strides=(), w_strides=(), y_strides=())
    broken = [one for one in problem_violations(changed) if one.rule not in UNSEEN]
    for spec, kernel in kernels.items():
        if spec.signature != changed.signature:
            continue
        code, sentence = _check(kernel, _args(changed))
        python = broken or CONV.supports(spec, changed)
        assert (code == 0) == (not python), (spec.name, sentence, python, changed)
        assert (sentence == "") == (code == 0)
        assert not broken or code == 1


FAR = 1 << 40
BEYOND = (
    ConvProblem(2, 4, 6, (8, 8), (3, 3), stride=(FAR, 10_000)),
    ConvProblem(1, 3, 5, (8,), (3,), before=(1,), stride=(FAR,)),
    ConvProblem(1, 4, 4, (6, 5), (1, 2), 4, dilation=(FAR, 300), before=(0, 296), stride=(1, 100)),
    ConvProblem(1, 8, 4, (5, 5), (2, 3), before=(FAR, 1), stride=(FAR - 1, 1), dilation=(FAR, 1)),
    ConvProblem(1, 3, 4, (3, 5, 4), (1, 3, 2), stride=(10_000, FAR, FAR)),
    ConvProblem(1, 2, 2, (3, 4, 4), (2, 1, 1), after=(FAR, 0, 0), before=(0, 0, 0), stride=(FAR, 3, 900)),
)


@pytest.mark.parametrize("problem", BEYOND)
@pytest.mark.parametrize("variant", VARIANTS)
def test_steps_and_padding_far_beyond_the_input(
    kernels: dict[KernelSpec, Kernel], problem: ConvProblem, variant: str
) -> None:
    """Nothing is laid out by how far they reach: such calls once ended the process."""
    p = replace(problem, variant=variant)
    assert served(p)
    for spec in served(p):
        assert kernels[spec].workspace_bytes(_args(p), 2) < 1 << 24, spec.name
        prove(kernels[spec], p, 0)


FLOOR = CONV.fallback_spec(ConvProblem(1, 1, 1, (1, 1), (1, 1)).signature, catalog.plain())


@pytest.mark.parametrize(
    ("field", "value", "code", "sentence"),
    [
        ("batch", 0, 0, ""),
        ("batch", -1, 1, "the batch is negative"),
        ("groups", 0, 1, "there is no group, or no channel or filter in it"),
        ("channels", 0, 1, "there is no group, or no channel or filter in it"),
        ("filters", -3, 1, "there is no group, or no channel or filter in it"),
        ("size", (1, 0, 5), 1, "a spatial size is below 1"),
        ("window", (1, 3, 0), 1, "a spatial size is below 1"),
        ("out", (1, -1, 3), 1, "a spatial size is below 1"),
        ("stride", (1, 0, 1), 1, "a stride or dilation of the window is below 1"),
        ("dilation", (1, 1, -1), 1, "a stride or dilation of the window is below 1"),
        ("before", (0, -1, 0), 1, "the padding is negative"),
        ("size", (2, 5, 5), 3, "the kernel has two spatial dimensions, and the depth of the problem is not 1"),
        ("before", (1, 0, 0), 3, "the kernel has two spatial dimensions, and the depth of the problem is not 1"),
    ],
)
def test_every_sentence(built: Built, field: str, value: Any, code: int, sentence: str) -> None:
    args = _args(ConvProblem(2, 4, 4, (5, 5), (3, 3)))
    if isinstance(value, tuple):
        getattr(args, field)[:] = value
    else:
        setattr(args, field, value)
    assert _check(built[FLOOR], args) == (code, sentence)


def test_a_d_tensor_that_is_not_there_is_seen(built: Built) -> None:
    p = ConvProblem(2, 4, 4, (5, 5), (3, 3), epilogue="Relu", num_d=2)
    args = _args(p)
    args.d[1] = None
    kernel = built[CONV.fallback_spec(p.signature, catalog.plain())]
    assert _check(kernel, args) == (1, "a D tensor is null")
    args.batch = 0
    assert _check(kernel, args) == (0, "")


def test_a_kernel_that_skips_an_element_is_found(built: Built) -> None:
    """The harness can fail: a result nobody wrote is poison."""
    p = ConvProblem(1, 2, 2, (3, 3), (1, 1))

    class Lazy:
        """The floor, told of one pixel less."""

        def __init__(self, kernel: Kernel) -> None:
            self._kernel = kernel

        def __getattr__(self, name: str) -> Any:
            return getattr(self._kernel, name)

        def launch(self, args: int, workspace: int, stream: int) -> int:
            told = ConvArgs.from_address(args)
            told.out[2] -= 1
            return int(self._kernel.launch(args, workspace, stream))

    lazy: Any = Lazy(built[FLOOR])
    with pytest.raises(AssertionError, match="expected"):
        prove(lazy, p)
