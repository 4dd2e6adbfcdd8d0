"""The check inside a built GPU kernel and `legality.supports` say the same, as those of the CPU's kernels do.

The host's half of each kernel is compiled by itself, so no GPU compiler is needed.
"""

from __future__ import annotations

import ctypes
import math
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.backends.cuda.gemm import names as nvidia
from tests.runtime import hosted
from tilewright import ops
from tilewright.arch import arch
from tilewright.backends.base import backend
from tilewright.backends.hip.gemm.ck_tile import CkTileSchedule
from tilewright.dtypes import DTYPES
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm import GemmProblem
from tilewright.ops.gemm.problem import problem_violations
from tilewright.ops.gemm.spec import GemmSignature
from tilewright.runtime.bindings.gemm.dense import dense
from tilewright.runtime.loader import Kernel

GEMM = ops.op("gemm")
FAR = 1 << 20  # an address with room for misalignment


def signature(dtype: str = "bf16", output: str = "bf16", layout: str = "rcr", **more: Any) -> GemmSignature:
    acc = "int32" if dtype == "int8" else "fp32"
    fields = {"variant": "standard", "dtype_d": output, **more}
    return GemmSignature(dtype_a=dtype, dtype_b=dtype, dtype_acc=acc, dtype_c=output, layout=layout, **fields)


def fused(dtype: str, output: str, layout: str = "rcr") -> GemmSignature:
    return signature(dtype, output, layout, variant="multi_d", epilogue="MultiDAdd", num_d=2)


def _cuda() -> list[KernelSpec]:
    made = []
    for one in (signature(), signature("fp16", "fp32", "crr"), fused("bf16", "bf16", "rrr")):
        schedules = [
            nvidia.tma_ws(one, 128, 128, 4, (1, 1)),
            nvidia.tma_ws(one, 128, 64, 4, (1, 1), store="direct"),
            nvidia.tma_ws(one, 64, 64, 4, (1, 1), nvidia.WAYS["pingpong_stream_k"], "direct"),
            nvidia.skinny(1, 1, 4),
            nvidia.skinny(2, 1, 4, "n"),
            nvidia.fallback_schedule(one, arch("sm_90a")),
            *nvidia.multistage_tests(one, arch("sm_90a"))[:4],
        ]
        made += [KernelSpec("gemm", one, schedule, "sm_90a") for schedule in schedules]
    packed = signature(variant="preshuffle")
    made.append(KernelSpec("gemm", packed, nvidia.tma_ws(packed, 128, 128, 4, (1, 1)), "sm_90a"))
    made.append(KernelSpec("gemm", packed, nvidia.tma_ws(packed, 128, 64, 4, (1, 1), store="direct"), "sm_90a"))
    fp8, ints = signature("fp8_e4m3", "fp32"), signature("int8", "int32", "ccr")
    made.append(KernelSpec("gemm", fp8, nvidia.tma_ws(fp8, 128, 128, 4, (1, 1), store="direct"), "sm_90a"))
    made += [KernelSpec("gemm", ints, one, "sm_80") for one in nvidia.multistage_tests(ints, arch("sm_80"))[:2]]
    return [spec for spec in made if not GEMM.check(spec)]


def _hip() -> list[KernelSpec]:
    found: dict[Any, KernelSpec] = {}
    axes = (
        signature("fp16", "fp16"),
        signature("bf16", "bf16", "crr"),
        signature("int8", "int32"),
        signature("fp8_e4m3fnuz", "fp32", "rrr"),
        fused("fp16", "fp16", "ccr"),
        signature("fp16", "fp16", variant="preshuffle"),
    )
    for one in axes:
        axes_of = {"datatypes": (one.dtype_a,), "layouts": (one.layout,), "variants": (one.variant,)}
        for spec in GEMM.proposals("tests", "gfx942", **axes_of):
            mine = replace(spec, signature=one)
            h = spec.schedule
            kind = (one, h.pipeline, *((h.store, h.pad, h.split_k > 1) if isinstance(h, CkTileSchedule) else ()))
            if kind not in found and not GEMM.check(mine):
                found[kind] = mine
    return list(found.values())


CUDA, HIP = _cuda(), _hip()


@pytest.fixture(scope="module")
def cuda_kernels(tmp_path_factory: pytest.TempPathFactory) -> list[Kernel]:
    return hosted.cuda_kernels(CUDA, tmp_path_factory.mktemp("cuda"))


@pytest.fixture(scope="module")
def hip_kernels(tmp_path_factory: pytest.TempPathFactory) -> list[Kernel]:
    return hosted.hip_kernels(HIP, tmp_path_factory.mktemp("hip"))


sizes = st.one_of(
    st.integers(-1, 70),
    st.sampled_from([0, 1, 8, 16, 32, 64, 96, 128, 192, 256, 512, 1024, 4096]),
    st.sampled_from([2**16, 2**20, 2**29 - 8, 2**29, 2**31 - 64, 2**31, 2**33]),
)
tiles = st.sampled_from([0, 16, 32, 64, 128, 256, 512, 1024, 2048])
eights = st.integers(1, 40).map(lambda count: 8 * count)
fitting = st.one_of(tiles, tiles, eights)
small = st.integers(0, 16)


@st.composite
def problems(draw: st.DrawFn, one: GemmSignature) -> GemmProblem:
    """Sizes that often fit, strides that often are dense, a batch that mostly is one."""
    m, n, k = (draw(st.one_of(small, sizes, fitting, fitting)) for _ in range(3))
    made = GemmProblem(
        m=m,
        n=n,
        k=k,
        dtype_a=one.dtype_a,
        dtype_b=one.dtype_b,
        dtype_c=one.dtype_c,
        dtype_d=one.dtype_d if one.num_d else "",
        layout=one.layout,
        batch=draw(st.sampled_from([1, 1, 1, 0, 2, 3, 65535, 65536, 70000])),
        epilogue=one.epilogue,
        num_d=one.num_d,
        beta=draw(st.sampled_from([False, False, False, True])),
        preshuffled=one.variant == "preshuffle",
        aligned=draw(st.sampled_from([True, True, False])),
    )
    more = st.sampled_from([0, 0, 0, 0, 1, 4, 8, 16, 64, -1])
    strides = [max(1, value + draw(more)) for value in (made.a_stride, made.b_stride, made.c_stride)]
    if draw(st.booleans()):
        strides = [-(-value // 64) * 64 for value in strides]
    made = replace(made, a_stride=strides[0], b_stride=strides[1], c_stride=strides[2])
    return replace(made, aligned=made.aligned and made.batch_aligned)


def arguments(problem: GemmProblem, off: int, of_d: str) -> Any:
    """The struct of the problem; an unaligned one has an operand that is off by one element (A, B, or E)."""
    args = dense(problem).stages[0].args
    args.a = args.b = args.e = FAR
    args.alpha = 1.0
    if problem.beta:
        args.c, args.beta = FAR, 1.0
    for letter in problem.unaligned:
        name, dtype = {"a": ("a", problem.dtype_a), "b": ("b", problem.dtype_b), "c": ("e", problem.dtype_c)}[letter]
        setattr(args, name, FAR + DTYPES[dtype].bytes)
    if not problem.aligned and not problem.unaligned:
        of_b = ("a", problem.dtype_a) if problem.preshuffled else ("b", problem.dtype_b)  # what we pack is aligned
        name, dtype = (("a", problem.dtype_a), of_b, ("e", problem.dtype_c))[off]
        setattr(args, name, FAR + DTYPES[dtype].bytes)
    for index in range(problem.num_d):
        args.d[index] = FAR
        args.d_row_stride[index] = 0  # a row for all rows: fits everywhere
        args.d_batch_stride[index] = 0
    if problem.num_d:
        if of_d == "column":
            args.d_col_stride[0] = 0
        elif of_d == "address":
            args.d[0] = FAR + DTYPES[problem.dtype_d].bytes
        elif of_d == "stride":
            args.d_row_stride[0] = 1
    return args


def one_of(kernels: list[Kernel]) -> st.SearchStrategy[Kernel]:
    """Pipelines alike, however many kernels each has."""
    by_pipeline: dict[str, list[Kernel]] = {}
    for kernel in kernels:
        by_pipeline.setdefault(kernel.spec.schedule.pipeline, []).append(kernel)
    return st.sampled_from(list(by_pipeline.values())).flatmap(st.sampled_from)


def agree(kernel: Kernel, problem: GemmProblem, off: int, of_d: str) -> None:
    broken = problem_violations(problem)
    if any(one.rule in ("size-huge", "stride-huge") for one in broken):
        return  # no kernel is asked
    python = broken or GEMM.supports(kernel.spec, problem)
    if problem.preshuffled and not problem.k:  # nothing is packed then, and kernels for B as it is are asked
        assert python, f"{kernel.name} would be given a B without k, {problem}"
        return
    said = kernel.refusal(arguments(problem, off, of_d))
    if said:
        assert python, f"{kernel.name} refuses what Python would give it, {problem}: {said}"
    elif problem.aligned:
        assert not python, f"{kernel.name} takes what Python would not give it, {problem}: {python}"
    # Of an unaligned problem Python does not know which operand is off, and by how much: it may refuse too much.


@settings(deadline=None, max_examples=250)
@given(st.data())
def test_cuda_kernels_and_python_agree(cuda_kernels: list[Kernel], data: st.DataObject) -> None:
    kernel = data.draw(one_of(cuda_kernels), "kernel")
    problem = data.draw(problems(kernel.spec.signature), "problem")
    agree(
        kernel,
        problem,
        data.draw(st.integers(0, 2)),
        data.draw(st.sampled_from(["row", "column", "address", "stride"])),
    )


@settings(deadline=None, max_examples=250)
@given(st.data())
def test_hip_kernels_and_python_agree(hip_kernels: list[Kernel], data: st.DataObject) -> None:
    kernel = data.draw(one_of(hip_kernels), "kernel")
    problem = data.draw(problems(kernel.spec.signature), "problem")
    agree(
        kernel,
        problem,
        data.draw(st.integers(0, 2)),
        data.draw(st.sampled_from(["row", "column", "address", "stride"])),
    )


def _drawn_for(r: random.Random, one: GemmSignature) -> GemmProblem:
    """A problem of a signature: sizes that often fit, some strides that do not lie dense, one in five unaligned."""
    fused: dict[str, Any] = {"epilogue": one.epilogue, "num_d": one.num_d, "dtype_d": one.dtype_d if one.num_d else ""}
    m, n, k = (r.choice((0, 1, 8, 16, 64, 128, 256, 2048, r.randrange(1, 300), r.randrange(1, 1 << 33))) for _ in "mnk")
    made = GemmProblem(
        m, n, k, one.dtype_a, one.dtype_b, one.dtype_c, layout=one.layout, batch=r.choice((1, 1, 1, 2, 3, 70000)),
        beta=r.random() < 0.2, preshuffled=one.variant == "preshuffle", aligned=r.random() < 0.8, **fused,
    )  # fmt: skip
    wider = {f"{name}_stride": getattr(made, f"{name}_stride") + r.choice((0, 0, 1, 4, 8, 64)) for name in "abc"}
    made = replace(made, **(wider if r.random() < 0.5 else {}))
    if made.batch_aligned and not made.preshuffled and r.random() < 0.3:
        return replace(made, unaligned=r.choice(("a", "b", "c", "ab", "ac", "bc")))
    return replace(made, aligned=made.aligned and made.batch_aligned)


# Of 20,000 problems, drawn for kernels of every family and arch here.
@pytest.mark.parametrize("count", [2000, pytest.param(20000, marks=pytest.mark.proof)])
def test_selection_says_what_the_kernel_says_word_for_word(cuda_kernels: list[Kernel], count: int) -> None:
    said: set[str] = set()
    r, served = random.Random(f"checks {count}"), 0
    for _ in range(count):
        kernel = r.choice(cuda_kernels)
        problem = _drawn_for(r, kernel.spec.signature)
        if problem_violations(problem) or (problem.preshuffled and not problem.k):
            continue
        refused = GEMM.supports(kernel.spec, problem)
        answer = kernel.refusal(arguments(problem, r.randrange(3), "row")).partition(": ")[2]
        if not problem.aligned and not problem.unaligned and [one.rule for one in refused] == ["nv-alignment"]:
            continue  # the kernel sees which operand is off, and may take it or have another reason
        assert answer == (refused[0].message if refused else ""), (kernel.name, problem)
        said.update(one.rule for one in refused)
        served += not refused
        seconds = backend("cuda").estimate(kernel.spec, problem, 1)
        assert 0 < seconds < math.inf, (kernel.name, problem)
    assert served > count // 10
    assert said >= {"nv-empty-k", "nv-size", "nv-alignment", "nv-skinny-size"}


@pytest.mark.parametrize("which", ["cuda", "hip"])
def test_both_sides_are_seen(which: str, request: pytest.FixtureRequest) -> None:
    """Every kernel takes a problem of whole tiles, and those with limits refuse one: neither answer is constant."""
    kernels: list[Kernel] = request.getfixturevalue(f"{which}_kernels")
    assert len(kernels) > 10
    assert {one.spec.signature.variant for one in kernels} == {"standard", "multi_d", "preshuffle"}
    refused = 0
    for kernel in kernels:
        s, h = kernel.spec.signature, kernel.spec.schedule
        skinny_dim = h.skinny_dim if h.pipeline == "skinny" else ""
        m, n = (min(8, h.tile[0]), 64) if skinny_dim == "m" else (64, 8) if skinny_dim == "n" else (256, 256)
        whole = GemmProblem(
            m, n, 2048, s.dtype_a, s.dtype_b, s.dtype_c, s.dtype_d, s.layout, epilogue=s.epilogue, num_d=s.num_d,
            preshuffled=s.variant == "preshuffle",
        )  # fmt: skip
        assert kernel.refusal(arguments(whole, 0, "row")) == "", kernel.name
        odd = replace(whole, m=333, n=331, k=0, a_stride=0, b_stride=0, c_stride=0)
        refused += bool(kernel.refusal(arguments(odd, 0, "row")))
    assert refused > len(kernels) // 2


def test_a_launch_checks_what_changes_from_call_to_call(hip_kernels: list[Kernel]) -> None:
    """Pointers and scalars: a wide load from a misaligned address would give wrong numbers."""
    kernel = hip_kernels[0]
    args = arguments(GemmProblem(256, 256, 2048, "fp16", layout="rcr"), 0, "row")
    assert kernel.launch(ctypes.addressof(args), None, None) == 0
    args.alpha = 2.0
    assert kernel.launch(ctypes.addressof(args), None, None) == 0
    args.beta = 1.0
    assert "C is null" in kernel.refusal(args)
    assert kernel.launch(ctypes.addressof(args), None, None) == 1
    args.c = FAR + 2  # E, C and D tensors may lie as they like
    assert kernel.launch(ctypes.addressof(args), None, None) == 0
    args.a = FAR + 2
    assert kernel.launch(ctypes.addressof(args), None, None) == 4


def test_a_split_kernel_has_a_slice_for_each_part_of_k(hip_kernels: list[Kernel]) -> None:
    """Sums in fp32, rows of 16 elements and more; of a large batch as many matrices as 256 MiB hold."""
    kernel = next(one for one in hip_kernels if one.spec.schedule.split_k == 4 and one.spec.signature.dtype_a == "fp16")
    problem = GemmProblem(100, 90, 2048, "fp16", layout="rcr", **_fused(kernel.spec))
    one = 100 * 96 * 4

    def bytes_of(**changes: Any) -> int:
        return kernel.workspace_bytes(arguments(replace(problem, a_stride=0, b_stride=0, **changes), 0, "row"), 1)

    assert bytes_of() == 4 * one
    assert bytes_of(k=128) == 2 * one  # two tiles of k have no four parts
    assert bytes_of(batch=10) == 40 * one
    assert bytes_of(batch=20000) == (256 << 20) // (4 * one) * 4 * one
    assert bytes_of(m=0) == 0
    args = arguments(problem, 0, "row")
    assert kernel.launch(ctypes.addressof(args), None, None) == 1  # without workspace
    assert kernel.launch(ctypes.addressof(args), FAR, None) == 0


def test_a_batch_is_launched_in_as_few_pieces_as_grids_and_slices_allow(hip_kernels: list[Kernel]) -> None:
    plain = next(one for one in hip_kernels if one.spec.schedule.split_k == 1 and not one.spec.schedule.persistent)
    args = arguments(GemmProblem(128, 128, 256, "fp16", layout="rcr", batch=70000), 0, "row")
    first, second = hosted.launches(plain, args)
    assert (first.grid[1], second.grid[1]) == (65535, 70000 - 65535)
    a, b = FAR + 65535 * 128 * 256 * 2, FAR + 65535 * 128 * 256 * 2
    assert ((first.words[0], first.words[1]), (second.words[0], second.words[1])) == ((FAR, FAR), (a, b))

    split = next(one for one in hip_kernels if one.spec.schedule.split_k == 4 and one.spec.signature.dtype_a == "fp16")
    problem = GemmProblem(1000, 1000, 2048, "fp16", layout="rcr", batch=40, **_fused(split.spec))
    seen = hosted.launches(split, arguments(problem, 0, "row"), FAR)
    at_once = (256 << 20) // (4 * 1000 * 1008 * 4)
    assert [one.grid[1] for one in seen[::2]] == [at_once, at_once, 40 - 2 * at_once]
    assert [one.grid[2] for one in seen[::2]] == [4, 4, 4]
    assert [one.grid[2] for one in seen[1::2]] == [at_once, at_once, 40 - 2 * at_once]  # the parts are added
    assert seen[4].words[0] == FAR + 2 * at_once * 1000 * 2048 * 2


def _fused(spec: KernelSpec) -> dict[str, Any]:
    return {"epilogue": spec.signature.epilogue, "num_d": spec.signature.num_d}


def test_a_copy_of_what_is_unaligned_has_room(cuda_kernels: list[Kernel]) -> None:
    """The workspace of a problem that may be unaligned is asked for with addresses that are."""
    direct = next(one for one in cuda_kernels if one.spec.schedule.store == "direct" and "tma" in one.name)
    problem = GemmProblem(256, 256, 2048, "bf16", layout="rcr", aligned=False)
    aligned = arguments(replace(problem, aligned=True), 0, "row")
    assert direct.workspace_bytes(aligned, 1) == 0
    for off in (0, 1):
        args = arguments(problem, off, "row")
        assert direct.workspace_bytes(args, 1) >= 256 * 2048 * 2
