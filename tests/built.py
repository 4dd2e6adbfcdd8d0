"""What the tests of a session compile, compiled together: in parallel, into one store, nothing twice."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from tilewright import settings
from tilewright.arch import arch as facts_of
from tilewright.arch import runnable_host_archs
from tilewright.backends.base import backend
from tilewright.backends.cpu.toolchain import find_toolchain
from tilewright.build import Artifact, Builder
from tilewright.dispatch.kernels import kernel as loaded
from tilewright.errors import TilewrightError, ToolchainError
from tilewright.ops.base import KernelSpec
from tilewright.runtime.loader import Kernel

NO_COMPILER = "needs a C++ compiler"  # how the reason of such a skip begins
NO_COMPILER_RULE = "no-compiler"  # of the error there is without one


def why_not_compiled(arch: str) -> str:
    """Why this machine's compilers cannot make kernels of an arch; empty where they can."""
    try:
        backend(facts_of(arch).backend).toolchain().flags(arch)
    except ToolchainError as error:
        lacks = f"{NO_COMPILER}: " if error.rule == NO_COMPILER_RULE else ""
        return f"{lacks}{error.message}; {error.remedy}"
    return ""


def why_not_run(arch: str) -> str:
    """Why this machine does not run an arch of CPUs; empty where it does."""
    names = [one.name for one in runnable_host_archs()]
    return "" if arch in names else f"compiled, not run: this CPU has {', '.join(names)}, not {arch}"


def why_no_compiler() -> str:
    """Empty where there is a C++ compiler."""
    return why_not_compiled("generic")


class Built:
    """Kernels by their spec; the first one asked for has all of its backend built, which were announced."""

    def __init__(self, announced: Iterable[KernelSpec]) -> None:
        self._artifacts: dict[KernelSpec, Artifact] = {}
        self._waiting: dict[str, list[KernelSpec]] = {}
        for spec in dict.fromkeys(announced):
            self._waiting.setdefault(facts_of(spec.arch).backend, []).append(spec)

    def artifact(self, spec: KernelSpec) -> Artifact:
        """Compiled; a machine without a compiler for it skips the test, and a kernel that fails fails its own test."""
        if spec not in self._artifacts:
            why = why_not_compiled(spec.arch)
            if why:
                pytest.skip(why)
            self.together(self._waiting.pop(facts_of(spec.arch).backend, []))
            self._artifacts[spec] = Builder().build_one(spec)
        return self._artifacts[spec]

    def together(self, specs: Iterable[KernelSpec]) -> None:
        """Build what can be built; errors are left to those who ask for the kernel."""
        wanted = [spec for spec in specs if not why_not_compiled(spec.arch)]
        with suppress(TilewrightError):
            Builder().build_many(wanted)

    def __getitem__(self, spec: KernelSpec) -> Kernel:
        """A kernel of the CPU to be run; the test is skipped where it is compiled only."""
        self.artifact(spec)
        why = why_not_run(spec.arch)
        if why:
            pytest.skip(why)
        return loaded(spec)


def library_with_cxx(source: Path) -> Path:
    """A file of tests as a library; unlike kernels it may use the C++ library, which their flags leave out."""
    why = why_no_compiler()
    if why:
        pytest.skip(why)
    toolchain = find_toolchain()
    text = source.read_bytes()
    digest = hashlib.sha256(text + toolchain.identity.digest.encode()).hexdigest()
    folder = settings.current().cache_dir / "of-tests"
    made = folder / f"{source.stem}-{digest[:16]}.so"
    if not made.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as work:
            new = Path(work) / made.name
            command = [
                *toolchain.driver,
                "-std=c++17",
                "-O1",
                "-fPIC",
                "-shared",
                "-pthread",
                "-o",
                str(new),
                str(source),
            ]
            environment = settings.child_environment(dict(toolchain.environment(Path(work))))
            done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
            assert done.returncode == 0, done.stderr
            new.replace(made)
    return made
