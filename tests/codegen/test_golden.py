"""What is emitted, to the byte.  Specs are written by hand: pools may change, these files should not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.backends.cpu.gemm.names import CpuDirectSchedule, CpuLoopsSchedule, CpuPackedSchedule
from tests.backends.cuda.gemm.names import MultistageSchedule, SkinnySchedule, TmaWsSchedule
from tilewright.arch import arch
from tilewright.backends.base import backend
from tilewright.backends.cuda.conv.gather import GatherSchedule
from tilewright.backends.cuda.conv.pointwise_tma_ws import PointwiseTmaWsSchedule
from tilewright.backends.hip.conv.ck_tile.schedules import CkTileConvSchedule
from tilewright.backends.hip.conv.tiled import TiledConvSchedule
from tilewright.ops import KernelSpec
from tilewright.ops.conv.schedule import LoopsSchedule
from tilewright.ops.conv.spec import ConvSignature
from tilewright.ops.gemm import GemmSignature

SPECS = {
    "gemm_fp32_packed": KernelSpec(
        "gemm",
        GemmSignature("standard", "fp32", "fp32", "fp32", "fp32", "fp32", "rrr"),
        CpuPackedSchedule("packed", (96, 256, 256), (6, 16, 1), unroll=2),
        "x86_64_v3",
    ),
    "gemm_fp32_loops": KernelSpec(
        "gemm",
        GemmSignature("standard", "fp32", "fp32", "fp32", "fp32", "fp32", "ccr"),
        CpuLoopsSchedule(),
        "generic",
    ),
    "gemm_bf16_preshuffle": KernelSpec(
        "gemm",
        GemmSignature("preshuffle", "bf16", "bf16", "fp32", "bf16", "bf16", "rcr"),
        CpuPackedSchedule("preshuffle", (64, 384, 256), (8, 48, 2), prefetch=8),
        "x86_64_v4_bf16",
    ),
    "gemm_int8_split_k": KernelSpec(
        "gemm",
        GemmSignature("standard", "int8", "int8", "int32", "int8", "int8", "rcr"),
        CpuPackedSchedule("packed", (112, 256, 512), (14, 32, 4), split_k=4, pad=(True, True, False)),
        "x86_64_v4_vnni",
    ),
    "gemm_fp8_multi_d": KernelSpec(
        "gemm",
        GemmSignature("multi_d", "fp8_e4m3", "fp8_e5m2", "fp32", "fp16", "fp32", "crr", "FastGelu", 2),
        CpuDirectSchedule((6, 16, 1)),
        "x86_64_v3",
    ),
    "gemm_cuda_tma_ws": KernelSpec(
        "gemm",
        GemmSignature("standard", "bf16", "bf16", "fp32", "bf16", "bf16", "rcr"),
        TmaWsSchedule((128, 256, 64), stages=4, cluster=(2, 1), store="tma"),
        "sm_90a",
    ),
    "gemm_cuda_swap_ab": KernelSpec(
        "gemm",
        GemmSignature("preshuffle", "bf16", "bf16", "fp32", "bf16", "bf16", "rcr"),
        TmaWsSchedule((16, 64, 64), stages=8, grouping="pingpong", swap_ab=True, tile_scheduler="split_k"),
        "sm_90a",
    ),
    "gemm_cuda_multistage": KernelSpec(
        "gemm",
        GemmSignature("standard", "bf16", "bf16", "fp32", "bf16", "bf16", "rcr"),
        MultistageSchedule((128, 256, 32), (16, 8, 16), (2, 4, 1), stages=4, vector=(1, 8), tile_scheduler="split_k"),
        "sm_80",
    ),
    "gemm_cuda_skinny": KernelSpec(
        "gemm",
        GemmSignature("multi_d", "fp16", "fp16", "fp32", "fp16", "fp16", "rcr", "Silu", 1),
        SkinnySchedule((8, 16, 512)),
        "sm_80",
    ),
    "conv_loops": KernelSpec(
        "conv", ConvSignature("backward_weight", 3, "fp16", "fp32", "fp32", "fp32"), LoopsSchedule(), "generic"
    ),
    "conv_cuda_loops": KernelSpec(
        "conv", ConvSignature("forward", 2, "bf16", "fp32", "bf16", "fp32", "Relu", 2), LoopsSchedule(), "sm_80"
    ),
    "conv_cuda_pointwise": KernelSpec(
        "conv",
        ConvSignature("backward_data", 2, "bf16", "fp32", "bf16", "bf16"),
        PointwiseTmaWsSchedule("planes_tma_ws", (128, 160, 64), 5, (2, 1), "pingpong", store="tma"),
        "sm_90a",
    ),
    "conv_cuda_gather": KernelSpec(
        "conv",
        ConvSignature("backward_data", 3, "bf16", "fp32", "bf16", "bf16"),
        GatherSchedule("gather_planes", (64, 64, 32), (2, 2, 1), 4, (1, 8)),
        "sm_80",
    ),
    "conv_hip_loops": KernelSpec(
        "conv", ConvSignature("backward_data", 2, "bf16", "fp32", "bf16", "bf16"), LoopsSchedule(), "gfx1100"
    ),
    "conv_hip_compv4": KernelSpec(
        "conv",
        ConvSignature("backward_weight", 3, "bf16", "fp32", "fp32", "fp32"),
        CkTileConvSchedule("compv4", (128, 128, 32), (32, 32, 16), (2, 2, 1), (8, 8, 4), split_k=16),
        "gfx942",
    ),
    "conv_hip_wmma": KernelSpec(
        "conv",
        ConvSignature("forward", 2, "fp16", "fp32", "fp16", "fp16"),
        TiledConvSchedule("wmma", (64, 64, 32), (2, 2, 1), special="copied"),
        "gfx1201",
    ),
}  # fmt: skip
SUFFIXES = {"cuda": "cu", "hip": "hpp"}


def rendered(name: str) -> str:
    spec = SPECS[name]
    return backend(arch(spec.arch).backend).render(spec).text


@pytest.mark.parametrize("name", SPECS)
def test_emitted_source_is_the_golden_one(name: str, golden: Callable[[str, str], None]) -> None:
    golden(f"{name}.{SUFFIXES.get(name.split('_')[1], 'cpp')}", rendered(name))


@pytest.mark.parametrize("name", SPECS)
def test_an_instance_file_is_short_and_carries_its_spec(name: str) -> None:
    text = rendered(name)
    assert SPECS[name].to_json() in text
    assert len(text.splitlines()) < 60


def tree(place: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(place.iterdir())}


def test_bytes_do_not_depend_on_process_or_hash_seed(tmp_path: Path) -> None:
    trees = []
    for seed in ("0", "1", "4242"):
        place = tmp_path / seed
        command = [sys.executable, "-m", "tilewright.cli.main", "generate", "gemm", "--target", "x86_64_v3"]
        command += ["--datatype", "fp32,int8", "--pool", "tests", "--variants", "standard,multi_d", "-o", str(place)]
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": seed})
        trees.append(tree(place))
    assert len(trees[0]) > 4
    assert trees[0] == trees[1] == trees[2]
