"""Kernels of attention's gradients compiled by NVRTC, which knows no host; nothing runs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tilewright import settings
from tilewright.backends.base import backend
from tilewright.backends.cuda.attention_backward.mma import MmaSchedule
from tilewright.backends.cuda.attention_backward.ws import WsSchedule
from tilewright.backends.cuda.toolchain import find_toolchain
from tilewright.backends.gpu.attention_backward import RowsSchedule
from tilewright.errors import ToolchainError
from tilewright.ops import KernelSpec
from tilewright.ops.attention_backward import AttentionBackwardProblem
from tilewright.ops.attention_backward.schedule import AttentionBackwardSchedule, LoopsSchedule

CASES: dict[str, tuple[AttentionBackwardSchedule, str, str]] = {
    "ws": (WsSchedule("ws", 64, overlap="none"), "grad", "dq"),
    "mma": (MmaSchedule("mma", 32, 4), "grad", "none"),
    "rows": (RowsSchedule(), "dot", "none"),
    "loops": (LoopsSchedule(), "grad", "none"),
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", CASES)
def test_nvrtc_compiles_every_family(case: str, tmp_path: Path) -> None:
    with settings.override(cuda_compiler="nvrtc"):
        try:
            tools = find_toolchain()
        except ToolchainError as error:
            pytest.skip(f"no NVRTC: {error.message}")
    schedule, family, sums = CASES[case]
    problem = AttentionBackwardProblem(1, 1, 1, 1, 64, dtype="bf16").stage(family, sums)
    spec = KernelSpec("attention_backward", problem.signature, schedule, "sm_90a")
    source = tmp_path / "kernel.cu"
    source.write_text(backend("cuda").render(spec).text, encoding="utf-8")
    done = subprocess.run(
        tools.command(source, tmp_path / "kernel.so", "sm_90a", spec.op), capture_output=True, text=True, check=False,
        env=settings.child_environment(tools.environment(tmp_path)),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[:2000]
