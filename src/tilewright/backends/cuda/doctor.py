"""What `tilewright doctor` says of CUDA: compilers, NVIDIA's driver, GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.arch import all_archs
from tilewright.backends.cuda import driver, places, toolchain
from tilewright.backends.findings import Finding, oneline
from tilewright.errors import TilewrightError, ToolchainError


def findings() -> Iterator[Finding]:
    yield from compilers()
    yield from devices()


def compilers() -> Iterator[Finding]:
    """Every nvcc and NVRTC with the place it was found in, and the disassembler."""
    try:
        candidates = toolchain.candidates()
    except ToolchainError as error:
        yield Finding("compilers", "nvcc, NVRTC", False, oneline(error))
        return
    if not candidates:
        yield Finding("compilers", "nvcc, NVRTC", None, f"none found; {toolchain.REMEDY}")
    used = False
    for candidate in candidates:
        try:
            tools = toolchain.identify(candidate)
        except ToolchainError as error:
            yield Finding("compilers", candidate.shown, False, oneline(error))
            continue
        text = f"{tools.identity.version}; {candidate.where}" + ("" if used else "; used")
        yield Finding("compilers", candidate.shown, True, text)
        used = True
    if candidates:
        tool = places.tool("nvdisasm")
        without = "not found: `inspect` names instructions by opcode only; `pip install nvidia-cuda-nvdisasm`"
        yield Finding("compilers", "nvdisasm", None if tool is None else True, str(tool or without))


def devices() -> Iterator[Finding]:
    """NVIDIA's driver and each GPU it sees, or why it sees none."""
    try:
        library = driver.driver()
    except TilewrightError as error:
        yield Finding("devices", "NVIDIA driver", None, oneline(error))
        return
    try:
        facts = driver.devices()
    except TilewrightError as error:
        yield Finding("devices", "NVIDIA driver", False, oneline(error))
        return
    yield Finding("devices", "NVIDIA driver", True, f"{facts[0].driver}; {library.path}")
    for gpu in facts:
        known = gpu.arch in all_archs()
        text = f"{gpu.name}, {gpu.arch}, {gpu.memory_bytes / 2**30:.0f} GiB, {gpu.compute_units} multiprocessors"
        yield Finding("devices", f"NVIDIA GPU {gpu.index}", known, text + ("" if known else "; no kernels for it"))
