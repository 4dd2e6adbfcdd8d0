"""The floor of convolution compiled for AMD GPUs, one of each family and direction, and one library as users have it.

What they compute is shown by tests/amd_emulated/test_conv_kernels.py.
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.amd_emulated.conv.catalog import loops
from tilewright import settings
from tilewright.backends.base import backend
from tilewright.build import Builder
from tilewright.build.inspected import inspect_kernel
from tilewright.inspect import demand_promises
from tilewright.ops.base import KernelSpec

pytestmark = pytest.mark.amd


@pytest.mark.parametrize(
    "spec",
    [
        loops("gfx90a", "backward_weight", 3, "fp32"),
        loops("gfx950", "backward_data", 2, "bf16", "fp32"),
        loops("gfx1100", "forward", 3, "fp16", epilogue="Gelu", num_d=2),
        loops("gfx1201", "forward", 2, "int8", "int8", "Relu", 1),
        loops("gfx908", "backward_data", 3, "fp16"),
        loops("gfx1250", "backward_weight", 2, "bf16"),
    ],
    ids=lambda one: one.name,
)
def test_the_loops_compile_and_stay_in_registers(tmp_path: Path, spec: KernelSpec) -> None:
    toolchain: Any = backend("hip").toolchain()
    source, output = tmp_path / "loops.hpp", tmp_path / "loops.hsaco"
    source.write_text(backend("hip").render(spec).text, encoding="utf-8")
    command = toolchain.code_object_command(source, output, spec.arch, "conv")
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=settings.child_environment())
    assert done.returncode == 0, done.stderr
    found = inspect_kernel(str(output))
    assert found.arch == spec.arch
    (one,) = found.functions
    assert one.resources is not None
    assert (one.resources.vgpr_spills, one.resources.scratch_bytes, one.resources.shared_bytes) == (0, 0, 0)
    assert one.instructions is not None
    assert one.instructions.matrix_count == 0, "plain loops: the floor under everything"


def test_a_library_is_built_and_inspected() -> None:
    spec = loops("gfx942", "forward", 2, "fp16", epilogue="MultiDAdd", num_d=1)
    built = Builder().build_one(spec)
    found = demand_promises(backend("hip").inspect(built.path, spec))
    assert (found.name, found.arch) == (spec.name, spec.arch)
