"""The source of a selection library is whole, and needs no C++ library: zig's compiler finds no header of one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tilewright
from tilewright.backends.base import backend
from tilewright.backends.cpu.toolchain import candidates
from tilewright.native.library import library
from tilewright.native.source import text_of

BACKENDS, OPS = ("cpu", "cuda", "hip"), ("gemm", "conv", "attention")
INCLUDE = re.compile(r"^\s*#\s*include\s*[<\"]([^>\"]+)[>\"]", re.M)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", BACKENDS)
def test_a_selection_library_includes_headers_of_c_alone(name: str, op: str) -> None:
    native = getattr(backend(name).kernels(op), "native", None)
    assert native is not None
    text = text_of(native.set_name, native.source())
    included = INCLUDE.findall(text)
    assert included
    assert [one for one in included if not one.endswith(".h") or one.startswith("tilewright/")] == []
    # A list in braces that a loop goes over is an initializer_list, with a header of the C++ library.
    assert not re.search(r"for \([^;)]*: *\{", text)


@pytest.mark.skipif(not candidates(), reason="no C++ compiler")
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", BACKENDS)
def test_every_selection_library_compiles(name: str, op: str) -> None:
    """One that does not is only warned of: kernels are then taken as their pool lists them."""
    native = getattr(backend(name).kernels(op), "native", None)
    assert native is not None
    assert library(native) is not None


def test_headers_of_the_cpu_s_kernels_include_headers_of_c_alone() -> None:
    package = Path(tilewright.__file__).parent
    ours = package / "include"
    for_pytorch = ours / "tilewright/torch"  # compiled as `cxx_library`, where PyTorch is, which has that library too
    headers = [*(package / "backends/cpu").rglob("*.h"), *ours.rglob("*.h")]
    headers = [header for header in headers if for_pytorch not in header.parents]
    assert len(headers) > 50
    odd = {
        str(header.relative_to(package)): more
        for header in headers
        if (more := [one for one in INCLUDE.findall(header.read_text(encoding="utf-8")) if not one.endswith(".h")])
    }
    assert odd == {}
