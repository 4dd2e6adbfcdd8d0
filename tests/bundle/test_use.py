"""Using bundles: without a compiler, without a place to write, frozen; right numbers, and no fallback kernel."""

from __future__ import annotations

import importlib.util
import os
import platform
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests.built import why_not_run
from tests.bundle.conftest import TARGETS
from tilewright import events, plugins
from tilewright.api import registry_for
from tilewright.build import bundled
from tilewright.bundle.build import Made, Wish, build
from tilewright.dispatch import built, kernels
from tilewright.dispatch.records import Record, Timing, records
from tilewright.dispatch.registry import Registry
from tilewright.errors import NoKernelError, RequestError, TilewrightError
from tilewright.ops import op
from tilewright.ops.base import KernelSpec, plain

PROGRAM = """
import sys
import numpy as np
import tilewright as tw
from tilewright import events, plugins
from tilewright.api import registry_for

if len(sys.argv) > 1:
    tw.use_bundle(sys.argv[1])
rng = np.random.default_rng(7)


def draw(*shape):
    return rng.standard_normal(shape, dtype=np.float32)


def softmaxed(q, k, v, causal):
    k, v = (np.repeat(one, q.shape[2] // one.shape[2], axis=2) for one in (k, v))
    scores = np.einsum("bqhd,bkhd->bhqk", q, k, dtype=np.float64) / np.sqrt(q.shape[-1])
    if causal:
        scores[..., ~np.tril(np.ones(scores.shape[-2:], bool))] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("bhqk,bkhd->bqhd", weights / weights.sum(-1, keepdims=True), v)


with events.recorded() as heard:
    for m in (64, 1):
        a, w = draw(m, 256), draw(128, 256)
        np.testing.assert_allclose(tw.gemm(a, w.T), a @ w.T, rtol=1e-4, atol=1e-3)
    x, f = draw(1, 28, 28, 16), draw(32, 3, 3, 16)
    wide = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    right = sum(wide[:, i:i + 28, j:j + 28] @ f[:, i, j].T for i in range(3) for j in range(3))
    np.testing.assert_allclose(tw.conv(x, f, padding=1), right, rtol=1e-3, atol=1e-3)
    q, k, v = draw(1, 128, 8, 64), draw(1, 128, 8, 64), draw(1, 128, 8, 64)
    np.testing.assert_allclose(tw.attention(q, k, v, causal=True), softmaxed(q, k, v, True), rtol=1e-3, atol=1e-4)
    q, k, v = draw(1, 1, 8, 64), draw(1, 1000, 2, 64), draw(1, 1000, 2, 64)
    np.testing.assert_allclose(tw.attention(q, k, v), softmaxed(q, k, v, False), rtol=1e-3, atol=1e-4)
tiers = [one.tier for one in heard if isinstance(one, events.Selected)]
assert len(tiers) >= 5 and set(tiers) <= {"heuristic", "model"}, tiers
warned = [one for one in heard if isinstance(one, events.Warned)]
assert not warned, warned
assert not [one for one in heard if isinstance(one, events.KernelBuilt)]
print("right", len(tiers))
"""


def run(program: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Python with nothing in its environment but what is named."""
    source = str(Path(tw.__file__).parent.parent)
    environment = {"PYTHONPATH": source, "PATH": "/nonexistent", "TILEWRIGHT_THREADS": "2", **variables}
    command = [sys.executable, "-c", program, *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


@pytest.mark.parametrize("level", [*TARGETS, ""])
def test_a_frozen_process_that_can_neither_compile_nor_write(made: Made, tmp_path: Path, level: str) -> None:
    if level and why_not_run(level):
        pytest.skip(why_not_run(level))
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(stat.S_IRUSR | stat.S_IXUSR)
    done = run(
        PROGRAM, str(made.path), HOME=str(home), TILEWRIGHT_CACHE_DIR=str(home / "cache"), TILEWRIGHT_FROZEN="1",
        TILEWRIGHT_HOST_LEVEL=level,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("right")
    assert not list(home.iterdir())


LOADED = """
import sys
import numpy as np
import tilewright as tw

tw.use_bundle(sys.argv[1])
tw.gemm(np.ones((64, 256), np.float32), np.ones((128, 256), np.float32).T)
print(*sorted(name for name in sys.modules if name.startswith("tilewright.backends")))
"""


def test_a_call_asks_no_compiler_and_loads_no_other_backend(made: Made, tmp_path: Path) -> None:
    more = {
        "TILEWRIGHT_CACHE_DIR": str(tmp_path / "none"),
        "TILEWRIGHT_FROZEN": "1",
        "TILEWRIGHT_MODELS": "1",
        "PATH": os.environ["PATH"],
    }
    done = run(LOADED, str(made.path), **more)
    assert (done.returncode, done.stderr) == (0, "")
    loaded = done.stdout.split()
    assert "tilewright.backends.cpu.gemm" in loaded
    assert "tilewright.backends.asking" not in loaded
    assert not {"tilewright.backends.cuda", "tilewright.backends.hip"} & {*loaded}


def test_an_installed_package_is_found(made: Made, tmp_path: Path) -> None:
    from tilewright.bundle.wheel import write_wheel

    wheel = write_wheel(made.path, tmp_path)
    place, at_home = tmp_path / "site", {**os.environ, "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--target", str(place), str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=at_home)
    assert done.returncode == 0, done.stderr
    source = str(Path(tw.__file__).parent.parent)
    both = os.pathsep.join([str(place), source])
    nothing = str(tmp_path / "none")
    used = run(PROGRAM, PYTHONPATH=both, TILEWRIGHT_CACHE_DIR=nothing, TILEWRIGHT_FROZEN="1")
    assert used.returncode == 0, used.stderr
    program = "import sys; sys.argv[1:] = ['bundle', 'list']; from tilewright.cli.main import main; main()"
    listed = run(program, PYTHONPATH=both, TILEWRIGHT_CACHE_DIR=nothing)
    assert "model.twb" in listed.stdout, listed.stderr


def test_without_it_such_a_process_is_refused(tmp_path: Path) -> None:
    done = run(PROGRAM, TILEWRIGHT_CACHE_DIR=str(tmp_path / "cache"), TILEWRIGHT_FROZEN="1")
    assert done.returncode != 0
    assert "frozen" in done.stderr


@pytest.mark.parametrize("frozen", ["0", "1"])
def test_what_a_bundle_lacks_is_said_where_nothing_can_be_compiled(made: Made, tmp_path: Path, frozen: str) -> None:
    if frozen == "0" and importlib.util.find_spec("ziglang"):
        pytest.skip("there is always a compiler: the ziglang wheel")
    program = (
        "import sys; import numpy as np; import tilewright as tw; tw.use_bundle(sys.argv[1]); "
        "ones = np.ones((4, 4), np.float32); tw.gemm(ones, ones, epilogue='relu')"
    )
    done = run(program, str(made.path), TILEWRIGHT_CACHE_DIR=str(tmp_path / "cache"), TILEWRIGHT_FROZEN=frozen)
    assert done.returncode != 0
    error = done.stderr[done.stderr.rindex("Error: [") :]
    assert error.startswith("Error: [frozen]" if frozen == "1" else "Error: [no-compiler]")
    assert "gemm_fp32_rrr_Relu" in error  # which kernel
    assert str(made.path) in error  # and where it should have been
    assert "bundle" in error[error.index("remedy:") :]


A, B = np.ones((64, 256), np.float32), np.ones((128, 256), np.float32).T


def test_it_is_in_force_until_it_is_closed(made: Made) -> None:
    problem = tw.GemmProblem(m=64, n=128, k=256, layout="rcr")
    with tw.use_bundle(made.path) as used:
        assert used.targets == tuple(sorted(TARGETS))
        assert len(used) == sum(made.kernels.values())
        inside = tw.explain(problem)
        assert "bundles in force" in inside.source
        assert inside.selection is not None
        spec = inside.selection.stages[0].spec
        assert spec.arch in TARGETS
        assert built.is_built(spec)
        assert str(made.path) in str(kernels.kernel(spec).library_path)
        assert (tw.gemm(A, B) == 256).all()
    used.close()
    assert not bundled.in_force()
    assert "bundles" not in tw.explain(problem).source


def test_other_sizes_of_a_signature_are_served_by_the_stated_tiers(made: Made, tmp_path: Path) -> None:
    with tw.use_bundle(made.path), tw.settings.override(cache_dir=tmp_path, frozen=True):
        odd = tw.gemm(np.ones((3, 5), np.float32), np.ones((7, 5), np.float32).T)
        assert (odd == 5).all()
        with pytest.raises(TilewrightError) as caught:  # a signature that is not in it
            tw.gemm(np.ones((3, 5), np.float16), np.ones((5, 7), np.float16))
        assert caught.value.rule == "frozen"


def test_strict_refuses_what_only_the_fallback_kernel_serves(made: Made) -> None:
    with tw.use_bundle(made.path) as used:
        specs = [spec for target in used.targets for spec in used._bundle.specs(target, "attention")]
        asked = tw.AttentionProblem(batch=1, heads_q=8, heads_kv=8, seqlen_q=128, seqlen_k=128, head_dim=64)
        assert specs
        chosen = tw.explain(asked).selection
        if chosen is None or chosen.tier in ("heuristic", "model"):
            pytest.skip("a kernel of the bundle serves it as it is")
        with pytest.raises(NoKernelError):
            registry_for("").select(asked, strict=True)


def test_the_fallback_kernel_is_no_candidate(made: Made) -> None:
    with tw.use_bundle(made.path) as used:
        for target in used.targets:
            for spec in used._bundle.specs(target):
                role = used._bundle.libraries[spec.digest]["role"]
                among = bundled.candidates(spec.op, target, spec.signature)
                assert (spec in among) is (role != "fallback")


def test_many_libraries_from_memory_are_told_apart(made: Made) -> None:
    """The number of a closed file is used again, and the system's loader must not take the one for the other."""
    with tw.use_bundle(made.path) as used:
        specs = [spec for target in used.targets for spec in used._bundle.specs(target) if not why_not_run(target)]
        assert len(specs) > 2
        for spec in specs:
            assert kernels.kernel(spec).spec == spec


def test_without_files_in_memory_private_ones_are_written(made: Made, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    program = "from tilewright.runtime import memory_library\nmemory_library._works = False\n" + PROGRAM
    nowhere = str(tmp_path / "none")
    done = run(program, str(made.path), TMPDIR=str(home), TILEWRIGHT_CACHE_DIR=nowhere, TILEWRIGHT_FROZEN="1")
    assert done.returncode == 0, done.stderr
    assert not list(home.iterdir())


def measured(made: Made, tmp_path: Path) -> tuple[Path, KernelSpec, tw.GemmProblem]:
    """A bundle of one problem with the measurement of a kernel that estimates do not choose, made on this machine."""
    target = TARGETS[0] if not why_not_run(TARGETS[0]) else "generic"
    problem = tw.GemmProblem(m=64, n=128, k=256, layout="rcr")
    best = Registry(target).select(problem).stages[0].spec
    serving = [one for one in Registry(target).candidates(problem) if not op("gemm").supports(one, problem)]
    other = next(one for one in serving if one != best)
    times = tuple(Timing(one.digest, one.name, one.to_dict(), 1e-6, 0.0, 0.1) for one in (other,))
    with tw.settings.override(cache_dir=tmp_path / "measured"):
        records().put(Record("gemm", plain(problem), 2, target, other.digest, times, {}, {}))
    with tw.settings.override(threads=2):
        kernels.build([other])
        places = Path(tw.settings.current().cache_dir) / "kernels-v1", tmp_path / "measured" / "kernels-v1"
        places[1].symlink_to(places[0])  # nothing is compiled again
    with tw.settings.override(cache_dir=tmp_path / "measured"):
        found = build(tmp_path / "measured.twb", Wish((target,), [problem], threads=(2,)), jobs=2)
    return found.path, other, problem


def test_measurements_count_on_the_device_they_were_made_on(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other, problem = measured(made, tmp_path)
    with tw.use_bundle(path) as used, tw.settings.override(cache_dir=tmp_path / "none", threads=2):
        here = tw.explain(problem, target=other.arch)
        assert here.selection is not None
        assert here.selection.tier == "measured"
        assert [one.spec for one in here.selection.stages] == [other]
        monkeypatch.setattr("tilewright.dispatch.records.identified", lambda identity: {"fingerprint": "another"})
        used.close()
    with tw.use_bundle(path), tw.settings.override(cache_dir=tmp_path / "none", threads=2):
        elsewhere = tw.explain(problem, target=other.arch)
        assert elsewhere.selection is not None
        assert elsewhere.selection.tier in ("heuristic", "model")
        assert any("made on another device" in text or "does not say" in text for text in elsewhere.unused_records)


@pytest.mark.parametrize("path", [None, 3, b"model.twb", ["model.twb"]])
def test_a_path_that_is_none(path: Any) -> None:
    with pytest.raises(RequestError) as caught:
        tw.use_bundle(path)
    assert caught.value.rule == "bundle-path"


def test_a_bundle_whose_abi_or_host_is_another_is_refused(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundled, "ABI", (99, 0))
    with pytest.raises(TilewrightError) as caught:
        tw.use_bundle(made.path)
    assert caught.value.rule == "bundle-abi"
    monkeypatch.undo()
    monkeypatch.setattr(platform, "machine", lambda: "vax")
    with pytest.raises(TilewrightError) as caught:
        tw.use_bundle(made.path)
    assert caught.value.rule == "bundle-host"
    assert not bundled.in_force()


def test_selection_libraries_of_other_sources_are_not_taken(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.backends.base import Source

    with tw.use_bundle(made.path):
        assert bundled.support(Source("x.cpp", "int x;", "c++"), "generic") is None


def test_a_warning_tells_of_an_installed_bundle_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "names", lambda group: ["broken"])
    monkeypatch.setattr(plugins, "module_of", lambda group, name: "no_such_module")
    bundled.forget_installed()
    try:
        with events.recorded() as heard:
            assert not bundled.in_force()
        assert [one for one in heard if isinstance(one, events.Warned) and "broken" in one.message]
    finally:
        monkeypatch.undo()
        bundled.forget_installed()
