"""Machine code as text, through whatever objdump there is."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tilewright import settings
from tilewright.dataclass import dataclass

ANSWER_SECONDS = 300.0
# What objdump of GNU and of LLVM write for an instruction they do not know; for AMD's, LLVM writes it as data.
_UNKNOWN = ("(bad)", "<unknown>", ".long", ".byte")

_LABEL = re.compile(r"^([0-9a-f]+) <(.+)>:$")
# GNU and LLVM for x86: "  401000:\tvmovups (%rax),%zmm0"; LLVM for AMD: "\tv_mfma... // 000000001858: D3CD..."
_BEFORE = re.compile(r"^\s*([0-9a-f]+):\s+(\S+)\s*(.*)$")
_BEHIND = re.compile(r"^\s+(\S+)\s*(.*?)\s*// ([0-9A-F]+):")


@dataclass(frozen=True, slots=True)
class Instruction:
    address: int
    mnemonic: str
    operands: str


def find_disassembler(preferred: Sequence[Path] = ()) -> str:
    """The setting's, else the first of `preferred` that exists, else one on the path; empty when there is none."""
    chosen = settings.current().objdump
    if chosen:
        return chosen
    for candidate in preferred:
        if candidate.exists():
            return str(candidate)
    for name in ("llvm-objdump", "objdump"):
        tool = shutil.which(name)
        if tool:
            return tool
    return ""


class NoDisassembly(Exception):
    """The text says why there is none."""


def listing(path: Path, tool: str) -> str:
    """What the tool writes; NoDisassembly where it cannot read this code."""
    if not tool:
        raise NoDisassembly(
            "no disassembler was found (llvm-objdump, objdump, or the setting `objdump`): instructions are not counted"
        )
    try:
        return written_by(tool, "-d", "--no-show-raw-insn", str(path))
    except NoDisassembly as error:
        raise NoDisassembly(f"{error}: instructions are not counted") from error


def written_by(tool: str, *arguments: str) -> str:
    """What a disassembler writes; NoDisassembly where it does not answer, or cannot read the code."""
    try:
        done = subprocess.run(
            [tool, *arguments],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_SECONDS,
            env=settings.child_environment(),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoDisassembly(f"{tool} did not answer ({error})") from error
    if done.returncode:
        reason = (done.stderr.strip() or "it said nothing").splitlines()[-1]
        raise NoDisassembly(f"{Path(tool).name} cannot read this code ({reason})")
    return done.stdout


def shows(text: str, beginnings: Sequence[str], *, ends: str = "") -> bool:
    """Whether a mnemonic in a listing begins so and ends as the pattern `ends` says: ten times quicker than parsing.

    NoDisassembly where none does and the tool did not know every instruction: the one looked for may be among them.
    """
    names = "|".join(map(re.escape, beginnings))
    if re.search(rf"\s(?:{names})\w*{ends}\s", text):
        return True
    if re.search(rf"\s(?:{'|'.join(map(re.escape, _UNKNOWN))})\s", text):
        raise NoDisassembly("the disassembler does not know every instruction of this code")
    return False


def recognized(code: Iterable[Instruction]) -> tuple[str, ...] | None:
    """None where the tool named every instruction; else nothing: whatever seems missing may be what it did not know."""
    return () if any(instruction.mnemonic in _UNKNOWN for instruction in code) else None


def disassemble(path: Path, tool: str) -> dict[str, list[Instruction]]:
    """Instructions by symbol; NoDisassembly where the tool cannot read this code."""
    functions: dict[str, list[Instruction]] = {}
    for symbol, instruction in _parsed(listing(path, tool).splitlines()):
        functions.setdefault(symbol, []).append(instruction)
    if not functions:
        raise NoDisassembly(f"{Path(tool).name} found no code: instructions are not counted")
    return functions


def _parsed(lines: Sequence[str]) -> Iterator[tuple[str, Instruction]]:
    symbol = ""
    for line in lines:
        label = _LABEL.match(line)
        if label:
            symbol = label.group(2)
            continue
        behind = _BEHIND.match(line)
        if behind:
            yield symbol, Instruction(int(behind.group(3), 16), behind.group(1), behind.group(2))
            continue
        before = _BEFORE.match(line)
        if before:
            yield symbol, Instruction(int(before.group(1), 16), before.group(2), before.group(3))
