"""Our own kernels of attention's gradients on AMD GPUs: where they are, what they take, and where loops are left."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import tilewright
from tilewright.arch import all_archs
from tilewright.backends.cpu.toolchain import find_toolchain
from tilewright.backends.hip.attention_backward import KERNELS as AMD
from tilewright.backends.hip.attention_backward.tiled import FAMILY, TiledBackwardSchedule
from tilewright.errors import ToolchainError
from tilewright.ops import KernelSpec, op
from tilewright.ops.attention_backward import AttentionBackwardProblem
from tilewright.ops.attention_backward.spec import AttentionBackwardSignature, normalized

OP = "attention_backward"
HIP = tuple(name for name, arch in all_archs().items() if arch.backend == "hip")
PLAIN = AttentionBackwardSignature("grad", "fp16")
HEADS = ((32, 32), (64, 64), (96, 96), (64, 128), (128, 128), (192, 128), (192, 192), (256, 256))
FEATURES: tuple[dict[str, Any], ...] = (
    {},
    {"mask": "window", "varlen": True},
    {"mask": "generic", "dropout": True},
    {"masked": True, "softcap": True},
    {"bias": "tensor", "dtype_aux": "fp32"},
    {"bias": "alibi"},
    {"bias": "tensor", "dtype_aux": "fp16", "dbias": True},
    {"bias": "alibi", "dalibi": True},
)
SCHEDULE = TiledBackwardSchedule(32, 2)


@pytest.mark.parametrize("arch", HIP)
def test_there_is_a_matrix_kernel_wherever_the_arch_has_an_instruction(arch: str) -> None:
    facts = all_archs()[arch]
    for (qk, v), features in product(HEADS, FEATURES):
        wanted = normalized(replace(PLAIN, head_dim=qk, head_dim_v=v, **features))
        proposed = [one for one in AMD.schedules("default", wanted, facts) if one.pipeline == "tiled"]
        assert proposed, (qk, v, features)
        for schedule in proposed:
            assert not list(FAMILY.violations(wanted, schedule, facts))


@pytest.mark.parametrize("arch", HIP)
@pytest.mark.parametrize(("dtype", "heads"), [
    ("fp32", (256, 256)), ("fp32", (512, 512)), ("fp16", (512, 512)), ("bf16", (576, 512)),
])  # fmt: skip
def test_heads_that_lds_has_no_room_for_are_staged(arch: str, dtype: str, heads: tuple[int, int]) -> None:
    facts = all_archs()[arch]
    for features in FEATURES:
        large: dict[str, Any] = {"dtype": dtype, "head_dim": heads[0], "head_dim_v": heads[1]}
        wanted = normalized(replace(PLAIN, **{**large, **features}))
        proposed = [one for one in AMD.schedules("default", wanted, facts) if isinstance(one, TiledBackwardSchedule)]
        if dtype == "fp32" and not {"mfma", "wmma-fp32"} & facts.features:
            assert not proposed
        elif (arch, dtype, heads) != ("gfx908", "fp32", (512, 512)):  # with some features it lacks registers
            assert proposed, features
            assert arch in ("gfx950", "gfx1250") or all(one.staged for one in proposed)
    assert TiledBackwardSchedule(16, 8, 4, True).label() == "tiled_32x16_columns4_staged"


@pytest.mark.parametrize(("rule", "arch", "has", "schedule"), [
    ("amd-backward-family", "gfx942", {"family": "dot"}, SCHEDULE),
    ("amd-warps", "gfx1100", {"head_dim": 96, "head_dim_v": 96}, TiledBackwardSchedule(16, 8, 4)),
    ("amd-matrix", "gfx1100", {"dtype": "fp32"}, SCHEDULE),
    ("amd-backward-sums", "gfx942", {"accumulate": "dq"}, SCHEDULE),
    ("amd-tile-size", "gfx950", {}, TiledBackwardSchedule(16, 2)),
    ("amd-tile-size", "gfx90a", {}, TiledBackwardSchedule(48, 2)),
    ("amd-warps", "gfx90a", {}, TiledBackwardSchedule(32, 3)),
    ("amd-lds", "gfx90a", {"head_dim": 256, "head_dim_v": 256}, TiledBackwardSchedule(32, 4)),
    ("amd-registers", "gfx1100", {"head_dim": 256, "head_dim_v": 256}, TiledBackwardSchedule(16, 1)),
    ("amd-warps", "gfx1100", {"head_dim": 576, "head_dim_v": 512}, TiledBackwardSchedule(16, 8, 8)),
    ("amd-registers", "gfx1201", {"head_dim": 576, "head_dim_v": 512}, TiledBackwardSchedule(32, 8, 8, True)),  # 7
])  # fmt: skip
def test_every_rule_is_met(rule: str, arch: str, has: dict[str, Any], schedule: TiledBackwardSchedule) -> None:
    refused = op(OP).check(KernelSpec(OP, normalized(replace(PLAIN, **has)), schedule, arch))
    assert rule in [one.rule for one in refused]
    assert all(one.remedy for one in refused)


@pytest.mark.parametrize("arch", HIP)
def test_a_kernel_takes_any_size_stride_and_order(arch: str) -> None:
    for rows, keys, head in ((1, 1, 1), (37, 41, 53), (0, 5, 64)):
        odd = AttentionBackwardProblem(
            3, 6, rows, keys, head, heads_kv=2, dtype="fp16", seqlens_q=True, seqlens_k=True, aligned=False,
            deterministic=True,
        ).stage("grad", "none")  # fmt: skip
        tiled = [one for one in AMD.schedules("default", odd.signature, all_archs()[arch]) if one.pipeline == "tiled"]
        assert tiled
        for schedule in tiled:
            assert op(OP).supports(KernelSpec(OP, odd.signature, schedule, arch), odd) == []


@pytest.mark.parametrize(
    ("has", "rule"),
    [
        ({"bias": "tensor", "bias_shape": (2, 4, 40, 50), "dtype_aux": "fp16", "dbias": True}, ""),
        ({"bias": "tensor", "bias_shape": (1, 4, 40, 50), "dtype_aux": "fp16", "dbias": True}, "amd-deterministic"),
        ({"bias": "tensor", "bias_shape": (2, 4, 40, 1), "dtype_aux": "fp16", "dbias": True}, "amd-deterministic"),
        ({"bias": "alibi", "dalibi": True}, "amd-deterministic"),
    ],
)
def test_what_is_added_in_any_order_is_refused_where_the_order_counts(has: dict[str, Any], rule: str) -> None:
    for deterministic in (False, True):
        problem = AttentionBackwardProblem(2, 4, 40, 50, 64, dtype="fp16", deterministic=deterministic, **has)
        stage = problem.stage("grad", "none")
        spec = KernelSpec(OP, stage.signature, SCHEDULE, "gfx942")
        assert not op(OP).check(spec)
        assert [each.rule for each in op(OP).supports(spec, stage)] == ([rule] if rule and deterministic else [])


def test_it_is_chosen_before_the_loops() -> None:
    problem = AttentionBackwardProblem(2, 16, 1024, 1024, 128, heads_kv=4, dtype="bf16", window_right=0)
    stage, arch = problem.stage("grad", "none"), "gfx1201"
    schedules = AMD.schedules("default", stage.signature, all_archs()[arch])
    specs = [KernelSpec(OP, stage.signature, one, arch) for one in schedules]
    assert {spec.schedule.pipeline for spec in specs} == {"tiled", "loops"}
    assert min(specs, key=lambda spec: AMD.estimate(spec, stage, 1)).schedule.pipeline == "tiled"


@pytest.mark.parametrize(
    ("arch", "has", "schedule", "rule"),
    [
        ("gfx1201", {}, TiledBackwardSchedule(16, 2), "amd-registers"),  # 56 bytes a lane
        ("gfx1201", {}, TiledBackwardSchedule(16, 4), ""),
        ("gfx1100", {"head_dim": 64, "head_dim_v": 64, "mask": "window", "bias": "tensor", "dtype_aux": "fp16"},
         TiledBackwardSchedule(16, 4), "amd-registers"),  # 20
        ("gfx1100", {"head_dim": 64, "head_dim_v": 64, "mask": "window"}, TiledBackwardSchedule(16, 4), ""),
    ],
)  # fmt: skip
def test_kernels_that_spilled_are_refused(
    arch: str, has: dict[str, Any], schedule: TiledBackwardSchedule, rule: str
) -> None:
    spec = KernelSpec(OP, normalized(replace(PLAIN, **has)), schedule, arch)
    assert [each.rule for each in op(OP).check(spec)] == [rule] * bool(rule)


CLEARED = """
#include <tilewright/gpu/attention_backward_added.h>
struct Config { static constexpr bool dbias = true, dalibi = false; };
int main() {
  tw_attention_backward_args x{};
  x.batch = 2, x.heads_q = 3, x.rows = 5, x.keys = 0;
  if (tw::added_of<Config>(x).entries() != 1) return 1;  // repeats along everything
  x.dbias_strides[2] = 1;
  if (tw::added_of<Config>(x).entries() != 5) return 2;  // a number a row
  x.dbias_strides[3] = 1;
  return tw::added_of<Config>(x).entries();  // of keys, and there is none
}
"""


def test_a_bias_that_repeats_has_elements_without_keys(tmp_path: Path) -> None:
    """Their gradient is 0: they were left as they were."""
    try:
        compiler = find_toolchain().driver
    except ToolchainError as error:
        pytest.skip(f"no C++ compiler: {error.message}")
    source, program = tmp_path / "cleared.cpp", tmp_path / "cleared"
    source.write_text(CLEARED, encoding="utf-8")
    package = Path(tilewright.__file__).parent
    folders = [f"-I{package / 'include'}", f"-I{package / 'backends/gpu/include'}"]
    subprocess.run([*compiler, "-std=c++17", "-Wall", "-Wextra", *folders, str(source), "-o", str(program)], check=True)
    assert subprocess.run([str(program)], check=False).returncode == 0


def test_what_is_computed_has_no_room_in_accumulation_registers() -> None:
    """Of 498 registers that were counted of 512, 128 hold sums: it had 420 bytes of scratch."""
    signature = AttentionBackwardSignature("grad", "bf16", 256, 256, mask="window", dropout=True)
    spec = KernelSpec("attention_backward", signature, TiledBackwardSchedule(64, 1), "gfx950")
    (broken,) = op("attention_backward").check(spec)
    assert broken.rule == "amd-registers"
    assert "370 registers and has 256" in broken.message
