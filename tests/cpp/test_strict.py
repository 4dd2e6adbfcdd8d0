"""What strict selection says in C++ where only a fallback kernel serves a problem."""

from __future__ import annotations

from pathlib import Path

import pytest

import tilewright as tw
from tests.cpp import programs
from tilewright import ops
from tilewright.dispatch import registry_json
from tilewright.native.judge import native_kernels

pytestmark = pytest.mark.skipif(bool(programs.why_not()), reason=programs.why_not() or "a compiler is here")

TARGET = "generic"


def exported(folder: Path) -> str:
    """A registry with the fallback kernel alone of GEMM, and one that decodes beside its own of attention."""
    gemm, attention = ops.op("gemm"), ops.op("attention")
    alone = gemm.fallback_spec(gemm.signature_of(tw.GemmProblem(m=33, n=20, k=17)), TARGET)
    signature = attention.signature_of(tw.AttentionProblem(2, 9, 27, 109, 32, heads_kv=3))
    decode = next(spec for spec in attention.candidates(signature, TARGET) if "decode" in spec.name)
    files = {}
    for spec in (alone, decode):
        kernels = native_kernels((spec,))
        assert kernels is not None
        library = registry_json.selection_library(kernels)
        if library is None:
            pytest.skip("the selection library cannot be had here")
        files[kernels.set_name] = library
    data = registry_json.to_dict((decode,), TARGET, files, alone=(alone,))
    (folder / "registry.json").write_text(registry_json.written(data))
    return str(folder / "registry.json")


def test_the_error_names_what_refuses(tmp_path: Path) -> None:
    program = programs.program(programs.CPP / "tests" / "test_strict.cpp", tmp_path / "test_strict")
    assert " 0 failed" in programs.call(str(program), exported(tmp_path))
