"""A problem whose kernel is not built: what serves it, who hears of it, and what comes after."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import events, ops, settings
from tilewright.arch import best_host_arch
from tilewright.build import Store, marks
from tilewright.dispatch import background, built, kernels
from tilewright.errors import NoKernelError, RequestError
from tilewright.ops.base import KernelSpec

pytestmark = pytest.mark.usefixtures("needs_compiler")

GEMM = ops.op("gemm")
PROBLEM = tw.GemmProblem(m=64, n=64, k=64)
A = np.random.default_rng(3).standard_normal((64, 64), dtype=np.float32)


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path) -> Iterator[None]:
    with settings.override(cache_dir=tmp_path / "cache", models=False, measure=False):
        yield
    assert background.wait(60)


def pair() -> tuple[tw.Registry, KernelSpec, KernelSpec]:
    """A registry of two kernels, the one it chooses and the other."""
    found = [one for one in GEMM.proposals("tests", best_host_arch().name) if one.signature == PROBLEM.signature]
    serving = [one for one in found if not GEMM.check(one) and not GEMM.supports(one, PROBLEM)]
    with settings.override(missing="compile"):
        best = tw.Registry(specs=serving).select_stage(PROBLEM).spec
    other = next(one for one in serving if one != best)
    return tw.Registry(specs=(best, other)), best, other


def compiled(found: list[events.Event]) -> list[str]:
    """Names of kernels that a compiler made; support libraries have no digest of a spec in their name."""
    return [one.name for one in found if isinstance(one, events.KernelBuilt) and not one.cached and "gemm" in one.name]


def test_the_best_kernel_that_is_built_serves_and_says_so() -> None:
    registry, best, other = pair()
    kernels.build([other])
    with settings.override(missing="best_built"), events.recorded() as found:
        chosen = registry.select_stage(PROBLEM)
        result = registry.run("gemm", A, A)
        text = str(registry.explain(PROBLEM))
        note = next(one for one in registry.explain(PROBLEM).candidates if one.digest == best.digest)
    assert (chosen.spec, chosen.tier, chosen.wanted) == (other, "built", best)
    assert best.name in chosen.reason
    assert chosen.to_dict()["wanted"] == best.name
    assert not compiled(found)
    np.testing.assert_allclose(result, A @ A, rtol=1e-4, atol=1e-4)
    told = next(one for one in found if isinstance(one, events.Substituted))
    assert (told.kernel, told.wanted, told.building) == (other.name, best.name, False)
    assert told.loss is not None
    assert told.loss >= 0
    json.dumps(told.to_dict(), allow_nan=False)
    assert "tier      built" in text
    assert note.verdict == "unbuilt"
    with settings.override(missing="compile"):
        assert registry.select_stage(PROBLEM).spec == best


def test_a_kernel_that_is_built_is_taken_as_ever() -> None:
    registry, best, other = pair()
    kernels.build([best, other])
    with settings.override(missing="best_built"):
        chosen = registry.select_stage(PROBLEM)
    assert (chosen.spec, chosen.wanted) == (best, None)
    assert chosen.tier == "heuristic"


def test_where_nothing_is_built_the_choice_is_compiled_with_a_warning() -> None:
    registry, best, _ = pair()
    with settings.override(missing="best_built"), events.recorded() as found:
        registry.run("gemm", A, A)
    assert compiled(found) == [best.name]
    warned = [one for one in found if isinstance(one, events.Warned) and one.rule == "nothing-built"]
    assert len(warned) == 1
    assert "tw.prepare" in warned[0].message


def test_a_frozen_process_has_an_error_that_names_prepare() -> None:
    registry, _, _ = pair()
    registry.select_stage(PROBLEM)  # the selection library
    with (
        settings.override(missing="best_built", frozen=True),
        pytest.raises(NoKernelError, match=r"tw\.prepare") as told,
    ):
        registry.run("gemm", A, A)
    assert told.value.rule == "frozen"


def test_a_kernel_in_padded_copies_serves_if_it_is_the_one_that_is_built() -> None:
    import dataclasses

    registry, best, other = pair()
    odd = tw.GemmProblem(m=61, n=64, k=64)
    rigid = dataclasses.replace(other, schedule=dataclasses.replace(other.schedule, pad=(False, False, False)))
    if GEMM.check(rigid) or not GEMM.supports(rigid, odd):
        pytest.skip("these kernels know no edges to do without")
    registry = tw.Registry(specs=(best, rigid))
    kernels.build([rigid])
    with settings.override(missing="best_built"):
        chosen = registry.select_stage(odd)
    assert (chosen.spec, chosen.tier, chosen.wanted) == (rigid, "padded", best)
    assert best.name in chosen.reason


def test_the_fallback_serves_if_it_is_the_one_that_is_built() -> None:
    registry, best, _ = pair()
    loops = GEMM.fallback_spec(PROBLEM.signature, best_host_arch().name)
    kernels.build([loops])
    with settings.override(missing="best_built"):
        chosen = registry.select_stage(PROBLEM)
        assert (chosen.spec, chosen.tier, chosen.wanted) == (loops, "fallback", best)
        # Strict mode has no such tier: then the choice itself is what is compiled.
        assert registry.select_stage(PROBLEM, strict=True).spec == best


def test_a_better_kernel_that_is_built_later_replaces_plans_and_calls() -> None:
    registry, best, other = pair()
    kernels.build([other])
    with settings.override(missing="best_built"):
        for _ in range(3):
            registry.run("gemm", A, A)
        before = registry.plans()
        assert [stage.kernel.spec for plan in before.known.values() for stage in plan.plan.stages] == [other]
        kernels.build([best])
        after = registry.plans()
        assert after is not before
        assert len(after) == 0
        assert not after.fast
        with events.recorded() as found:
            registry.run("gemm", A, A)
        assert [stage.kernel.spec for plan in after.known.values() for stage in plan.plan.stages] == [best]
        assert not compiled(found)


def test_plans_that_have_nothing_to_gain_stay() -> None:
    registry, best, other = pair()
    kernels.build([other])
    wide = np.ones((64, 32), np.float32)
    with settings.override(missing="best_built"):
        registry.run("gemm", A, A)
        kernels.build([best])
        registry.run("gemm", A, wide)
        held = registry.plans()
        registry.drop_plans_beside(other.digest)
        assert len(registry.plans()) == len(held) == 1
        assert sum(map(len, registry.plans().fast.values())) == sum(map(len, held.fast.values()))


def test_the_better_one_is_built_in_the_background_and_taken() -> None:
    registry, best, other = pair()
    kernels.build([other])
    with settings.override(missing="background"), events.recorded() as found:
        first = registry.run("gemm", A, A)
        chosen = registry.select_stage(PROBLEM)
        if chosen.spec == other and "built meanwhile" not in chosen.reason:
            pytest.skip("the two are estimated within the loss that no compile is worth")
        assert background.wait(120)
        assert compiled(found) == [best.name]
        assert len(registry.plans()) == 0
        again = registry.run("gemm", A, A)
        assert registry.select_stage(PROBLEM).spec == best
    told = [one for one in found if isinstance(one, events.Substituted)]
    assert told
    assert told[0].building
    np.testing.assert_allclose(first, again, rtol=1e-4, atol=1e-4)


def test_many_threads_ask_for_one_build(monkeypatch: pytest.MonkeyPatch) -> None:
    _, best, _ = pair()
    done: list[str] = []
    monkeypatch.setattr(background, "_build", lambda spec: done.append(spec.digest))
    now = settings.current()

    def ask() -> None:
        with settings.use(now):
            assert background.build(best)

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert background.wait(30)
    assert done == [best.digest]


def test_a_build_that_fails_in_the_background_is_told_and_not_tried_again(tmp_path: Path) -> None:
    _, best, _ = pair()
    with settings.override(cxxflags="--no-such-flag-at-all", missing="background"), events.recorded() as found:
        assert background.build(best)
        assert background.wait(60)
        assert background.build(best)
        assert background.wait(60)
    warned = [one for one in found if isinstance(one, events.Warned) and one.rule == "background-build"]
    assert len(warned) == 1
    assert best.name in warned[0].message


def test_nothing_is_built_in_the_background_of_a_frozen_process() -> None:
    _, best, _ = pair()
    with settings.override(frozen=True):
        assert not background.build(best)


def test_a_program_that_ends_does_not_wait_for_the_background(tmp_path: Path) -> None:
    """The compiler is a script that never ends; what it leaves is no entry."""
    slow = tmp_path / "slow-c++"
    slow.write_text('#!/bin/sh\ncase "$*" in *--version*|*-dM*|*-print*) exec c++ "$@";; esac\nexec sleep 60\n')
    slow.chmod(0o755)
    code = f"""
import time
import tilewright as tw
from tilewright import ops, settings
from tilewright.dispatch import background
spec = ops.op("gemm").fallback_spec(tw.GemmProblem(1, 1, 1).signature, "generic")
settings.configure(cache_dir={str(tmp_path / "there")!r}, cxx={str(slow)!r})
assert background.build(spec)
time.sleep(1)
assert not background.wait(0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=40)
    assert done.returncode == 0, done.stderr
    assert not list(Store(tmp_path / "there").all_keys())


# -- knowing which are built -------------------------------------------------------------------------------------------


def test_what_another_process_builds_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    registry, best, other = pair()
    kernels.build([other])
    monkeypatch.setattr(built, "LOOK_SECONDS", 1e9)
    with settings.override(missing="best_built"):
        assert registry.select_stage(PROBLEM).spec == other
        from tilewright.build import build_one

        build_one(best)  # as another process would: nobody here is told
        assert registry.select_stage(PROBLEM).spec == other
        monkeypatch.setattr(built, "LOOK_SECONDS", -1.0)
        assert registry.select_stage(PROBLEM).spec == best


def test_a_kernel_of_other_flags_does_not_count() -> None:
    _, best, _ = pair()
    with settings.override(cxxflags="-DSOMETHING_ELSE"):
        kernels.build([best])
        assert built.is_built(best)
    assert not built.is_built(best)


def test_knowing_is_no_look_at_files(monkeypatch: pytest.MonkeyPatch) -> None:
    registry, _, other = pair()
    kernels.build([other])
    looks: list[Any] = []
    real = marks.stamp

    def looked(store: Store) -> int:
        looks.append(store)
        return real(store)

    monkeypatch.setattr(marks, "stamp", looked)
    monkeypatch.setattr(built, "LOOK_SECONDS", 1e9)
    with settings.override(missing="best_built"):
        for m in range(8, 64):
            registry.select_stage(tw.GemmProblem(m=m, n=64, k=64))
    assert len(looks) <= 1


def test_a_registry_that_is_gone_is_not_waited_with() -> None:
    registry, best, other = pair()
    kernels.build([other])
    with settings.override(missing="best_built"):
        registry.select_stage(PROBLEM)
    assert len(built._waiting[best.digest]) >= 1
    del registry
    gc.collect()
    assert not built._waiting[best.digest]
    kernels.build([best])
    assert best.digest not in built._waiting


def test_another_word_is_refused_with_those_there_are() -> None:
    with pytest.raises(RequestError, match="compile, best_built, background") as told, settings.override(missing="x"):
        pass
    assert "best_built" in told.value.remedy
