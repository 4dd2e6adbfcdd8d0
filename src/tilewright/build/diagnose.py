"""What a compiler's end means: a refused source, a missing or killed compiler, a full disk."""

from __future__ import annotations

import errno
import re
import shlex
import shutil
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tilewright.build.store import FREE_SPACE
from tilewright.dataclass import dataclass
from tilewright.errors import CompileError, StoreError, TilewrightError, ToolchainError

# What a line that reports a real error looks like, best first.  Messages are in English because
# compilers are started with LC_ALL=C.
_ERROR_LINES = (
    re.compile(r"(?:^|: )(?:fatal )?error: ", re.I),
    re.compile(r"internal compiler error|undefined (?:reference|symbol)|\bld(?:\.\w+)?: |collect2: "),
)
_KILLED = re.compile(
    r"(?:Killed|Terminated)(?:: \d+)?\s+signal terminated program|unable to execute command: (?:Killed|Terminated)"
)
_NO_MEMORY = re.compile(r"out of memory|virtual memory exhausted|Cannot allocate memory|std::bad_alloc", re.I)
_NO_SPACE = re.compile(r"No space left on device|File size limit exceeded|Disk quota exceeded|File too large")
# The compiler driver's word that its linker failed: why is what the linker said before, and may be lost.
_PASSED_ON = re.compile(r"^collect2: error: ld returned \d+ exit status\s*$", re.M)
_ROOM = 1 << 20  # less than this and a compile has no room
NO_COMPILER = "no-compiler"
_KILLING = {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGXCPU}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one compile ended: exit code (negative or above 128 for a signal), what it said, how long it took."""

    code: int
    log: str
    seconds: float


def first_error(log: str) -> str:
    """The line a person should read first: an error, not a warning or a note."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    for pattern in _ERROR_LINES:
        for line in lines:
            if pattern.search(line):
                return line
    return lines[-1] if lines else "the compiler printed nothing"


def _line_of(words: str, log: str) -> str:
    return next(line.strip() for line in log.splitlines() if words in line)


def says_why(outcome: Outcome) -> bool:
    """Whether a failure's message or its signal gives a reason; else its log may be lost with the disk's space."""
    known = (*_ERROR_LINES, _KILLED, _NO_MEMORY, _NO_SPACE)
    log = _PASSED_ON.sub("", outcome.log)
    return any(pattern.search(log) for pattern in known) or _signal_of(outcome.code) is not None


def _no_room(store: Path) -> bool:
    """Whether a file of some size cannot be written where the compilers write; quotas count too."""
    try:
        with tempfile.TemporaryFile(dir=store) as file:
            file.write(bytes(_ROOM))
            file.flush()
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    return False


def stops_all(error: TilewrightError) -> bool:
    """Whether a failure says nothing about its kernel: the store cannot be written, or there is no compiler."""
    return isinstance(error, StoreError) or error.rule == NO_COMPILER


def _signal_of(code: int) -> signal.Signals | None:
    number = -code if code < 0 else code - 128  # a shell reports a signal as 128 + its number
    try:
        return signal.Signals(number) if number > 0 else None
    except ValueError:
        return None


def compile_failure(
    name: str, argv: Sequence[str], outcome: Outcome, *, log_path: Path | None, reproduce: str, store: Path
) -> TilewrightError:
    """The one error for a compile that made no library."""
    log, sign = outcome.log, _signal_of(outcome.code)
    where = f"; full log: {log_path}" if log_path is not None else ""
    fewer = "run fewer compilers at once (TILEWRIGHT_JOBS=1) or free some memory"
    full = _NO_SPACE.search(log) or sign == signal.SIGXFSZ
    if full or (not says_why(outcome) and _no_room(store)):
        detail = f": {_line_of(full.group(), log)}" if isinstance(full, re.Match) else ""
        return StoreError(
            f"the kernel store {store} is full, so compiling {name} failed{detail}",
            rule="store-full",
            value=str(store),
            remedy=f"{FREE_SPACE} or set TILEWRIGHT_CACHE_DIR to another folder",
        )
    if outcome.code in (126, 127) and shutil.which(argv[0]) is None:
        return ToolchainError(
            f"the compiler {argv[0]} is gone or cannot be run",
            rule=NO_COMPILER,
            value=argv[0],
            remedy="`tilewright doctor` says what is there and what to install",
        )
    if _KILLED.search(log) or sign in _KILLING:
        cause = sign.name if sign is not None else first_error(log)
        return ToolchainError(
            f"the compiler was killed ({cause}) while it built {name}, probably for want of memory{where}",
            rule="compiler-killed",
            value=name,
            remedy=fewer,
            reproduce=reproduce,
        )
    if _NO_MEMORY.search(log):
        return ToolchainError(
            f"the compiler ran out of memory while it built {name}: {first_error(log)}{where}",
            rule="compiler-out-of-memory",
            value=name,
            remedy=fewer,
            reproduce=reproduce,
        )
    if sign is not None:
        return ToolchainError(
            f"the compiler {shlex.quote(argv[0])} crashed ({sign.name}) while it built {name}{where}",
            rule="compiler-crashed",
            value=name,
            remedy="use another compiler (`tilewright doctor` shows the one in use) or report the crash to its makers",
            reproduce=reproduce,
        )
    what = f"does not compile: {first_error(log)}" if outcome.code else "compiled without error, but made no library"
    return CompileError(
        f"kernel {name} {what}{where}",
        rule="compile-failed",
        value=name,
        remedy="read the log, fix the header, template or flags it names, and build again",
        reproduce=reproduce,
        log_path=str(log_path) if log_path is not None else "",
    )
