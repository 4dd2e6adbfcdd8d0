"""The package knows nothing of the two ops, and its generic layers nothing of GEMM."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import tilewright

SOURCE = Path(tilewright.__file__).parent

# Where all ops go through, and none may be named.
GENERIC = (
    "*.py", "runtime/*.py", "dispatch/*.py", "cli/*.py", "codegen/*.py", "build/*.py", "inspect/*.py",
    "report/*.py", "report/assets/*",
    "api/__init__.py", "ops/*.py", "backends/*.py", "backends/*/backend.py", "backends/*/toolchain.py",
    "backends/*/driver.py", "include/tilewright/abi.h", "include/tilewright/export.h",
    "backends/*/host/*.cpp", "runtime/native/*",
)  # fmt: skip
# Files with a reason to name it all the same.
ALLOWED = {"__init__.py": "type checkers read the public names there; when it runs they are found by entry point"}


def text_files() -> Iterator[tuple[str, str]]:
    for path in sorted(SOURCE.rglob("*")):
        if (
            path.is_file()
            and "__pycache__" not in path.parts
            and path.suffix in (".py", ".h", ".cpp", ".jinja", ".json")
        ):
            yield path.relative_to(SOURCE).as_posix(), path.read_text(encoding="utf-8")


def test_no_file_of_the_package_names_the_two_ops() -> None:
    files = dict(text_files())
    assert len(files) > 100, "the guard looks at the wrong place"
    found = [name for name, text in files.items() if re.search("rowscale|regionstats", text, re.I)]
    assert not found


def test_generic_layers_do_not_name_gemm() -> None:
    files = sorted({path for pattern in GENERIC for path in SOURCE.glob(pattern)})
    assert len(files) > 60, "the guard looks at the wrong place"
    found = []
    for path in files:
        name = path.relative_to(SOURCE).as_posix()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if re.search("gemm", line, re.I) and name not in ALLOWED:
                found.append(f"{name}:{number}: {line.strip()}")
    assert not found, "\n".join(found)
    assert all((SOURCE / name).exists() for name in ALLOWED), "an exception for a file that is gone"
