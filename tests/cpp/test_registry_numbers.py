"""A registry.json that somebody changed, its digest worked out anew: no number in it ends the process that reads it."""

from __future__ import annotations

import copy
import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tests.cpp import programs
from tests.cpp.test_same_choice import line
from tests.cpp.test_same_model import trained_for, with_models
from tilewright.arch.host import l2_bytes
from tilewright.dispatch import model_files, registry_json

pytestmark = pytest.mark.skipif(bool(programs.why_not()), reason=programs.why_not() or "a compiler is here")

GEMM, CONV = tw.GemmProblem(512, 512, 512), tw.ConvProblem(4, 64, 64, (28, 28), (3, 3), before=(1, 1))
HALF_CONV = tw.ConvProblem(4, 64, 64, (28, 28), (3, 3), before=(1, 1), dtype="fp16")
CASES: dict[str, tuple[str, Any]] = {
    "gemm cpu": ("x86_64_v3", GEMM),
    "conv cpu": ("x86_64_v3", CONV),
    "attention cpu": ("x86_64_v3", tw.AttentionProblem(2, 4, 128, 128, 64)),
    "gemm cuda": ("sm_90a", tw.GemmProblem(512, 512, 512, "bf16")),
    "attention cuda": ("sm_90a", tw.AttentionProblem(2, 4, 128, 128, 64, dtype_q="bf16")),
    "conv hip": ("gfx942", HALF_CONV),
}


def counts() -> set[str]:
    """The names that the selection library's header calls counts."""
    header = (programs.ROOT / "src/tilewright/include/tilewright/select/library.h").read_text()
    listed = header.partition("kCounts[] =")[2].partition(";")[0]
    return set(listed.replace('"', " ").split())


class Registry:
    """One in a folder, and what C++ says of a problem when it is changed."""

    def __init__(self, data: dict[str, Any], problem: Any, folder: Path) -> None:
        self.data, self._problem, self._folder = data, problem, folder
        self._choose = programs.program(programs.CPP / "tests" / "choose.cpp", folder / "choose")

    def said(self, change: Callable[[dict[str, Any]], None] = lambda data: None) -> tuple[int, str]:
        data = copy.deepcopy(self.data)
        change(data)
        data.pop(registry_json.DIGEST, None)
        file = self._folder / "registry.json"
        file.write_text(registry_json.written(data))
        words = [str(self._choose), str(file), "2", str(l2_bytes())]
        done = subprocess.run(words, input=line(self._problem) + "\n", capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def refused(self, rule: str, change: Callable[[dict[str, Any]], None]) -> bool:
        code, text = self.said(change)
        return code == -signal.SIGABRT and f"[{rule}]" in text  # the program lets the error end it


def registry(case: str, folder: Path) -> Registry:
    target, problem = CASES[case]
    data = registry_json.to_dict(programs.registry_of(target, [problem]).specs(), target)
    if any(shared["library"] is None for shared in data["selection"].values()):
        pytest.skip("the selection library cannot be had here")
    return Registry(json.loads(json.dumps(data)), problem, folder)


def first_of_families(data: dict[str, Any]) -> dict[str, int]:
    """A kernel of each family, by its place."""
    places: dict[str, int] = {}
    for at, kernel in enumerate(data["kernels"]):
        if kernel["selection"] is not None:
            places.setdefault(kernel["selection"]["family"], at)
    return places


@pytest.mark.parametrize("case", CASES)
def test_no_number_of_a_schedule_ends_the_process(case: str, tmp_path: Path) -> None:
    mine, divisors, looked_at = registry(case, tmp_path), counts(), 0
    assert mine.said()[0] == 0
    for at in first_of_families(mine.data).values():
        for name in mine.data["kernels"][at]["selection"]["schedule"]:

            def change(data: dict[str, Any], value: int, at: int = at, name: str = name) -> None:
                data["kernels"][at]["selection"]["schedule"][name] = value

            if name in divisors:
                looked_at += 1
                assert mine.refused("registry-number", lambda data: change(data, 0)), name
            else:  # nothing is divided by it
                assert mine.said(lambda data: change(data, 0))[0] == 0, name
            assert mine.refused("registry-number", lambda data: change(data, -1)), name
            assert mine.refused("registry-number", lambda data: change(data, 1 << 40)), name
    assert looked_at


def test_facts_of_an_arch_rates_grains_and_sets(tmp_path: Path) -> None:
    mine = registry("gemm cpu", tmp_path)
    (name,) = mine.data["selection"]

    def of_arch(kind: str, value: Any) -> Callable[[dict[str, Any]], None]:
        def change(data: dict[str, Any]) -> None:
            facts = data["selection"][name][kind]["x86_64_v3"]
            facts[next(iter(facts))] = value

        return change

    assert mine.refused("registry-number", of_arch("arch", 0))
    code, text = mine.said(of_arch("rates", float("inf")))
    assert (code, "[json]" in text) == (-signal.SIGABRT, True)
    copied = next(at for at, kernel in enumerate(mine.data["kernels"]) if kernel["copies"])
    assert mine.refused("registry-number", lambda data: data["kernels"][copied].update(copies=[-1, 1, 1]))


def test_a_kernel_of_another_selection_library(tmp_path: Path) -> None:
    mine, other = registry("gemm cpu", tmp_path), registry("conv cpu", tmp_path)

    def change(data: dict[str, Any]) -> None:
        data["selection"] |= other.data["selection"]
        data["kernels"][0]["selection"] = other.data["kernels"][0]["selection"]

    assert mine.refused("registry-set", change)


def test_a_model_that_does_not_fit_its_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a library writes has room, and what it reads is there."""
    from tilewright.dispatch.records import machine

    device = {"model": machine("x86_64_v3")["model"]}
    monkeypatch.setattr(model_files, "at_hand_for", lambda *_: (trained_for("gemm-zen4-avx2", device),))
    data = with_models(programs.registry_of("x86_64_v3", [GEMM]), tmp_path)
    mine = Registry(json.loads(json.dumps(data)), GEMM, tmp_path)
    assert " model " in mine.said()[1]

    def changed(change: Callable[[dict[str, Any]], None]) -> bool:
        return mine.refused("model-file", lambda data: change(data["models"][0]))

    def first_terms(model: dict[str, Any]) -> list[Any]:
        return next(iter(model["groups"][0]["terms"].values()))

    assert changed(lambda model: model.update(both=model["both"] - 1))
    assert changed(lambda model: model.update(low=model["low"][:-1], high=model["high"][:-1]))
    assert changed(lambda model: first_terms(model).pop())
    assert changed(lambda model: first_terms(model).__setitem__(0, None))
    assert changed(lambda model: first_terms(model).__setitem__(0, first_terms(model)[1]))
