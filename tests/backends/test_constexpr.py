"""Headers of arithmetic mean the same to Python as to a C++ compiler."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

import tilewright
from tests.built import why_no_compiler
from tilewright.backends.constexpr import Arithmetic
from tilewright.backends.cpu.toolchain import find_toolchain
from tilewright.errors import InternalError

SOURCE = Path(tilewright.__file__).parent
HEADERS = sorted(
    (path for path in SOURCE.glob("backends/**/include/**/*memory.h") if "backends/constexpr.py" in path.read_text()),
    key=lambda path: path.as_posix(),
)


def arithmetic(path: Path) -> Arithmetic:
    """The header with those that it includes."""
    folder, header = path.relative_to(SOURCE).as_posix().split("/include/")
    named = [line.split("<")[1].rstrip("> ") for line in path.read_text().splitlines() if line.startswith("#include")]
    included = [arithmetic(other) for other in HEADERS if any(other.as_posix().endswith(name) for name in named)]
    return Arithmetic(".".join(("tilewright", *folder.split("/"))), header, *included)


def test_every_family_with_such_a_header_is_found() -> None:
    assert len(HEADERS) >= 10


@pytest.mark.skipif(bool(why_no_compiler()), reason="there is no C++ compiler here")
def test_the_compiler_says_the_same(tmp_path: Path) -> None:
    r, lines, expected = random.Random(4), [], []
    for path in HEADERS:
        lines.append(f'#include "{path}"')
    lines += ['extern "C" int printf(const char *, ...);', "int main() {"]
    for path in HEADERS:
        for name, function in arithmetic(path).functions.items():
            for _ in range(20):
                values = [r.choice((0, 1, 2, 3, 4, 8, 16, 30, 64, 96, 128)) for _ in function.parameters]
                try:
                    expected.append(function(*values))
                except ZeroDivisionError:
                    continue
                call = f"{name}({', '.join(map(str, values))})" if function.parameters else name
                lines.append(f'  printf("%d\\n", int(tw::{call}));')
    (tmp_path / "all.cpp").write_text("\n".join([*lines, "}\n"]))
    include = [f"-I{folder}" for folder in SOURCE.glob("backends/**/include") if folder.is_dir()]
    compiler = [*find_toolchain().driver, "-std=c++17", "-w", *include]
    subprocess.run([*compiler, str(tmp_path / "all.cpp"), "-o", str(tmp_path / "all")], check=True)
    printed = subprocess.run([str(tmp_path / "all")], check=True, capture_output=True, text=True).stdout
    assert len(expected) > 1000
    assert [int(line) for line in printed.split()] == expected


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("constexpr int f(int x) { return x + y; }", "'y'"),
        ("constexpr int f(int x) { int y = x; return y; }", "'int'"),
        ("constexpr int f(int x) { return x << 1; }", "'<'"),
        ("constexpr double f = 1;", "'double'"),
        ("constexpr int f = 0.5;", "'.5;'"),
        ("constexpr int f(int x) { return x; }\nconstexpr int g = f(1, 2);", "2 arguments for 1"),
        ("constexpr int f = 1", "the end"),
    ],
)
def test_what_python_does_not_read_is_an_error(
    text: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "headers_here" / "include"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("")
    (folder / "x.h").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "headers_here", raising=False)
    with pytest.raises(InternalError, match="constexpr") as error:
        Arithmetic("headers_here", "x.h")("f", 1)
    assert told in str(error.value)


def test_division_is_towards_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "divided_here" / "include"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("")
    (folder / "x.h").write_text("constexpr int f(int x, int y) { return (0 - x) / y * 100 + (0 - x) % y; }")
    monkeypatch.syspath_prepend(tmp_path)
    assert Arithmetic("divided_here", "x.h")("f", 7, 2) == -301
