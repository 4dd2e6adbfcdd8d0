"""Running compilers: one directly, many through one build.ninja.

Both take the same command lines.  Each compile's end is reported while the others still run, with
its exit code and everything it said.
"""

from __future__ import annotations

import os
import selectors
import shlex
import shutil
import signal
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from tilewright.build.children import Child
from tilewright.build.diagnose import Outcome
from tilewright.dataclass import dataclass
from tilewright.errors import ToolchainError
from tilewright.settings import child_environment

# Ninja's output wakes us when a compile ends; this bounds the wait where it is held back.
_WAKE_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Compile:
    """One command line and the library it makes."""

    argv: tuple[str, ...]
    source: Path
    output: Path


def ninja_binary() -> str:
    """The wheel's ninja, else one on the path."""
    try:
        import ninja
    except ImportError:
        path = None
    else:
        path = shutil.which("ninja", path=ninja.BIN_DIR)
    path = path or shutil.which("ninja")
    if path is None:
        raise ToolchainError(
            "the build tool ninja is not on this machine", rule="no-ninja", value="ninja", remedy="`pip install ninja`"
        )
    return path


def run_one(job: Compile, work: Path, environment: Mapping[str, str]) -> Outcome:
    """Run one compiler and wait for it; with a single kernel, ninja would only add its own start."""
    started = time.perf_counter()
    try:
        # Through a pipe: on a full disk, a file would lose the very words that say so.
        with Child(job.argv, work, child_environment(environment)) as child:
            log = child.words.read().decode("utf-8", errors="replace")
            code = child.wait()
    except OSError as error:
        code, log = 127, f"{job.argv[0]}: {error.strerror}\n"
    return Outcome(code, log, time.perf_counter() - started)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _escape(text: str) -> str:
    return text.replace("$", "$$")


def _escape_path(path: Path) -> str:
    return str(path).replace("$", "$$").replace(" ", "$ ").replace(":", "$:")


def build_file(compiles: Sequence[Compile]) -> str:
    """The text of build.ninja: one edge for each compile, which also reports its own end."""
    lines = ["rule compile", "  command = $line", "  description = $out", ""]
    for index, job in enumerate(compiles):
        command = _escape(shlex.join(job.argv))
        lines += [
            f"build {_escape_path(job.output)}: compile {_escape_path(job.source)}",
            # The shell's redirections keep each compiler's words apart and note start and end.
            f"  line = : > {index}.start; {command} > {index}.log 2>&1; "
            f"code=$$?; echo {index} $$code >> ends; exit $$code",
            "",
        ]
    return "\n".join(lines)


def run_many(
    compiles: Sequence[Compile], work: Path, environment: Mapping[str, str], jobs: int
) -> Generator[tuple[int, Outcome], None, None]:
    """Run all compiles, at most `jobs` at once; yields (index, outcome) as each ends, failed or not."""
    (work / "build.ninja").write_text(build_file(compiles), encoding="utf-8")
    ends = work / "ends"
    ends.touch()
    command = [ninja_binary(), "-k", "0", "-j", str(jobs), "-f", "build.ninja"]
    variables = child_environment({"NINJA_STATUS": "[%f/%t] ", **environment})
    output = bytearray()
    open_indexes = set(range(len(compiles)))
    # Asked to end, ninja ends its compilers, each of which has a process group of its own.
    with Child(command, work, variables, signal.SIGTERM) as ninja, ends.open("rb") as reports:
        for ended in _ticks(ninja, output):
            for index, code in _reports(reports):
                if index in open_indexes:
                    open_indexes.discard(index)
                    yield index, Outcome(code, _text(work / f"{index}.log"), _seconds(work, index))
            if ended:
                break
        code = ninja.wait()
    for index in sorted(open_indexes):
        # Its own report is missing: ninja was killed, or the disk is full.
        words = _text(work / f"{index}.log") + output.decode("utf-8", errors="replace")
        yield index, Outcome(code or 1, words, _seconds(work, index))


def _ticks(ninja: Child, output: bytearray) -> Iterator[bool]:
    """A False for each time something may have ended, then one True when ninja itself has."""
    with selectors.DefaultSelector() as selector:
        selector.register(ninja.words, selectors.EVENT_READ)
        while True:
            if selector.select(_WAKE_SECONDS):
                data = os.read(ninja.words.fileno(), 1 << 16)
                if not data:
                    ninja.wait()
                    yield True
                    return
                output += data
                del output[: -(1 << 16)]
            yield False


def _reports(file: IO[bytes]) -> Iterator[tuple[int, int]]:
    while True:
        place = file.tell()
        line = file.readline()
        if not line.endswith(b"\n"):
            file.seek(place)  # half a line: the rest follows
            return
        index, _, code = line.partition(b" ")
        yield int(index), int(code)


def _seconds(work: Path, index: int) -> float:
    try:
        return max(0.0, time.time() - (work / f"{index}.start").stat().st_mtime)
    except OSError:
        return 0.0
