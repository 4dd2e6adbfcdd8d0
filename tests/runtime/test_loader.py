"""Libraries are trusted only after version, table and manifest agree with what was asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tilewright import events, ops
from tilewright.build import build_one
from tilewright.errors import LoadError, ProblemError
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm import GemmProblem
from tilewright.runtime import loader

GEMM = ops.op("gemm")
SPEC = GEMM.fallback_spec(GemmProblem(m=1, n=1, k=1).signature, "generic")
OTHER = GEMM.fallback_spec(GemmProblem(m=1, n=1, k=1, layout="rcr").signature, "generic")

EXPORTS = """
#include <tilewright/abi.h>
#define SHOWN extern "C" __attribute__((visibility("default")))
static int check(const void *, char *, size_t) { return 0; }
static int64_t workspace(const void *, int64_t) { return 0; }
static int launch(const void *, void *, void *) { return 0; }
"""


def library_text(
    manifest: str = "{}", version: str = "TW_ABI_VERSION", count: int = 1, check: str = "check", clear: int = 0
) -> str:
    entry = f"{check}, workspace, launch, nullptr, nullptr, {clear}"
    return EXPORTS + (
        f"SHOWN int64_t tw_abi_version(void) {{ return {version}; }}\n"
        f'static const tw_kernel table[] = {{{{R"x({manifest})x", {entry}}}}};\n'
        f"SHOWN const tw_kernel *tw_kernels(int64_t *n) {{ *n = {count}; return table; }}\n"
    )


@pytest.fixture(scope="module")
def kernel() -> loader.Kernel:
    return loader.load_kernel(build_one(SPEC).path, SPEC)


def test_a_built_kernel_loads_and_says_so(kernel: loader.Kernel) -> None:
    with events.recorded() as heard:
        again = loader.load_kernel(kernel.library_path, SPEC)
    assert again.spec == SPEC
    assert [one.digest for one in heard if isinstance(one, events.KernelLoaded)] == [SPEC.digest]


def test_a_library_can_be_read_without_knowing_what_is_in_it(kernel: loader.Kernel) -> None:
    (found,) = loader.load_library(kernel.library_path)
    assert found.spec == SPEC


def test_another_kernel_than_asked_is_refused(kernel: loader.Kernel) -> None:
    with pytest.raises(LoadError, match="not " + OTHER.digest[:12]) as caught:
        loader.load_kernel(kernel.library_path, OTHER)
    assert caught.value.rule == "digest"


def test_a_file_that_is_no_library_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kernel.so"
    path.write_bytes(b"not an ELF file")
    with pytest.raises(LoadError, match="system loader refuses") as caught:
        loader.load_library(path)
    assert caught.value.remedy


def test_a_library_that_needs_another_says_which(kernel: loader.Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str) -> None:
        raise OSError("libamdhip64.so.7: cannot open shared object file: No such file or directory")

    monkeypatch.setattr("ctypes.CDLL", refuse)
    with pytest.raises(LoadError, match=r"libamdhip64\.so\.7") as caught:
        loader.load_library(kernel.library_path)
    assert caught.value.rule == "library-needs"
    assert "damaged" not in caught.value.remedy


def test_a_library_that_is_not_there_needs_no_other(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="system loader refuses") as caught:
        loader.load_library(tmp_path / "gone.so")
    assert caught.value.rule == "library"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (EXPORTS, "exports"),
        (library_text(version="TW_ABI_VERSION + 1"), "abi-version"),
        (library_text(count=0), "table"),
        (library_text(manifest="no json"), "manifest"),
        (library_text(manifest='{"op": "gemm", "arch": "generic"}'), "manifest"),
        (library_text(manifest='{"op": "knitting"}'), "manifest"),
        (library_text(manifest=SPEC.to_json(), check="nullptr"), "table-entry"),
        (library_text(manifest=SPEC.to_json(), clear=-64), "table-entry"),
        (library_text(manifest=SPEC.to_json(), clear=100), "table-entry"),
    ],
)
def test_a_library_that_lies_is_refused(library_of: Callable[[str], Path], text: str, rule: str) -> None:
    with pytest.raises(LoadError) as caught:
        loader.load_library(library_of(text))
    assert caught.value.rule == rule


def test_a_bundle_holds_many_kernels(library_of: Callable[[str], Path]) -> None:
    entry = "check, workspace, launch, nullptr, nullptr, 0"
    text = EXPORTS + (
        "SHOWN int64_t tw_abi_version(void) { return TW_ABI_VERSION; }\n"
        f'static const tw_kernel table[] = {{{{R"x({SPEC.to_json()})x", {entry}}},\n'
        f' {{R"x({OTHER.to_json()})x", {entry}}}}};\n'
        "SHOWN const tw_kernel *tw_kernels(int64_t *n) { *n = 2; return table; }\n"
    )
    path = library_of(text)
    assert [one.spec for one in loader.load_library(path)] == [SPEC, OTHER]
    assert loader.load_kernel(path, OTHER).spec == OTHER


def test_a_kernel_is_callable_by_itself(kernel: loader.Kernel) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((5, 7), np.float32), rng.standard_normal((7, 3), np.float32)
    c = rng.standard_normal((5, 3), np.float32)
    np.testing.assert_allclose(kernel(a, b), a @ b, rtol=1e-5, atol=1e-6)
    out = np.full((5, 3), np.nan, np.float32)
    assert kernel(a, b, c, alpha=2, beta=-1, out=out) is out
    np.testing.assert_allclose(out, 2 * (a @ b) - c, rtol=1e-5, atol=1e-5)


def test_a_vector_takes_the_layout_of_the_kernel() -> None:
    kernel = loader.load_kernel(build_one(OTHER).path, OTHER)  # reads B by columns
    a, b = np.ones((2, 4), np.float32), np.arange(4, dtype=np.float32).reshape(4, 1)
    np.testing.assert_array_equal(kernel(a, b), [[6.0], [6.0]])


def test_a_kernel_refuses_arrays_of_another_signature(kernel: loader.Kernel) -> None:
    a, b = np.zeros((2, 4), np.float32), np.zeros((3, 4), np.float32)
    with pytest.raises(ProblemError, match="fp32_rcr") as caught:
        kernel(a, b.T)
    assert caught.value.rule == "kernel-signature"


def test_the_kernels_own_check_answers_with_its_sentence(kernel: loader.Kernel) -> None:
    from tilewright.runtime.bindings.gemm.args import GemmArgs

    args = GemmArgs(m=2, n=2, k=2, batch=1, a_stride=1, b_stride=2, e_stride=2, alpha=1.0)
    assert kernel.refusal(args) == "TW_BAD_ARGS: the stride of A is shorter than its row"
    with pytest.raises(ProblemError, match="stride of A"):
        kernel.demand(args)
    args.a_stride = 2
    assert kernel.refusal(args) == ""


def test_specs_of_the_tests_are_legal() -> None:
    def legal(spec: KernelSpec) -> bool:
        return not GEMM.check(spec)

    assert legal(SPEC)
    assert legal(OTHER)
