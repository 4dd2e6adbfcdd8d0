"""C++ chooses by learned models as Python does: the models that ship, as if they were trained on this machine."""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tests.cpp import programs
from tests.cpp.test_same_choice import SEED, groups, line, problem, stage_choice, stages_of
from tilewright import ops, settings
from tilewright.arch.host import l2_bytes
from tilewright.dispatch import exported_models, learned, model_files, registry_json
from tilewright.dispatch.model import Model
from tilewright.dispatch.records import machine
from tilewright.native.judge import native_kernels

pytestmark = pytest.mark.skipif(bool(programs.why_not()), reason=programs.why_not() or "a compiler is here")

THREADS = 2
H200 = {"arch": "sm_90a", "compute_units": 132, "model": "NVIDIA H200"}
# The op, the target, the model, and the device that it is to know; of CPUs this one.
CASES: dict[str, tuple[str, str, str, Mapping[str, Any]]] = {
    "gemm-v3": ("gemm", "x86_64_v3", "gemm-zen4-avx2", {}),
    "gemm-v4": ("gemm", "x86_64_v4_bf16", "gemm-zen4-avx512", {}),
    "conv-v4": ("conv", "x86_64_v4_bf16", "conv-zen4-avx512", {}),
    "gemm-h200": ("gemm", "sm_90a", "gemm-h200", H200),
    "conv-h200": ("conv", "sm_90a", "conv-h200", H200),
}
QUICK, LONG, WHOLE = 60, 600, 20000  # problems of a case: 300, 3,000 and 100,000 in all


def trained_for(name: str, device: Mapping[str, Any], targets: tuple[str, ...] = ()) -> Model:
    """A model that ships, of another device, and perhaps of other targets."""
    shipped = model_files.shipped(name)
    card = replace(shipped.card, devices=(dict(device),), targets=targets or shipped.card.targets)
    model = Model(card, shipped.forest, shipped.low, shipped.high)
    model.name, model.ships = shipped.name, True
    return model


def usual(draw: random.Random, op: str, target: str) -> Any:
    """Most of sizes that models were trained on; the others of any."""
    drawn = problem(draw, op, target)
    if draw.random() < 0.3:
        return drawn
    dtype = draw.choice(("bf16", "fp16") if target.startswith("sm_") else ("fp32", "bf16"))
    if op == "conv":
        channels, filters, size = (draw.choice(sizes) for sizes in ((32, 64, 128), (64, 128, 256), (14, 28, 56)))
        window = draw.choice((1, 3))
        pads, variant = (window // 2,) * 2, draw.choice(("forward", "backward_data", "backward_weight"))
        return tw.ConvProblem(draw.choice((1, 8, 32)), channels, filters, (size, size), (window, window), before=pads,
                              after=pads, dtype=dtype, variant=variant)  # fmt: skip
    sizes: dict[str, Any] = {name: 64 * draw.randrange(1, 64) for name in ("m", "n", "k")}
    return tw.GemmProblem(**sizes, dtype_a=dtype, dtype_b=dtype, layout=draw.choice(("rcr", "rrr")))


def stub(folder: Path) -> dict[str, str]:
    """The environment in which a driver says that its device is an H200."""
    goal = folder / "libcuda.so.1"
    shared = ("-std=c++17", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1")
    programs.call(*programs.compiler(), *shared, str(programs.CPP / "tests" / "stub_driver.cpp"), "-o", str(goal))
    return {**os.environ, "LD_LIBRARY_PATH": str(folder), "STUB_NAME": "NVIDIA H200"}


def compare(case: str, count: int, folder: Path, patch: pytest.MonkeyPatch) -> Counter[str]:
    """How many problems were decided by each tier; all of them alike."""
    op, target, name, device = CASES[case]
    here = machine()  # not of the target: choosing among kernels of a level takes no CPU that runs them
    model = trained_for(name, device or {k: v for k, v in here.items() if k != "fingerprint"})
    patch.setattr(model_files, "at_hand_for", lambda *_: (model,))
    patch.setattr(learned, "machine", lambda _: dict(device) or here)
    patch.setattr(learned, "_ships_one", lambda *_: True)
    learned._at_hand.cache_clear()
    draw, tiers, env = random.Random(f"{SEED} {case}"), Counter[str](), stub(folder) if device else dict(os.environ)
    for some in groups(count):
        tiers += compared([usual(draw, op, target) for _ in range(some)], target, folder, env)
    return tiers


def compared(problems: Sequence[Any], target: str, folder: Path, env: Mapping[str, str]) -> Counter[str]:
    registry = programs.registry_of(target, [stage for each in problems for stage in stages_of(each, target)])
    data = with_models(registry, folder)
    with settings.override(measure=False, models=True, strict=False, missing="compile"):
        expected = [stage_choice(registry, stages_of(each, target)[0], THREADS) for each in problems]
    learned._at_hand.cache_clear()
    (folder / "registry.json").write_text(registry_json.written(data))
    chooser = programs.program(programs.CPP / "tests" / "choose.cpp", folder / "choose")
    words = (str(chooser), str(folder / "registry.json"), str(THREADS), str(l2_bytes()))
    answers = programs.call(*words, input="\n".join(map(line, problems)) + "\n", env=env).splitlines()
    for each, wanted, answer in zip(problems, expected, answers, strict=True):
        digest, tier, seconds = answer.split()
        assert (digest, tier) == wanted[:2], f"{each}\nPython {wanted}\nC++ {answer}"
        assert float(seconds) == pytest.approx(wanted[2], rel=1e-12), f"{each}\nPython {wanted}\nC++ {answer}"
    return Counter(tier for _, tier, _ in expected)


def with_models(registry: tw.Registry, folder: Path) -> dict[str, Any]:
    """A registry's JSON with its models, whose files lie in the folder; nothing is built."""
    kernels = native_kernels(registry.specs()[:1])
    assert kernels is not None
    library = registry_json.selection_library(kernels)
    if library is None:
        pytest.skip("the selection library cannot be had here")
    with settings.override(models=True):
        exported = exported_models.models(registry.specs(), registry.target)
    assert exported.rows
    for name, trees in exported.files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(trees)
    libraries = {kernels.set_name: library}
    return registry_json.to_dict(registry.specs(), registry.target, libraries, None, exported.rows)


@pytest.mark.parametrize("case", CASES)
def test_drawn_problems(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiers = compare(case, QUICK, tmp_path, monkeypatch)
    assert tiers["model"] > QUICK // 10  # or the draw shows nothing


@pytest.mark.proof
@pytest.mark.parametrize("count", [LONG, pytest.param(WHOLE, marks=pytest.mark.whole)])
@pytest.mark.parametrize("case", CASES)
def test_many_drawn_problems(case: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compare(case, count, tmp_path, monkeypatch)


def test_a_model_of_another_device_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_files, "at_hand_for", lambda *_: (trained_for("gemm-zen4-avx2", {"model": "another"}),))
    registry = programs.registry_of("x86_64_v3", [tw.GemmProblem(m=512, n=512, k=512)])
    (tmp_path / "registry.json").write_text(registry_json.written(with_models(registry, tmp_path)))
    assert choice_of(tmp_path)[1] == "heuristic"


def test_damaged_trees_are_an_error_that_names_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = {"model": machine("x86_64_v3")["model"]}
    monkeypatch.setattr(model_files, "at_hand_for", lambda *_: (trained_for("gemm-zen4-avx2", mine),))
    registry = programs.registry_of("x86_64_v3", [tw.GemmProblem(m=512, n=512, k=512)])
    (tmp_path / "registry.json").write_text(registry_json.written(with_models(registry, tmp_path)))
    assert choice_of(tmp_path)[1] == "model"
    file = next((tmp_path / "models").iterdir())
    whole = file.read_bytes()
    for damaged in (whole[:-1], b"another mark" + whole[12:], whole[:24] + b"\xff" * 16 + whole[40:]):
        file.write_bytes(damaged)
        with pytest.raises(AssertionError, match="gemm-zen4-avx2 is no model that can be used"):
            choice_of(tmp_path)


def choice_of(folder: Path) -> list[str]:
    """What C++ says of one problem."""
    chooser = programs.program(programs.CPP / "tests" / "choose.cpp", folder / "choose")
    words = (str(chooser), str(folder / "registry.json"), str(THREADS), str(l2_bytes()))
    return programs.call(*words, input=line(tw.GemmProblem(m=512, n=512, k=512)) + "\n").split()


def test_models_go_along_in_an_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_files, "at_hand_for", lambda *_: (trained_for("gemm-zen4-avx2", H200),))
    op = ops.op("gemm")
    signature = op.signature_of(tw.GemmProblem(m=512, n=512, k=512))
    registry = tw.Registry("x86_64_v3", list(op.candidates(signature, "x86_64_v3"))[:2])
    with settings.override(models=True):
        data = json.loads(registry.export(tmp_path).read_text())
    assert [row["name"] for row in data["models"]] == ["gemm-zen4-avx2"]
    assert (tmp_path / data["models"][0]["file"]).is_file()
    with settings.override(models=True):
        without = registry.export(tmp_path / "without", models=False)
    assert "models" not in json.loads(without.read_text())
