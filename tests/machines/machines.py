"""The odd machines: what each lacks, how to see that it does, and what must be true on it."""

from __future__ import annotations

from dataclasses import dataclass

CXX = r"(?:.*-)?(?:c\+\+|g\+\+|clang\+\+|gcc|cc|clang|icpx|c89|c99)(?:-[\d.]+)?"
NVCC = r"nvcc|nvrtc.*"
NVDISASM = r"nvdisasm|cuobjdump"

# What a first call does, as a user would write it: it is right, or says in one rule what is missing.
FIRST_CALL = """
import numpy as np, tilewright as tw
a = np.arange(12, dtype=np.float32).reshape(3, 4)
try:
    print("right" if np.array_equal(tw.gemm(a, a.T), a @ a.T) else "wrong")
except tw.TilewrightError as error:
    assert error.remedy, error
    print(error.rule)
"""
_HAS_CXX = """
from tilewright.backends.cpu.toolchain import candidates
from pathlib import Path
found = [command[0] for command in candidates()]
"""
_CUDA = """
from tilewright.backends.cuda import places, toolchain
from tilewright.errors import ToolchainError
try:
    nvcc = toolchain.find_toolchain()
except ToolchainError:
    nvcc = None
"""


@dataclass(frozen=True)
class Machine:
    """Empty `why` of the probe: it is that machine."""

    name: str
    probe: str  # Python that prints why it is not that machine, or nothing
    short: tuple[str, ...]  # tests that meet what is odd about it
    first_call: str = "right"
    hidden: str = ""  # programs that are not on its path, as a pattern
    hidden_folders: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()  # installed for it alone
    ordinary: bool = False  # run by somebody who is not root
    writable_home: bool = True


_KERNELS = ("tests/api/test_matmul.py", "tests/backends/cpu/gemm/test_check.py")

MACHINES = (
    Machine(
        "no compiler",
        _HAS_CXX + "print(*found)",
        ("tests/build/test_without_compiler.py", "tests/cli/test_main.py", "tests/api/test_matmul.py"),
        "no-compiler",
        hidden=f"{CXX}|{NVCC}|zig",
    ),
    Machine(
        "zig only",
        _HAS_CXX + "print(*(one for one in found if 'zig' not in one and 'python' not in Path(one).name))",
        _KERNELS,
        hidden=CXX,
        packages=("ziglang",),
    ),
    Machine(
        "nvcc without nvdisasm",
        _CUDA + "print('there is no nvcc' if nvcc is None else places.tool('nvdisasm') or '')",
        ("tests/house/test_gpu_builds.py", "tests/inspect"),
        hidden=NVDISASM,
    ),
    Machine(
        "no nvcc",
        _CUDA + "print('' if nvcc is None else f'{nvcc.driver[0]} is there')",
        ("tests/house/test_gpu_builds.py", "tests/backends/test_cuda_toolchain.py"),
        hidden=f"{NVCC}|{NVDISASM}",
        hidden_folders=("/usr/local/cuda",),
    ),
    Machine(
        "ordinary user",
        "import os; print('' if os.getuid() else 'root')",
        ("tests/build/test_store.py", "tests/build/test_locks.py", "tests/test_settings.py", *_KERNELS),
        ordinary=True,
    ),
    Machine(
        "read-only home",
        "import os; print('HOME can be written to' if os.access(os.environ['HOME'], os.W_OK) else '')",
        ("tests/test_settings.py", "tests/build/test_store.py", "tests/api/test_matmul.py"),
        "store-unwritable",
        ordinary=True,
        writable_home=False,
    ),
)
