"""The fake HIP runtime and the fake kernel, compiled once and steered from Python."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilewright import ops
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm import GemmProblem

HERE = Path(__file__).parent
ILLEGAL_ADDRESS, OUT_OF_MEMORY, INVALID_FUNCTION = 700, 2, 98


def problem(m: int = 33, n: int = 17, k: int = 40, **more: Any) -> GemmProblem:
    return GemmProblem(m=m, n=n, k=k, dtype_a="int8", dtype_b="int8", **{"layout": "rcr", **more})


def spec(arch: str = "gfx942") -> KernelSpec:
    """A kernel of the target that takes any size."""
    op = ops.op("gemm")
    return next(one for one in op.candidates(problem().signature, arch) if not op.supports(one, problem()))


class FakeHip:
    """Steers the fake: what it has, what fails, what is alive."""

    def __init__(self, path: Path, kernel_of: Callable[[str], Path]) -> None:
        self.path = path
        self._library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        self._library.fake_capacity.argtypes = (ctypes.c_size_t,)
        self._library.fake_last_stream.restype = ctypes.c_void_p
        self._library.fake_memory_device.argtypes = (ctypes.c_void_p,)
        self._kernel_of = kernel_of

    def reset(self) -> None:
        self._library.fake_reset()

    def has(self, count: int, archs: str = "gfx942") -> None:
        """Devices; `archs` names them one after the other, the last stands for the rest."""
        self._library.fake_devices(count, archs.encode())

    def model(self, name: str = "Fake Instinct", units: int = 304, version: int = 70012345) -> None:
        """What every device says it is."""
        self._library.fake_model(name.encode(), units, version)

    def capacity(self, nbytes: int) -> None:
        self._library.fake_capacity(nbytes)

    def fail(self, name: str, error: int, after: int = 0, sticky: bool = False) -> None:
        """The next call of that name (or the one after `after` more) answers `error`; sticky: all calls from then."""
        self._library.fake_fail(name.encode(), error, after, int(sticky))

    @property
    def alive(self) -> tuple[int, int, int]:
        """Allocations, streams and events not given back."""
        one = self._library
        return one.fake_live_memory(), one.fake_live_streams(), one.fake_live_events()

    def calls(self, name: str) -> int:
        return int(self._library.fake_calls(name.encode()))

    @property
    def last_stream(self) -> int:
        return self._library.fake_last_stream() or 0

    @property
    def last_error(self) -> int:
        return int(self._library.hipGetLastError())

    @property
    def current_device(self) -> int:
        return int(self._library.fake_current_device())

    def device_of(self, address: int) -> int:
        return int(self._library.fake_memory_device(address))

    def kernel(self, arch: str = "gfx942", workspace: bool = False, clear: int = 0) -> Path:
        """A library with one kernel of `arch` that runs here."""
        return self._kernel_of(kernel_text(spec(arch), workspace, clear=clear))

    def capture(self, stream: int, on: bool = True) -> None:
        """The stream is being captured into a graph, or no longer."""
        self._library.fake_capture(ctypes.c_void_p(stream), int(on))


def kernel_text(
    one: KernelSpec,
    workspace: bool = False,
    grains: tuple[int, int, int] = (1, 1, 1),
    queue: str = "fake_launch",
    clear: int = 0,
) -> str:
    """Source of a kernel with this spec that is host code; with grains it insists on multiples and alignment, with
    `clear` on so many zeros at the start of its workspace."""
    s = one.signature
    words = {
        "MANIFEST": f'R"x({one.to_json()})x"',
        "WORKSPACE": int(workspace),
        "CLEAR": clear,
        "GRAINS": ", ".join(map(str, grains)),
        "QUEUE": f'"{queue}"',
        "IN": {"int8": "int8_t", "bf16": "uint16_t"}[s.dtype_a],
        "OUT": {"int32": "int32_t", "fp32": "float"}[s.dtype_c],
        "A_ROWS": int(s.layout[0] == "r"),
        "B_ROWS": int(s.layout[1] == "r"),
        "NUM_D": s.num_d,
    }
    head = "#include <stdint.h>\n" + "".join(f"#define {name} {value}\n" for name, value in words.items())
    return head + (HERE / "fake_kernel.cpp").read_text(encoding="utf-8")
