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
        found = toolchain.candidates()
    except ToolchainError as error:
        yield Finding("compilers", "nvcc, NVRTC", False, oneline(error))
        return
    if not found:
        yield Finding("compilers", "nvcc, NVRTC", None, f"none found; {toolchain.REMEDY}")
    used = False
    for one in found:
        try:
            tools = toolchain.identify(one)
        except ToolchainError as error:
            yield Finding("compilers", one.shown, False, oneline(error))
            continue
        text = f"{tools.identity.version}; {one.where}" + ("" if used else "; used")
        yield Finding("compilers", one.shown, True, text)
        used = True
    if found:
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
        found = driver.devices()
    except TilewrightError as error:
        yield Finding("devices", "NVIDIA driver", False, oneline(error))
        return
    yield Finding("devices", "NVIDIA driver", True, f"{found[0].driver}; {library.path}")
    for one in found:
        known = one.arch in all_archs()
        text = f"{one.name}, {one.arch}, {one.memory_bytes / 2**30:.0f} GiB, {one.compute_units} multiprocessors"
        yield Finding("devices", f"NVIDIA GPU {one.index}", known, text + ("" if known else "; no kernels for it"))
