"""Hold the model of AMD main loops against llvm-mca's: matrix and vector clocks of the same instructions.

    python -m tests.inspect.llvm_mca --arch gfx90a KERNEL.so ...

llvm-mca knows an arch by LLVM's scheduling model, whose cycle is four clocks of CDNA, the issue of one instruction of a
wave.  It models matrix and vector units; its LDS and memory take one cycle an access whatever its width, so these are
not compared.  Which archs it knows depends on its version (`models`): LLVM 14 has gfx908 and gfx90a.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import backend
from tilewright.inspect import amdgpu, disassembly
from tilewright.inspect.amd_model import main_path
from tilewright.inspect.amd_rates import is_vector, matrix_cost

CYCLE = 4  # clocks
_UNITS = re.compile(r"^\[(\d+)\]\s+- (\w+)$", re.MULTILINE)
_ABSENT = "no llvm-mca that knows the arch is on the path"


class Died(RuntimeError):
    """llvm-mca did not come back with an answer: LLVM 14's ends by a signal on some loops."""


def _output(tool: str, arch: str, text: str) -> subprocess.CompletedProcess[str]:
    command = [
        tool,
        "-mtriple=amdgcn-amd-amdhsa",
        f"-mcpu={arch}",
        "-iterations=1",
        "-skip-unsupported-instructions=any",
    ]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if "skip-unsupported" in done.stderr:  # before LLVM 19
        done = subprocess.run(command[:-1], input=text, capture_output=True, text=True, check=False)
    return done


def models(arch: str) -> str:
    """The llvm-mca on the path that has a model of the arch; empty where there is none."""
    for name in ("llvm-mca", *(f"llvm-mca-{version}" for version in range(30, 12, -1))):
        tool = shutil.which(name)
        if tool and "not a recognized processor" not in _output(tool, arch, "s_nop 0\n").stderr:
            return tool
    return ""


def clocks(lines: Sequence[str], arch: str, tool: str) -> tuple[dict[str, float], int]:
    """Clocks of each unit for these instructions, and how many of them llvm-mca could not read."""
    kept = list(lines)
    done = _output(tool, arch, "\n".join(kept) + "\n")
    unread = sorted({int(number) for number in re.findall(r"^<stdin>:(\d+):\d+: error", done.stderr, re.MULTILINE)})
    if unread:
        kept = [line for number, line in enumerate(kept, 1) if number not in set(unread)]
        done = _output(tool, arch, "\n".join(kept) + "\n")
    if done.returncode:
        raise Died(f"llvm-mca ends with {done.returncode}")
    units = [name for _, name in _UNITS.findall(done.stdout)]
    pressure = done.stdout.partition("Resource pressure per iteration:")[2].splitlines()[2].split()
    return {
        unit: 0.0 if number == "-" else CYCLE * float(number) for unit, number in zip(units, pressure, strict=True)
    }, len(unread)


def compared(code: Sequence[disassembly.Instruction], arch: str, tool: str) -> str | None:
    """A row of the table: both counts of a kernel's main loop; None where nothing is multiplied."""
    main = main_path(code, arch_by_name(arch))
    if main is None:
        return None
    costs = [matrix_cost(each.mnemonic, arch, each.operands) for each in main[1]]
    matrix = sum(cost.clocks for cost in costs if cost is not None)
    vector = CYCLE * sum(
        1 for each, cost in zip(main[1], costs, strict=True) if cost is None and is_vector(each.mnemonic)
    )
    lines = [
        f"{each.mnemonic} {each.operands}"
        for each in main[1]
        if not each.mnemonic.startswith(("s_cbranch", "s_branch"))
    ]
    try:
        theirs, unread = clocks(lines, arch, tool)
    except Died as error:
        return f"{len(main[1])} | {matrix} | {error} | {vector} | | "
    return f"{len(main[1])} | {matrix} | {theirs['HWXDL']:.0f} | {vector} | {theirs['HWVALU']:.0f} | {unread}"


def functions(path: Path) -> Iterator[list[disassembly.Instruction]]:
    """The code of each kernel in a library, by the compiler's own disassembler."""
    hip: Any = backend("hip")
    objdump = str(hip.toolchain().tool("llvm-objdump"))
    for _, raw in amdgpu.code_objects(path.read_bytes(), path.name):
        with tempfile.NamedTemporaryFile(suffix=".co") as file:
            file.write(raw)
            file.flush()
            yield from disassembly.disassemble(Path(file.name), objdump).values()


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare the model of main loops with llvm-mca's.")
    parser.add_argument("--arch", required=True)
    parser.add_argument("libraries", nargs="+", type=Path)
    chosen = parser.parse_args()
    tool = models(chosen.arch)
    if not tool:
        raise SystemExit(_ABSENT)
    print("| kernel | instructions | matrix | llvm-mca | vector | llvm-mca | not read |\n| --- |" + " ---: |" * 6)
    for path in chosen.libraries:
        for code in functions(path):
            row = compared(code, chosen.arch, tool)
            if row is not None:
                print(f"| `{path.stem}` | {row} |", flush=True)


if __name__ == "__main__":
    main()
