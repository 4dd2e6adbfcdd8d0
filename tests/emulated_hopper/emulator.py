"""Kernels of GEMM, convolutions and attention compiled for the host over emulated instructions, and run there.

The generated file, the pipeline's header and the host half are the real ones; only the headers that spell out
instructions are replaced (`include/`).  Each call runs in a process of its own: a kernel that runs wild takes no
test with it.
"""

from __future__ import annotations

import ctypes
import faulthandler
import hashlib
import os
import shutil
import subprocess
import tempfile
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
KEPT_SECONDS = 3600.0
SOURCES = ("hopper.cpp", "ampere.cpp", "driver.cpp")

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


def _digest(compiler: str) -> str:
    """Of everything but a kernel's own file that its emulation is made of."""
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
    digest = hashlib.sha256("\0".join((compiler, version, *FLAGS, *DEFINED)).encode())
    headers = sorted(each for place in PLACES for each in place.rglob("*.h"))
    for each in (*headers, *(HERE / name for name in SOURCES), *sorted(HERE.glob("*.h")), Path(__file__)):
        digest.update(each.read_bytes())
    return digest.hexdigest()[:16]


class Emulator:
    """Builds kernels into a folder of the tests' store; what is there is not built again, by whom ever it was built."""

    def __init__(self, store: Path, compiler: str) -> None:
        self.folder = store / f"emulated-{_digest(compiler)}"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.touch()
        for other in store.glob("emulated-*"):  # of older headers; one that another session uses now is young
            if other.stat().st_mtime < self.folder.stat().st_mtime - KEPT_SECONDS:
                shutil.rmtree(other, ignore_errors=True)
        self.compiler = compiler
        self.engine = self.folder / "engine.o"
        sources = [str(HERE / name) for name in SOURCES]
        self._make(self.engine, [*FLAGS, "-O3", "-r", "-nostdlib", *sources])

    def _make(self, goal: Path, words: list[str]) -> None:
        """In one step at the end: other processes may make or read the same."""
        if goal.exists():
            return
        goal.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.folder) as work:
            _compile([self.compiler, *words, "-o", f"{work}/{goal.name}"])
            (Path(work) / goal.name).replace(goal)

    def kernel(
        self,
        spec: KernelSpec,
        edit: Callable[[str], str] | None = None,
        edited: str = "",
        header: str = "",
    ) -> Kernel:
        """The kernel of a spec; `edit` changes a header of its pipeline first, for tests of the emulator itself."""
        assert op(spec.op).check(spec) == []
        launch, said = _launch(spec)
        text = f"#include <tilewright/emulated/{launch}.h>\n{said}{backend('cuda').render(spec).text}"
        flags = [*FLAGS, *DEFINED, f"-DTW_EMULATED_ARCH={spec.arch.removeprefix('sm_').removesuffix('a')}", "-O1"]
        changed = self._edited(edit, header) if edit is not None else ""
        name = hashlib.sha256(f"{spec.arch} {header} {changed} {text}".encode()).hexdigest()[:16]
        folder = self.folder / f"{name}{''.join(each if each.isalnum() else '_' for each in edited)[:40]}"
        library = folder / f"{spec.name}.so"
        if not library.exists():
            folder.mkdir(exist_ok=True)
            first = folder if changed else self._headers(launch, spec.arch, flags)
            if changed:
                (folder / "tilewright" / header).parent.mkdir(parents=True, exist_ok=True)
                (folder / "tilewright" / header).write_text(changed, encoding="utf-8")
            source = folder / f"{spec.name}.cpp"
            source.write_text(text, encoding="utf-8")
            places = [f"-I{place}" for place in (first, *PLACES)]
            self._make(library, [*flags, "-shared", *places, str(source), str(self.engine), "-ldl"])
        return next(one for one in load_library(library) if one.spec.digest == spec.digest)

    def _headers(self, launch: str, arch: str, flags: list[str]) -> Path:
        """The headers all these kernels begin with, compiled once: a fifth of each kernel's compilation."""
        relative = Path("tilewright") / "emulated" / f"{launch}.h"
        folder = self.folder / f"{launch}_{arch}"
        places = [f"-I{place}" for place in PLACES]
        self._make(folder / f"{relative}.gch", [*flags, "-x", "c++-header", *places, str(PLACES[0] / relative)])
        return folder

    def _edited(self, edit: Callable[[str], str], header: str) -> str:
        relative = Path("tilewright") / header
        real = next(one / relative for one in OURS if (one / relative).exists()).read_text(encoding="utf-8")
        changed = edit(real)
        assert changed != real, "the edit found nothing to change"
        return changed


def aligned(size: int, itemsize: int) -> tuple[Array, int]:
    """Fenced memory at an odd multiple of 16 bytes: what TMA needs, and no more."""
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
