"""Host kernels: what the compiler made is looked at before it is published."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.build.stubs import tiny_specs
from tilewright import ops, settings
from tilewright.arch import host_facts
from tilewright.backends.base import Promises, backend
from tilewright.build import Store, build_many, build_one, find
from tilewright.build.promises import demand_kept
from tilewright.errors import InspectionError
from tilewright.inspect import x86
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm import GemmProblem

pytestmark = pytest.mark.skipif(
    host_facts().machine != "x86_64" or not shutil.which("objdump") or not shutil.which("c++"),
    reason="needs an x86-64 host with c++ and objdump",
)


def fast_spec() -> KernelSpec:
    problem = GemmProblem(m=512, n=512, k=512)
    found = ops.op("gemm").candidates(problem.signature, "x86_64_v3")
    return next(one for one in found if one.schedule.pipeline == "direct")


def test_a_compiler_that_does_not_fuse_is_found_out(store: Store, tmp_path: Path) -> None:
    compiler = tmp_path / "never-fuses"
    compiler.write_text('#!/bin/sh\nexec c++ "$@" -ffp-contract=off\n')
    compiler.chmod(0o755)
    plain = tiny_specs(1)[0]
    with settings.override(cxx=str(compiler)):
        with pytest.raises(InspectionError, match="vfmadd") as caught:
            build_many([fast_spec(), plain])
        assert caught.value.rule == "no-matrix-instruction"
        assert find(fast_spec()) is None
        built = find(plain)
    assert built is not None
    assert built.manifest["promises"] == "nothing promised"


def test_the_real_one_keeps_the_promise(store: Store) -> None:
    built = build_one(fast_spec())
    assert built.manifest["promises"] == "kept"
    # The quick look and the long one agree, also about what is not there.
    assert backend("cpu").inspect(built.path, fast_spec()).keeps_promises is True
    assert not x86.holds(built.path, ("vpdp", "vdpbf16ps"))
    with pytest.MonkeyPatch.context() as patched:  # nothing of a CPU is a copy of its own: nobody can say
        promised = Promises(("vfmadd",), copies=("no-such-copy",))
        patched.setattr(type(backend("cpu")), "promises", lambda self, spec: promised)
        assert demand_kept(fast_spec(), built.path) == "undecided: the backend cpu does not look for copies"
    with settings.override(cxxflags="-O0"):
        assert backend("cpu").promises(fast_spec()) == Promises()
