"""Convolutions of every pipeline, direction and number of dimensions against float64, on problems drawn by seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.gpu.torch_here import torch
from tilewright import ops
from tilewright.dispatch import kernels
from tilewright.ops.base import KernelSpec
from tilewright.ops.conv import ConvProblem, ConvSignature
from tilewright.ops.conv.problem_rules import problem_violations
from tilewright.ops.conv.spec import accumulator
from tilewright.runtime.bindings.conv import samples

CONV = ops.op("conv")
VARIANTS = ("forward", "backward_data", "backward_weight")
SEED, COUNT, EACH = 1115, 60, 3  # problems drawn for a signature, and how many of them a kernel is asked
MOST = 3e8  # operations of a problem: the reference is computed on the host


@dataclass(frozen=True)
class Case:
    variant: str
    spatial: int
    dtype: str = "bf16"
    epilogue: str = "PassThrough"
    num_d: int = 0

    @property
    def signature(self) -> ConvSignature:
        out = "int32" if self.dtype == "int8" else self.dtype
        return ConvSignature(
            self.variant, self.spatial, self.dtype, accumulator(self.dtype), out, out, self.epilogue, self.num_d
        )

    def specs(self, arch: str) -> list[KernelSpec]:
        """One in four of the default pool, and one of each pipeline."""
        axes = CONV.axes_of(self.signature)
        legal = [one for one in CONV.proposals("default", arch, **axes) if not CONV.check(one)]
        first = {one.schedule.pipeline: one for one in reversed(legal)}
        floor = CONV.generic_spec(self.signature, arch)
        return list({one.digest: one for one in (*first.values(), *legal[::4], floor)}.values())

    def problems(self) -> list[ConvProblem]:
        rng = random.Random(f"{SEED} {self}")
        found: list[ConvProblem] = []
        while len(found) < COUNT:
            one = drawn(rng, self)
            if not problem_violations(one) and one.flops < MOST:
                found.append(one)
        return found


def drawn(rng: random.Random, case: Case) -> ConvProblem:
    def each(*values: int) -> tuple[int, ...]:
        return tuple(rng.choice(values) for _ in range(case.spatial))

    kind = rng.choice(("dense", "dense", "grouped", "depthwise", "few"))
    groups = 1 if kind in ("dense", "few") else rng.choice((2, 4, 8, 32))
    channels, filters = groups * rng.choice((8, 16, 40, 64, 128)), groups * rng.choice((8, 16, 40, 64))
    if kind == "depthwise":
        groups = channels = filters = rng.choice((8, 24, 136))
    if kind == "few":
        channels = rng.choice((1, 3, 4))
    window = each(1, 3, 3, 5, 7) if rng.random() < 0.3 else (rng.choice((1, 3, 3, 5, 7)),) * case.spatial
    return ConvProblem(
        rng.choice((1, 2, 5)), channels, filters, each(5, 9, 14, 23), window, groups, each(1, 1, 1, 2), each(1, 1, 2),
        each(0, 1, 2, 3), each(0, 1, 2), case.variant, case.dtype, epilogue=case.epilogue, num_d=case.num_d,
        full_d=case.num_d // 2,
    )  # fmt: skip


def on_device(array: Any) -> Any:
    """A strided NumPy array of any element type, with its strides."""
    made = torch.empty_strided(
        array.shape, [one // array.itemsize for one in array.strides], dtype=_torch_type(array), device="cuda"
    )
    whole = np.ascontiguousarray(array).view({1: np.int8, 2: np.int16, 4: np.int32}[array.itemsize])
    made.copy_(torch.from_numpy(whole).view(made.dtype).reshape(array.shape))
    return made


def _torch_type(array: Any) -> Any:
    return {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(array.dtype.name) or getattr(
        torch, array.dtype.name
    )


def answer(kernel: Any, problem: ConvProblem, seed: int) -> str:
    made = samples.sample(problem, seed)
    tensors: list[Any] = [None if one is None else on_device(one) for one in made.operands]
    x, w, y, _bias, d0, d1, out = tensors
    first, second = {"forward": (x, w), "backward_data": (y, w), "backward_weight": (x, y)}[problem.variant]
    more = {} if problem.variant == "forward" else {"shape": tuple(out.shape)}
    kernel(
        first, second, out=out, ds=tuple(one for one in (d0, d1) if one is not None), stride=problem.stride,
        padding=tuple(zip(problem.before, problem.after, strict=True)), dilation=problem.dilation,
        groups=problem.groups, **more,
    )  # fmt: skip
    torch.cuda.synchronize()
    size = out.element_size()
    back = out.contiguous().view({1: torch.int8, 2: torch.int16, 4: torch.int32}[size]).cpu().numpy()
    result = back.view(made.operands[-1].dtype).reshape(out.shape)
    check = samples.judge(problem, made)(_with(made, result), (kernel.spec,))
    return "" if check.ok else check.detail


def _with(made: Any, result: Any) -> Any:
    from dataclasses import replace

    return replace(made, operands=(*made.operands[:-1], result))


CASES = [
    *(Case(variant, spatial) for variant in VARIANTS for spatial in (2, 3)),
    *(Case(variant, 2, "fp16") for variant in VARIANTS),
    Case("forward", 2, "int8"),
    *(Case(variant, 2, "fp32") for variant in VARIANTS),
    Case("forward", 2, "bf16", "Relu", 1),
    Case("forward", 3, "bf16", "Gelu", 2),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_pipeline(case: Case, arch: str) -> None:
    problems, found, ran = case.problems(), [], set()
    specs = case.specs(arch)
    kernels.build(specs)  # side by side
    for number, spec in enumerate(specs):
        kernel = kernels.kernel(spec)
        serving = [one for one in problems if not CONV.supports(spec, one)]
        serving.sort(key=lambda one: max(one.stride) == 1)  # the fewer, and the harder
        for one in (*serving[: EACH - 1], *serving[-1:]):
            ran.add(spec.schedule.pipeline)
            text = answer(kernel, one, number)
            if text:
                found.append(f"{spec.name} {one.describe()}: {text}")
    assert found == []
    assert "loops" in ran
    assert case.dtype == "fp32" or "tma_ws" in ran


@pytest.mark.parametrize("layout", ["channels_last", "channels_first"])
@pytest.mark.parametrize("groups", [1, 4, 32])
def test_calls_on_memory_of_either_order(layout: str, groups: int) -> None:
    """Through the public functions: D tensors of any shape that broadcasts, and all directions."""
    memory = torch.channels_last if layout == "channels_last" else torch.contiguous_format
    x, w = (torch.randn(shape, device="cuda") for shape in ((3, 64, 13, 1), (96, 64 // groups, 3, 1)))
    x, w = (one.bfloat16().to(memory_format=memory) for one in (x, w))
    exact = torch.nn.functional.conv2d(x.double(), w.double(), padding=(1, 0), groups=groups)
    how: Any = {"padding": (1, 0), "groups": groups, "layout": "nchw"}
    assert close(tw.conv(x, w, **how), exact)
    for shape in ((1, 96, 1, 1), (1, 1, 1, 1), (3, 1, 1, 1), (3, 96, 1, 1), (1, 96, 13, 1), (3, 96, 13, 1)):
        d = torch.randn(shape, device="cuda").bfloat16().to(memory_format=memory)
        assert close(tw.conv(x, w, ds=(d,), **how), exact + d.double()), shape
    y = torch.randn(exact.shape, device="cuda").bfloat16().to(memory_format=memory)
    x64, w64 = (one.double().requires_grad_() for one in (x, w))
    torch.nn.functional.conv2d(x64, w64, padding=(1, 0), groups=groups).backward(y.double())
    assert close(tw.conv_backward_data(y, w, tuple(x.shape), **how), x64.grad)
    assert close(tw.conv_backward_weight(x, y, tuple(w.shape), **how), w64.grad)


def close(found: Any, exact: Any) -> bool:
    return bool((found.double() - exact).abs().max() <= 2.0**-7 * exact.abs().max())
