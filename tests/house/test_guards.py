"""The package knows nothing of the two ops, and the layers that all ops share name none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tilewright

SOURCE = Path(tilewright.__file__).parent
OPS = tuple(sorted(path.name for path in (SOURCE / "ops").iterdir() if (path / "spec.py").exists()))
# Other words for an op, for a part of one, or for a direction of it.
ALIASES = ("append_?kv", "dgrad", "flash_?attn", "fmha", "kv_?cache", "matmul", "mha", "paged_?kv", "sdpa", "wgrad")
# "conv" begins words that have nothing to do with it.
_NAMES = re.compile("|".join([*OPS, *ALIASES]).replace("conv", "conv(?!er|en|ey|in|ex)"), re.I)

# Where all ops go through, and none may be named: whatever lies in no op's own folder or file.  Headers for AMD are
# left out: they speak of classes of CK Tile, which have such names.
SHARED = (
    "*.py", "arch/*.py", "backends/**/*.py", "build/*.py", "cli/*.py", "codegen/*.py", "dispatch/*.py", "inspect/*.py",
    "learn/*.py", "native/*.py", "ops/*.py", "report/*.py", "report/assets/*", "runtime/**/*.py", "toolchains/*.py",
    "tune/*.py", "api/__init__.py", "backends/*/host/*.cpp", "runtime/native/*",
    "include/tilewright/*.h", "backends/gpu/include/**/*.h", "backends/cpu/include/**/*.h",
    "backends/cuda/include/tilewright/cuda/*/*.h",
)  # fmt: skip
# Files with a reason to name one all the same.
ALLOWED = {
    "__init__.py": "type checkers read the public names there; when it runs they are found by entry point",
    "backends/cpu/include/tilewright/cpu/epilogues/epilogue.h": "arguments of a product, which conv fills in too",
}


def text_files() -> Iterator[tuple[str, str]]:
    for path in sorted(SOURCE.rglob("*")):
        if (
            path.is_file()
            and "__pycache__" not in path.parts
            and path.suffix in (".py", ".h", ".cpp", ".jinja", ".json")
        ):
            yield path.relative_to(SOURCE).as_posix(), path.read_text(encoding="utf-8")


def shared_files() -> list[Path]:
    """Without the folders and files of an op, which have its name: ops/gemm, runtime/bindings/conv, gemm_args.h."""
    files = {path for pattern in SHARED for path in SOURCE.glob(pattern) if path.is_file()}
    return sorted(
        path for path in files if not re.search("|".join(OPS), path.relative_to(SOURCE).as_posix())
        and "__pycache__" not in path.parts
    )  # fmt: skip


def named(text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        if _NAMES.search(line):
            yield f"{number}: {line.strip()}"


def test_no_file_of_the_package_names_the_two_ops() -> None:
    files = dict(text_files())
    assert len(files) > 100, "the guard looks at the wrong place"
    found = [name for name, text in files.items() if re.search("rowscale|regionstats", text, re.I)]
    assert not found


def test_shared_layers_name_no_op() -> None:
    assert OPS == ("attention", "conv", "gemm"), "the guard looks at the wrong place"
    files = {path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8") for path in shared_files()}
    assert len(files) > 250, "the guard looks at the wrong place"
    found = [f"{name}:{line}" for name, text in files.items() if name not in ALLOWED for line in named(text)]
    assert not found, "\n".join(found)
    assert all(any(named(files[name])) for name in ALLOWED), "an exception that nothing needs"


@pytest.mark.parametrize(
    "line", ["op == 'gemm'", "ConvProblem", "x.is_attention", "append_kv()", "FMHA", "torch_sdpa", "a convolution"]
)
def test_the_guard_finds_a_name(line: str) -> None:
    assert list(named(f"\n{line}\n")) == [f"2: {line}"]


def test_the_guard_takes_words_that_only_begin_alike() -> None:
    assert not list(named("convert by convention, conveniently; conversion; it converges"))
