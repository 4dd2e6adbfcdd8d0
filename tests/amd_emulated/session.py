"""Libraries built by hipcc, run without a GPU: the fake HIP runtime hands their launches to the emulator."""

from __future__ import annotations

import ctypes
from collections import Counter
from typing import Any

from tests.amd_emulated.code_object import bundle_bytes
from tests.amd_emulated.emulator import (
    HERE,
    Checkout,
    Device,
    Launch,
    Program,
    compile_c,
    device_image,
    kernarg_block,
    load,
)

RUNTIME = "libamdhip64.so.7"  # the name libraries built with ROCm 7 ask the loader for


class LaunchRecord(ctypes.Structure):
    _fields_ = (
        ("binary", ctypes.c_void_p),
        ("kernel", ctypes.c_char_p),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared", ctypes.c_uint64),
        ("stream", ctypes.c_void_p),
        ("args", ctypes.POINTER(ctypes.c_void_p)),
    )


ON_LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(LaunchRecord))


class Session:
    """The fake runtime with the emulator behind it.  Make it before loading any library built by hipcc."""

    def __init__(self, target: str, seed: int = 0) -> None:
        self.target = target
        self.device = Device(Checkout(), seed)
        path = compile_c(HERE / "fake_hip.c", "-fvisibility=hidden", f"-Wl,-soname,{RUNTIME}", name=RUNTIME)
        self.runtime = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        self.programs: dict[int, Program] = {}
        self.launches: list[dict[str, Any]] = []
        self.instructions: Counter[str] = Counter()
        self.failure: BaseException | None = None
        self._callback = ON_LAUNCH(self._on_launch)
        self.runtime.tw_fake_hip_on_launch(self._callback)

    def _program(self, binary: int) -> Program:
        if binary not in self.programs:
            size = bundle_bytes(lambda offset, count: ctypes.string_at(binary + offset, count))
            self.programs[binary] = load(device_image(ctypes.string_at(binary, size), self.target))
        return self.programs[binary]

    def _on_launch(self, record: Any) -> int:
        try:
            self._launch(record.contents)
        except BaseException as error:  # an exception must not leave through C; `raise_failure` brings it back
            self.failure = self.failure or error
            return 1
        return 0

    def _launch(self, one: LaunchRecord) -> None:
        program, name = self._program(one.binary), one.kernel.decode()
        info = program.code.kernels[name]
        explicit = [each for each in info.args if not each.kind.startswith("hidden_")]
        values = [ctypes.string_at(one.args[index], each.size) for index, each in enumerate(explicit)]
        grid, block = _three(one.grid), _three(one.block)
        kernarg = kernarg_block(info, grid, block, int(one.shared), values)
        counts = self.device.run(program, name, Launch(grid, block, int(one.shared), kernarg))
        self.instructions.update(counts.instructions)
        self.launches.append(
            {
                "kernel": name,
                "grid": list(grid),
                "block": list(block),
                "lds": info.lds + int(one.shared),
                "vgpr": info.vgprs,
                "scratch": info.scratch,
                "matrix_instructions": counts.matrix,
                "wave_instructions": sum(counts.instructions.values()),
            }
        )

    def raise_failure(self) -> None:
        """Raise what went wrong in a launch since the last call."""
        failure, self.failure = self.failure, None
        if failure is not None:
            self.runtime.hipGetLastError()  # or the next kernel would be told of it
            raise failure


def _three(values: Any) -> tuple[int, int, int]:
    return int(values[0]), int(values[1]), int(values[2])
