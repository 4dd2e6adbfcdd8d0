"""What a ROCm cross-compiler is made of: data from `rocm.json`, and the choice of versions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import resources
from typing import Any

from tilewright.errors import ToolchainError
from tilewright.files import checked
from tilewright.toolchains.packages import Index, Package, Relation, closure, relations, upstream, version_key


@dataclass(frozen=True, slots=True)
class Edition:
    """A distribution: its base suite, and the suites on top of it."""

    base: str
    overlays: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Headers:
    """Where the CK Tile headers come from: a source archive of a project on the Python index."""

    project: str
    line: str
    version: str
    inside: str  # folder of the archive
    folders: tuple[str, ...]
    licences: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Recipe:
    """`rocm.json` with names: every field is explained where it is used."""

    lines: tuple[str, ...]  # version lines in the order of preference; the first is the tested one
    line_sources: tuple[str, ...]  # source packages whose version is ROCm's
    roots: tuple[str, ...]
    sysroot_roots: tuple[str, ...]  # what programs are compiled and linked against; * stands for the newest
    editions: tuple[Edition, ...]
    components: tuple[str, ...]
    skip: tuple[str, ...]  # packages a compiler run from its folder never needs
    sysroot_skip: tuple[str, ...]
    leave_out: tuple[str, ...]  # files of the others it never needs
    tools: tuple[str, ...]
    headers: Headers
    tested: dict[str, Any]

    def keeps(self, path: str) -> bool:
        """Whether a file of a package belongs into the toolchain."""
        if path.startswith("usr/share/doc/"):
            return path.endswith("/copyright")
        if any(fnmatchcase(path, pattern) for pattern in self.leave_out):
            return False
        if path.startswith("usr/bin/"):
            return path == "usr/bin/hipcc"
        inside_llvm = re.match(r"usr/lib/llvm-\d+/bin/(.+)$", path)
        if inside_llvm:
            return inside_llvm[1] in self._tool_files()
        # Static archives of LLVM and the profiling C library are large and never linked.
        return not re.match(r"usr/lib/llvm-\d+/lib/lib[^/]*\.a$", path)

    def _tool_files(self) -> set[str]:
        # Names that are links to one of the others' binaries: the binary must come along.
        return {*self.tools, "llvm-readobj", "llvm-objcopy"}


def load_recipe() -> Recipe:
    text = resources.files("tilewright.toolchains").joinpath("rocm.json").read_text(encoding="utf-8")
    return checked(text, Recipe, source="toolchains/rocm.json", what="a recipe of a toolchain")


def in_line(version: str, line: str) -> bool:
    """7.2.4+dfsg is in the lines 7.2 and 7, 7.20 only in 7."""
    return re.match(re.escape(line) + r"(?![0-9])", upstream(version)) is not None


@dataclass(frozen=True, slots=True)
class Plan:
    """The packages to unpack and the versions that name the folders inside.

    The compiler comes from the newest suites and runs with its own libraries.  What it compiles is
    linked against the libraries of this machine's suite (`sysroot`), or it would not load here.
    """

    packages: tuple[Package, ...]
    sysroot: tuple[Package, ...]
    line: str
    rocm: str  # 7.2.4
    llvm: str  # 22
    gcc: str  # 16

    @property
    def all_packages(self) -> tuple[Package, ...]:
        """Each once: a machine of the newest suite has some in both."""
        return tuple({package.sha256: package for package in (*self.packages, *self.sysroot)}.values())

    @property
    def download_bytes(self) -> int:
        return sum(package.size for package in self.all_packages)

    @property
    def installed_bytes(self) -> int:
        return sum(package.installed_bytes for package in self.all_packages)


def make_plan(
    recipe: Recipe, index: Index, base: str, overlays: Sequence[str], sysroot: Sequence[Package]
) -> Plan | None:
    """Which versions to take; None where the archive has no ROCm of a known line."""
    hipcc = index.versions("hipcc")
    line = next((known for known in recipe.lines if any(in_line(have.version, known) for have in hipcc)), None)
    if line is None:
        return None
    order = {suite: rank for rank, suite in enumerate((base, *overlays))}

    def prefer(versions: Sequence[Package]) -> list[Package]:
        newest = sorted(versions, key=lambda version: version_key(version.version), reverse=True)
        if newest[0].source in recipe.line_sources:
            return sorted(newest, key=lambda version: not in_line(version.version, line))
        return sorted(newest, key=lambda version: order.get(version.suite, len(order)))

    packages = closure(index, [Relation(root) for root in recipe.roots], prefer, recipe.skip)
    root = next(package for package in packages if package.name == "hipcc")
    return Plan(
        packages=tuple(packages),
        sysroot=tuple(sysroot),
        line=line,
        rocm=upstream(root.version).split("+")[0],
        llvm=_llvm_of(root),
        gcc=_gcc_of(sysroot),
    )


def plan_sysroot(recipe: Recipe, index: Index) -> list[Package] | None:
    """The C and C++ libraries of the suites in `index`, the newest of each; None where they are not complete."""
    roots = []
    for pattern in recipe.sysroot_roots:
        names = sorted(index.names(pattern), key=lambda name: [int(number) for number in re.findall(r"\d+", name)])
        if not names:
            return None
        roots.append(Relation(names[-1]))

    def prefer(versions: Sequence[Package]) -> list[Package]:
        return sorted(versions, key=lambda version: version_key(version.version), reverse=True)

    return closure(index, roots, prefer, recipe.sysroot_skip)


def _llvm_of(package: Package) -> str:
    """LLVM's major version, which is part of package names: rocm-device-libs-22."""
    pattern = re.compile(r"rocm-device-libs-(\d+)$")
    for group in relations(package.depends):
        for relation in group:
            match = pattern.match(relation.name)
            if match:
                return match[1]
    raise ToolchainError(
        f"{package.name} {package.version} depends on no rocm-device-libs-N: its packages have a new layout",
        rule="no-rocm-in-archive",
        value=package.version,
        remedy="use ROCm's own packages, or a newer Tilewright",
    )


def _gcc_of(sysroot: Sequence[Package]) -> str:
    matches = [re.match(r"libstdc\+\+-(\d+)-dev$", package.name) for package in sysroot]
    return next(match[1] for match in matches if match)


def moved_on(recipe: Recipe, plan: Plan) -> list[str]:
    """Sentences about everything that is not the tested version."""
    notes = []
    if plan.line != recipe.lines[0]:
        notes.append(f"the archive has no ROCm {recipe.lines[0]} any more; {plan.rocm} is untested with Tilewright")
    notes += _differences(recipe.tested.get("packages", {}), plan.packages)
    suite, tested_suite = _suite(plan.sysroot), recipe.tested.get("sysroot_suite", "")
    if suite != tested_suite:
        notes.append(f"programs are linked against the libraries of {suite}: tested with those of {tested_suite}")
    else:
        notes += _differences(recipe.tested.get("sysroot", {}), plan.sysroot)
    return notes


def _suite(packages: Sequence[Package]) -> str:
    return packages[0].suite if packages else ""


def _differences(tested: dict[str, Any], packages: Sequence[Package]) -> list[str]:
    notes = []
    for package in packages:
        known = tested.get(package.name)
        if known is None:
            notes.append(f"{package.name} {package.version}: not among the packages it was tested with")
        elif known["version"] != package.version:
            notes.append(f"{package.name} {package.version}: tested with {known['version']}")
        elif known["sha256"] != package.sha256:
            notes.append(f"{package.name} {package.version}: the tested file had another digest")
    return notes
