"""Kernels of GEMM, convolutions and attention compiled for the host over emulated instructions, and run there.

The generated file, the pipeline's header and the host half are the real ones; only the headers that spell out
instructions are replaced (`include/`).  Each call runs in a process of its own: a kernel that runs wild takes no
test with it.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import subprocess
import traceback
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.backends.cpu.gemm import harness
from tests.backends.cpu.gemm.harness import Allocate, Array, Call
from tilewright.backends.base import backend
from tilewright.backends.cuda.attention_backward import KERNELS as BACKWARD
from tilewright.backends.cuda.conv import KERNELS as CONV
from tilewright.backends.cuda.toolchain import include_dirs
from tilewright.ops import KernelSpec, op
from tilewright.runtime.loader import Kernel, load_library

HERE = Path(__file__).parent
GEMM = op("gemm")
FLAGS = ("-std=c++17", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-w")
OURS = include_dirs(("gemm", "conv", "attention", "attention_backward"))
PLACES = (HERE / "include", *OURS)
DEFINED = ("-D__CUDACC__", "-DTW_EMULATED")

LATE, EAGER, CHANCE = 0, 1, 2  # when copies and products land: as late as waits allow, at once, at random


def _compile(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]


def _launch(spec: KernelSpec) -> tuple[str, str]:
    """The header that makes a kernel's functions known, and what it must be told."""
    if spec.op == "attention":
        return "launch_attention", ""
    if spec.op == "attention_backward":
        names = BACKWARD.family_of(spec.schedule).beside(spec)
        beside = "".join(f" TW_EMULATED_FUNCTION(Symbol##{name})" for name in names)
        return "launch_attention_backward", f"#define TW_BACKWARD_BESIDE(Symbol){beside}\n"
    if spec.op == "conv":
        names = CONV.family_of(spec.schedule).functions_beside(spec.schedule)
        beside = "".join(f" TW_EMULATED_FUNCTION(Symbol##{name})" for name in names)
        return "launch_conv", f"#define TW_CONV_BESIDE(Symbol){beside}\n"
    return "launch" if spec.schedule.pipeline == "tma_ws" else "launch_multistage", ""


class Emulator:
    """Builds kernels into a folder; what is there already is not built again."""

    def __init__(self, folder: Path, compiler: str) -> None:
        self.folder = folder
        self.compiler = compiler
        self.engine = folder / "engine.o"
        sources = [str(HERE / one) for one in ("hopper.cpp", "ampere.cpp", "driver.cpp")]
        _compile([compiler, *FLAGS, "-O3", "-r", "-nostdlib", "-o", str(self.engine), *sources])

    def kernel(
        self,
        spec: KernelSpec,
        edit: Callable[[str], str] | None = None,
        edited: str = "",
        header: str = "",
    ) -> Kernel:
        """The kernel of a spec; `edit` changes a header of its pipeline first, for tests of the emulator itself."""
        assert op(spec.op).check(spec) == []
        name = spec.name + "".join(one if one.isalnum() else "_" for one in edited)
        library = self.folder / f"{name}.so"
        if not library.exists():
            launch, said = _launch(spec)
            flags = [*FLAGS, *DEFINED, f"-DTW_EMULATED_ARCH={spec.arch.removeprefix('sm_').removesuffix('a')}", "-O1"]
            first = self._edited(edit, name, header) if edit is not None else self._headers(launch, spec.arch, flags)
            source = self.folder / f"{name}.cpp"
            text = backend("cuda").render(spec).text
            source.write_text(f"#include <tilewright/emulated/{launch}.h>\n{said}{text}", encoding="utf-8")
            _compile(
                [self.compiler, *flags, "-shared", *(f"-I{one}" for one in (first, *PLACES)),
                 "-o", str(library), str(source), str(self.engine), "-ldl"]
            )  # fmt: skip
        return next(one for one in load_library(library) if one.spec.digest == spec.digest)

    def _headers(self, launch: str, arch: str, flags: list[str]) -> Path:
        """The headers all these kernels begin with, compiled once: a fifth of each kernel's compilation."""
        relative = Path("tilewright") / "emulated" / f"{launch}.h"
        folder = self.folder / f"{launch}_{arch}"
        made = folder / relative.with_suffix(".h.gch")
        if not made.exists():
            made.parent.mkdir(parents=True)
            places = [f"-I{one}" for one in PLACES]
            _compile([self.compiler, *flags, "-x", "c++-header", *places, "-o", str(made), str(PLACES[0] / relative)])
        return folder

    def _edited(self, edit: Callable[[str], str], name: str, header: str) -> Path:
        relative = Path("tilewright") / header
        real = next(one / relative for one in OURS if (one / relative).exists()).read_text(encoding="utf-8")
        changed = edit(real)
        assert changed != real, "the edit found nothing to change"
        folder = self.folder / f"{name}.include"
        (folder / relative).parent.mkdir(parents=True, exist_ok=True)
        (folder / relative).write_text(changed, encoding="utf-8")
        return folder


def aligned(size: int, itemsize: int) -> tuple[Array, int]:
    """Fenced memory at an odd multiple of 16 bytes: what the copy engine needs, and no more."""
    memory = np.empty(size + 2 * harness.FENCE + 32, np.uint8)
    start = int(memory.ctypes.data) + harness.FENCE
    return memory, -(-(start - 16) // 32) * 32 + 16 - int(memory.ctypes.data)


def judge(
    kernel: Kernel,
    call: Call,
    mode: int = LATE,
    seed: int = 0,
    multiprocessors: int = 4,
    allocate: Allocate = aligned,
) -> str:
    """What is wrong with a kernel's answer to a call, or nothing."""
    return apart(kernel, lambda: harness.prove(kernel, call, allocate=allocate), mode, seed, multiprocessors)


def apart(kernel: Kernel, prove: Callable[[], object], mode: int, seed: int, multiprocessors: int) -> str:
    """What a proof of the kernel says in a process of its own."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        faulthandler.disable()  # a kernel that crashes is an answer here
        text = _judge(kernel, prove, mode, seed, multiprocessors)
        os.write(write, text.encode()[:60000])
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    return text if os.WIFEXITED(status) else f"killed by signal {os.WTERMSIG(status)}"


def _judge(kernel: Kernel, prove: Callable[[], object], mode: int, seed: int, multiprocessors: int) -> str:
    library = ctypes.CDLL(str(kernel.library_path))
    library.tw_emulate.argtypes = (ctypes.c_int, ctypes.c_uint64, ctypes.c_int)
    library.tw_emulated_report.restype = ctypes.c_char_p
    library.tw_emulate(mode, seed, multiprocessors)
    try:
        prove()
    except AssertionError as error:
        report = library.tw_emulated_report().decode()
        return report or str(error) or traceback.format_exc()
    except BaseException:
        return traceback.format_exc()
    return ""
