"""The same bits on any number of threads; a shared team; a fork; more threads than work."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest

from tests.backends.cpu.gemm import catalog
from tests.backends.cpu.gemm import names as cpu
from tests.backends.cpu.gemm.harness import Array, Call, prove, run
from tests.built import Built
from tilewright import settings
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm.problem import GemmProblem

KERNELS = tuple(catalog.core().values())


def _problems(spec: KernelSpec) -> list[GemmProblem]:
    """Large enough that every thread gets work: 2^17 multiply-adds each, and no size a multiple of anything."""
    s = spec.signature
    few = spec.schedule.tile[0]
    sizes = [(133, 157, 61), (7, 1031, 211), (1037, 5, 307)]
    if spec.schedule.pipeline in cpu.STREAMS:
        sizes = [(few, 1511, 211), (1511, few, 211), (1, 5003, 97)]
    made = [
        GemmProblem(
            m=m,
            n=n,
            k=k,
            dtype_a=s.dtype_a,
            dtype_b=s.dtype_b,
            dtype_c=s.dtype_c,
            layout=s.layout,
            preshuffled=s.variant == "preshuffle",
            a_stride=max(m, k) + 3,
            b_stride=max(n, k) + 5,
            c_stride=n + 1,
        )
        for m, n, k in sizes
    ]
    return [*made, replace(made[0], batch=3, broadcast_b=True)]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", list(catalog.core()))
def test_the_same_bits_on_any_number_of_threads(built: Built, name: str) -> None:
    spec = catalog.core()[name]
    for index, problem in enumerate(_problems(spec)):
        for alpha in (1.0, 0.3):
            call = Call(problem, alpha=alpha, seed=index)
            alone = prove(built[spec], call).result.copy()
            for threads in (2, 3, 7):
                again = run(built[spec], replace(call, threads=threads)).result
                assert np.array_equal(alone.view(np.uint8), np.ascontiguousarray(again).view(np.uint8)), threads


@pytest.mark.parametrize("name", list(catalog.core()))
def test_more_threads_than_work(built: Built, name: str) -> None:
    s = catalog.core()[name].signature
    for m, n, k in ((1, 1, 1), (2, 3, 4), (1, 17, 33), (3, 1, 0)):
        problem = GemmProblem(
            m=m, n=n, k=k, dtype_a=s.dtype_a, dtype_b=s.dtype_b, dtype_c=s.dtype_c, layout=s.layout,
            preshuffled=s.variant == "preshuffle",
        )  # fmt: skip
        prove(built[catalog.core()[name]], Call(problem, threads=64))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["packed", "packed_split", "stream", "preshuffle_int8"])
def test_two_threads_of_python_share_the_team(built: Built, name: str) -> None:
    spec = catalog.core()[name]
    kernel, problem = built[spec], _problems(spec)[0]
    failures: list[BaseException] = []

    def work(first: int) -> None:
        try:
            for seed in range(first, first + 12):
                prove(kernel, Call(problem, threads=1 + seed % 3, seed=seed))
        except BaseException as error:  # told in the main thread
            failures.append(error)

    callers = [threading.Thread(target=work, args=(100 * index,)) for index in range(2)]
    for one in callers:
        one.start()
    for one in callers:
        one.join()
    assert not failures, failures[0]


FORK = """
import os, sys
import numpy as np
from tests.backends.cpu.gemm import catalog
from tilewright.dispatch.kernels import kernel as loaded
kernel = loaded(catalog.core()["packed"])
from tilewright import settings
rng = np.random.default_rng(0)
a, b = rng.standard_normal((150, 200), np.float32), rng.standard_normal((200, 170), np.float32)
with settings.override(threads=3):
    before = kernel(a, b)
    child = os.fork()
    after = kernel(a, b)          # the parent's team goes on, the child has none and computes alone
    with settings.override(threads=5):
        more = kernel(a, b)       # and a child may start a team of its own
    right = np.array_equal(before, after) and np.array_equal(before, more) and np.allclose(before, a @ b, atol=1e-3)
if child == 0:
    os._exit(0 if right else 7)
_, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status) or (0 if right else 8))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no fork here")
def test_a_forked_child_computes(built: Built, pytestconfig: pytest.Config) -> None:
    assert built[catalog.core()["packed"]]
    root = pytestconfig.rootpath
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK],
        cwd=root,
        env=settings.child_environment(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr


def test_plain_arrays_through_the_call(built: Built) -> None:
    """The kernel as a person calls it, on a team of two."""
    rng = np.random.default_rng(5)
    a: Array = rng.standard_normal((65, 130), np.float32)
    b: Array = rng.standard_normal((130, 77), np.float32)
    with settings.override(threads=2):
        given = built[catalog.core()["packed"]](a, b)
    assert np.allclose(given, a @ b, atol=1e-3)
