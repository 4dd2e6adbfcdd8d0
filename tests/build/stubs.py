"""Compilers that are a few lines of shell: they tell who they are and then behave as a test wants."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tilewright.backends.base import CompilerIdentity
from tilewright.ops import op
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm.pools import signatures

# Answers the questions of `identify`, notes each compile, and finds source and output.
_FRAME = """#!/bin/sh
for word in "$@"; do
  case "$word" in
    --version) echo "g++ (Stub) {version}"; exit 0;;
    -dumpmachine) echo x86_64-stub-linux; exit 0;;
    -dumpfullversion) echo {version}; exit 0;;
  esac
done
while [ $# -gt 0 ]; do
  case "$1" in -o) out=$2; shift;; *.cpp) src=$1;; esac
  shift
done
echo "${{src##*/}}" >> {record}
{body}
"""
# Written in two halves with a pause between, so that a kill can hit the middle.
SLOW_COPY = 'head -c 100 "$src" > "$out"; sleep 0.02; cat "$src" > "$out"'
COPY = 'cat "$src" > "$out"'


@dataclass(frozen=True)
class Stub:
    """A stub compiler: its path is the setting `cxx`, its record tells what it compiled."""

    path: Path
    record: Path

    def compiled(self) -> list[str]:
        """The sources of kernels.  A selection library is compiled where no test before loaded it."""
        sources = self.record.read_text().split() if self.record.exists() else []
        return [one for one in sources if not one.startswith("tilewright_select_")]


def write_stub(folder: Path, body: str = COPY, *, version: str = "1.0", name: str = "stub-c++") -> Stub:
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / f"{name}.record"
    path = folder / name
    path.write_text(_FRAME.format(version=version, record=record, body=body))
    path.chmod(0o755)
    return Stub(path, record)


def tiny_specs(count: int = 6, arch: str = "generic") -> list[KernelSpec]:
    """The smallest legal kernels: the generic ones of several signatures."""
    found = signatures(["fp32", "fp16", "bf16"], ["rrr", "rcr", "crr"], ["standard"])
    return [op("gemm").fallback_spec(signature, arch) for signature, _ in zip(found, range(count), strict=False)]


_SOMEONE = CompilerIdentity("gcc", "gcc 1.0", "d" * 64)


@dataclass(frozen=True)
class FakeTools:
    """A toolchain made of values, for tests of keys."""

    dirs: tuple[Path, ...]
    identity: CompilerIdentity = _SOMEONE
    options: tuple[str, ...] = ("-O3", "-fPIC")
    library_suffix: str = ".so"
    driver: tuple[str, ...] = ("fake-c++",)
    variables: Mapping[str, str] = field(default_factory=dict)

    def flags(self, arch: str) -> tuple[str, ...]:
        return self.options

    def include_dirs(self, op: str = "") -> tuple[Path, ...]:
        return self.dirs

    def command(self, source: Path, output: Path, arch: str, op: str = "") -> list[str]:
        return ["false", *self.options, str(source), str(output)]

    def environment(self, work: Path) -> Mapping[str, str]:
        return self.variables

    def memory_per_job(self, spec: KernelSpec | None = None) -> int:
        return 1 << 20


def in_child(body: Callable[[], object]) -> int:
    """Fork, run `body` in the child, and give its process id; the child's exit code is 0 when `body` returns."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        # Whoever started the tests in the background has interrupts ignored; a child of ours hears of them.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        body()
        code = 0
    except BaseException as error:  # the child must never return into the test runner
        os.write(2, f"child: {type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(code)


def wait_code(pid: int, seconds: float = 60.0) -> int:
    """The exit code of a child, negative for a signal; a child that hangs is killed and fails the test."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError(f"the child did not end within {seconds} s")
