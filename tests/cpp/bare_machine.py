"""A machine that has CMake, g++ and an installed prefix, and nothing else: no Python, no checkout, no network.

    python -m tests.cpp.bare_machine [--examples gemm/01_basic ...] [--wheel] [--keep FOLDER]

A root folder is made of the Debian packages of CMake, make and g++ with all they depend on, as they are installed
here, and entered with chroot.  libtilewright's prefix, the sources of the C++ examples and exported kernels are put
there; the examples are built with `find_package` alone, and run.  With --wheel, what pip installs stands in place of
the prefix: the sources of libtilewright, which are compiled with the examples.  Needs root, and Debian's dpkg.
"""

from __future__ import annotations

import argparse
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.cpp import programs
from tilewright.arch import runnable_host_archs

WANTED = ("cmake", "make", "g++", "dash", "coreutils")
EXAMPLES = programs.ROOT / "examples" / "cpp"
NAMES: list[str] = runpy.run_path(str(EXAMPLES / "export_kernels.py"))["examples"]()
# In a mount namespace of its own, so that nothing of it is left behind.
ENTER = 'mount -t proc proc "$0/proc" && exec env -i PATH=/usr/bin:/bin HOME=/ "$(command -v chroot)" "$0" "$@"'


def why_not() -> str:
    """Why such a machine cannot be had here; empty where it can."""
    needed = ("dpkg-query", "chroot", "unshare", "cmake", "make")
    missing = [name for name in needed if not shutil.which(name)]
    if missing:
        return f"needs {missing[0]}"
    if os.getuid() != 0 or subprocess.run(["unshare", "--mount", "true"], check=False, capture_output=True).returncode:
        return "needs root and mount namespaces"
    missing = [name for name in WANTED if name not in packages(WANTED)]
    return f"Debian's package {missing[0]} is not installed" if missing else ""


def packages(wanted: Iterable[str]) -> list[str]:
    """Packages with all they depend on, of those that are installed."""
    fields = "${Package}\t${Depends}, ${Pre-Depends}\t${Provides}\t${db:Status-Status}\n"
    depends: dict[str, str] = {}
    provided: dict[str, str] = {}
    for row in programs.call("dpkg-query", "-W", "-f", fields).splitlines():
        name, needs, provides, status = row.split("\t")
        if status == "installed":
            depends[name] = needs
            provided |= {_name(word): name for word in provides.split(",") if word.strip()}
    known = {**provided, **{name: name for name in depends}}
    todo, closure = list(wanted), dict[str, None]()
    while todo:
        package = known.get(todo.pop(), "")
        if not package or package in closure:
            continue
        closure[package] = None
        for alternatives in depends[package].split(","):
            todo += [name for name in map(_name, alternatives.split("|")) if name in known][:1]
    return sorted(closure)


def _name(word: str) -> str:
    return re.split(r"[\s(:]", word.strip())[0]


def make_root(root: Path) -> None:
    """The files of these packages; where /bin is a link into /usr, it is one there too."""
    for name in ("bin", "lib", "lib64", "sbin"):
        if Path("/", name).is_symlink():
            (root / "usr" / name).mkdir(parents=True, exist_ok=True)
            (root / name).symlink_to(f"usr/{name}")
    for package in packages(WANTED):
        for line in programs.call("dpkg-query", "-L", package).splitlines():
            here, there = Path(line), root / line.lstrip("/")
            if line.startswith(("/usr/share/doc/", "/usr/share/man/", "/usr/share/locale/")) or there.exists():
                continue
            if here.is_dir() and not here.is_symlink():
                there.mkdir(parents=True, exist_ok=True)
            elif here.is_symlink() or here.is_file():
                there.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(here, there, follow_symlinks=False)
    for link in (Path("/usr/bin/c++"), Path("/etc/alternatives/c++")):  # made by update-alternatives, of no package
        there = root / str(link).lstrip("/")
        if link.is_symlink() and not there.is_symlink():
            there.parent.mkdir(parents=True, exist_ok=True)
            there.symlink_to(link.readlink())
    for name in ("proc", "tmp", "dev"):
        (root / name).mkdir(exist_ok=True)
    for device in ("null", "zero", "urandom"):
        facts = Path("/dev", device).stat()
        os.mknod(root / "dev" / device, facts.st_mode, facts.st_rdev)


def install_prefix(goal: Path, work: Path) -> None:
    ninja = ("-G", "Ninja") if shutil.which("ninja") else ()
    programs.call("cmake", *ninja, "-S", str(programs.CPP), "-B", str(work / "library"))
    programs.call("cmake", "--build", str(work / "library"))
    programs.call("cmake", "--install", str(work / "library"), "--prefix", str(goal))


def install_wheel(goal: Path, work: Path) -> None:
    """What pip makes of a checkout, without what it depends on."""
    checkout = work / "checkout"  # setuptools writes beside what it builds
    checkout.mkdir()
    for part in ("src", "cpp", "pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        copy = shutil.copytree if (programs.ROOT / part).is_dir() else shutil.copyfile
        copy(programs.ROOT / part, checkout / part)
    pip = (sys.executable, "-m", "pip", "install", "-qq", "--no-deps", "--no-build-isolation", "--target")
    programs.call(*pip, str(goal), str(checkout))


def provision(root: Path, examples: Sequence[str], work: Path, *, wheel: bool) -> None:
    """What the user of that machine was given: a prefix, sources, kernels, and a bundle for the program of one."""
    (install_wheel if wheel else install_prefix)(root / "opt" / "tilewright", work)
    shutil.copytree(EXAMPLES, root / "src", ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    plain = [name for name in examples if not name.startswith("end_to_end/")]
    if plain:
        export = (sys.executable, str(EXAMPLES / "export_kernels.py"), str(root / "kernels"), "--examples")
        programs.call(*export, *plain)
    if len(plain) < len(examples):
        build = (sys.executable, "-m", "tilewright", "bundle", "build", "--threads", "1,2", "--targets")
        problems = str(EXAMPLES / "end_to_end" / "problems.json")
        target = runnable_host_archs()[0].name
        programs.call(*build, target, "--problems", problems, "-o", str(root / "model.twb"), "--strict")


def inside(root: Path, *words: str) -> str:
    return programs.call("unshare", "--mount", "sh", "-c", ENTER, str(root), *words)


def build_and_run(root: Path, examples: Sequence[str], *, wheel: bool) -> None:
    """With nothing but `find_package`; an example that computes something else fails."""
    for absent in ("python3", "ninja", "git", "pkg-config"):
        assert not list(root.glob(f"usr/bin/{absent}*")), f"{absent} is there, and this machine is to be without"
    chosen = ";".join(name.replace("/", "_") for name in examples)
    place = "-Dtilewright_DIR=/opt/tilewright/tilewright/cpp/cmake" if wheel else "-DCMAKE_PREFIX_PATH=/opt/tilewright"
    inside(root, "cmake", "-S", "/src", "-B", "/build", place, f"-DEXAMPLES={chosen}", "-DCMAKE_CXX_FLAGS=-O0")
    inside(root, "cmake", "--build", "/build")
    for name in examples:
        data = "/model.twb" if name.startswith("end_to_end/") else "/kernels"
        said = inside(root, f"/build/{name.replace('/', '_')}", data)
        assert said.endswith("all right\n"), f"{name}: {said}"
        sys.stdout.write(f"{name}: all right\n")


def attempt(examples: Sequence[str], folder: Path, *, wheel: bool = False) -> None:
    make_root(folder / "root")
    provision(folder / "root", examples, folder, wheel=wheel)
    build_and_run(folder / "root", examples, wheel=wheel)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", nargs="*", default=[], help="such as gemm/01_basic; all where none are named")
    parser.add_argument("--wheel", action="store_true", help="with what pip installs in place of a prefix")
    parser.add_argument("--keep", type=Path, help="a folder that does not exist yet, in which the machine stays")
    options = parser.parse_args()
    why = why_not()
    if why:
        sys.stderr.write(f"{why}\n")
        return 1
    examples = options.examples or NAMES
    if options.keep:
        options.keep.mkdir(parents=True)
        attempt(examples, options.keep, wheel=options.wheel)
    else:
        with tempfile.TemporaryDirectory() as folder:
            attempt(examples, Path(folder), wheel=options.wheel)
    source = "what pip installs" if options.wheel else "the prefix"
    sys.stdout.write(f"{len(examples)} examples built and run with CMake, g++ and {source} alone\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
