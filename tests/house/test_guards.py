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

# Where all ops go through, and none may be named: whatever lies in no op's own folder or file, but for these.
KINDS = (".py", ".h", ".cpp", ".jinja", ".js", ".css", ".html")
APART = {
    "backends/hip/include/": "headers for AMD speak of classes of CK Tile, which have such names",
    "compat/": "stands in for the dispatchers of others, each of an op",
    "torch/": "each op as PyTorch knows it: schemas, gradients, modules",
}
# Files with a reason to name one all the same.
ALLOWED = {
    "__init__.py": "type checkers read the public names there; when it runs they are found by entry point",
    "cli/main.py": "the first line of --help says what the program is for",
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
    files = [path for path in SOURCE.rglob("*") if path.suffix in KINDS and "__pycache__" not in path.parts]
    places = {path: path.relative_to(SOURCE).as_posix() for path in sorted(files)}
    mine = re.compile("|".join(OPS))
    return [path for path, place in places.items() if not mine.search(place) and not place.startswith(tuple(APART))]


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
    assert OPS == ("attention", "attention_backward", "conv", "gemm"), "the guard looks at the wrong place"
    files = {path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8") for path in shared_files()}
    assert len(files) > 250, "the guard looks at the wrong place"
    layers = ("arch", "build", "cli", "codegen", "dispatch", "inspect", "learn", "native", "report", "runtime", "tune")
    assert not [one for one in (*layers, "settings.py") if not any(name.startswith(one) for name in files)]
    assert not [one for one in APART if not any((SOURCE / one).iterdir())], "an exception that nothing needs"
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
