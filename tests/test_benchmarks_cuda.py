"""The scripts for NVIDIA GPUs as far as they go without one.  Nothing here looks at a time."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from tilewright import ops
from tilewright.arch import facts
from tilewright.backends.cuda.gemm import KERNELS
from tilewright.ops.base import plain
from tilewright.ops.conv.spec import VARIANTS
from tilewright.ops.gemm import GemmProblem
from tilewright.ops.gemm.problem import default_output

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
ARCH = "sm_90a"
torch = pytest.importorskip("torch")


def script(name: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCHMARKS / name), *options]
    everything = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=everything)


def module(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A script as a module."""
    found = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    made = importlib.util.module_from_spec(found)
    monkeypatch.setitem(sys.modules, name, made)
    found.loader.exec_module(made)
    return made


@pytest.fixture
def fit_cuda(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return module("fit_cuda", monkeypatch)


@pytest.fixture
def sanitize_cuda(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return module("sanitize_cuda", monkeypatch)


# -- gemm_h200.py, rehearsed -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("h200") / "gemm_h200.json"
    shapes = ["--shape", "64", "64", "64", "--shape", "16", "72", "128", "--shape", "33", "35", "37"]
    done = script("gemm_h200.py", "--dry-run", *shapes, "--rounds", "3", "--output", str(place))
    assert done.returncode == 0, done.stdout + done.stderr
    return place


def test_a_result_has_every_shape_type_cache_and_selection(result: Path) -> None:
    data = json.loads(result.read_text(encoding="utf-8"))
    assert [(row["dtype"], row["shape"], row["l2"]) for row in data["rows"]] == [
        (dtype, shape, l2)
        for dtype in ("bf16", "fp16")
        for shape in ("64x64x64", "16x72x128", "33x35x37")
        for l2 in ("cold", "clean", "warm")
    ]
    for row in data["rows"]:
        assert set(row["seconds"]) == {"cublas", "default", "measured"}
        ratio = row["measured_over_cublas"]
        assert ratio["low"] <= ratio["quartile_1"] <= ratio["quartile_3"] <= ratio["high"]
    assert data["wrong"] == []
    assert data["dry_run"] is True
    assert any("geometric mean of cuBLAS" in goal["goal"] for goal in data["goals"])


def test_nothing_runs_or_is_written_by_accident(tmp_path: Path) -> None:
    nowhere = {"TILEWRIGHT_CUDA_LIBRARY": str(tmp_path / "libcuda.so.1")}
    done = script("gemm_h200.py", **nowhere)
    assert done.returncode == 1
    assert "no NVIDIA GPU" in done.stderr
    done = script("gemm_h200.py", "--dry-run", "--quick")
    assert done.returncode == 1
    assert "--output" in done.stderr
    done = script("sanitize_cuda.py", **nowhere)
    assert done.returncode == 0
    assert done.stdout.startswith("skipped: no NVIDIA GPU")


def test_replays_are_timed_in_turn_and_the_cache_is_emptied_before_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's CUDA calls are played: what is queued, in which order, is what would be queued."""
    log: list[str] = []

    class Graph:
        def capture_begin(self) -> None:
            log.append("begin")

        def capture_end(self) -> None:
            log.append("end")

        def replay(self) -> None:
            log.append("replay")

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self, stream: object) -> None:
            log.append("mark")

        def elapsed_time(self, other: object) -> float:
            return 2.0

    free = [100]
    stream = SimpleNamespace(wait_stream=lambda other: None, synchronize=lambda: log.append("wait"))
    for name, played in (
        ("Stream", lambda: stream),
        ("current_stream", lambda: None),
        ("stream", lambda one: nullcontext()),
        ("Event", Event),
        ("CUDAGraph", Graph),
        ("_sleep", lambda cycles: log.append("sleep")),
        ("mem_get_info", lambda: (free[0], 100)),
        ("empty_cache", lambda: log.append("empty")),
    ):
        monkeypatch.setattr(torch.cuda, name, played)
    timing = module("_cuda_timing", monkeypatch)
    monkeypatch.setattr(timing.GraphClock, "device", "cpu")
    clock = timing.GraphClock(64)
    calls = [clock.captured(lambda: log.append("run")) for _ in range(2)]
    assert log == ["run", "wait", "begin", "run", "end"] * 2
    log.clear()
    free[0] = 10  # what PyTorch keeps of graphs that are gone fills the device
    clock.captured(lambda: log.append("run"))
    assert log == ["empty", "run", "wait", "begin", "run", "end"]
    log.clear()
    assert clock.rounds(calls, 300, "cold") == [[0.002] * 300] * 2  # more than are queued at a time
    assert log[:8] == ["replay", "replay", *["mark", "replay", "mark"] * 2]
    assert set(clock._written.tolist()) != {0}
    log.clear()
    assert clock.rounds(calls[:1], 1, "warm") == [[0.002]]
    assert log == ["replay", "replay", "sleep", "mark", "replay", "mark", "wait"]
    assert clock.rounds([], 3, "clean") == []
    ratio = timing.spread([2.0, 4.0, 6.0], [1.0, 2.0, 2.0])
    assert (ratio["ratio"], ratio["low"], ratio["high"]) == (2.0, 2.0, 3.0)


def test_the_shapes_are_those_that_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = module("_h200_shapes", monkeypatch)
    assert len(shapes.SHAPES) == len(set(shapes.SHAPES)) == 5 + 7 * 6 + 7 - 1  # 4096 cubed is asked for twice
    assert set(shapes.QUICK) <= set(shapes.SHAPES)
    assert shapes.ODD in shapes.SHAPES


def test_the_picture_and_the_page(result: Path, tmp_path: Path) -> None:
    picture = tmp_path / "picture.svg"
    places = ["--source", str(result), "--output", str(picture)]
    assert script("plot.py", "--check", *places).returncode == 1
    assert script("plot.py", *places).returncode == 0
    assert script("plot.py", "--check", *places).returncode == 0
    words = " ".join(ElementTree.parse(picture).getroot().itertext())
    assert all(text in words for text in ("bf16: speed", "fp16: speed", "16x72x128", "cold L2", "warm L2"))

    data = json.loads(result.read_text(encoding="utf-8"))
    data["machine"] |= {"multiprocessors": 1, "driver": "none"}
    data["versions"]["compiler"] = "none"
    data["fp8"] = [{"shape": "8x8x8", "selection": "default", "fp8": 1e-6, "over_bf16": {"ratio": 1.0}}]
    made_up = tmp_path / "made_up.json"
    made_up.write_text(json.dumps(data), encoding="utf-8")
    page = tmp_path / "nvidia.md"
    page.write_text("before\n<!-- speed: written by benchmarks/nvidia_table.py, do not edit -->\nold\n"
                    "<!-- end of speed -->\nbetween\n"
                    "<!-- random problems: written by benchmarks/nvidia_table.py, do not edit -->\n"
                    "<!-- end of random problems -->\nafter\n", encoding="utf-8")  # fmt: skip
    drawn = {"summary": [{"family": "tall", "ratio": "default_over_cublas", "count": 3, "geometric_mean": 1.234,
                          "p10": 0.9, "least": 0.8}], "rows": [{"dtype": "bf16"}]}  # fmt: skip
    raced = (("fp32", "1x2x3", 1.0), ("tf32", "4x5x6", 0.5), ("tf32", "7x8x9", 2.0))
    rows = [{"dtype": dtype, "layout": "rrr", "shape": shape, "default_over_cublas": {"ratio": ratio}}
            for dtype, shape, ratio in raced]  # fmt: skip
    rows.append({"dtype": "int8", "layout": "rrr", "shape": "1x1x1"})  # nobody to race with
    over = {"mean": 1.5, "p10": 1.25, "least": 0.75}
    chosen = {"family": "mid", "problems": 7, "same": 3, "model_over_cublas": over, "estimate_over_cublas": over}
    several = {"random": drawn, "types": {**drawn, "rows": rows}, "choice": {"summary": [chosen], "rows": rows[:1]}}
    for name, one in several.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({**data, **one}), encoding="utf-8")
    kept = [str(tmp_path / f"{name}.json") for name in several]
    places = ["--result", str(made_up), "--random-results", *kept, "--page", str(page)]
    assert script("nvidia_table.py", "--check", *places).returncode == 1
    assert script("nvidia_table.py", *places).returncode == 0
    assert script("nvidia_table.py", "--check", *places).returncode == 0
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("-->\nafter\n")
    assert "\nold\n" not in text
    assert "| tall | 3 | 1.23 | 0.90 | 0.80 |" in text
    assert "| mid | 7 | 1.50 | 1.25 | 0.75 | 1.50 | 1.25 | 0.75 | 3 |" in text
    assert "| fp32 | 1 | 1.00 | 1.00 | 1.00 | rrr 1x2x3 |\n| tf32 | 2 | 1.00 | 0.65 | 0.50 | rrr 4x5x6 |\n\n" in text
    for row in data["rows"]:
        assert f"| {row['dtype']} | {row['l2']} | {row['shape']} |" in text


def test_the_stored_page_says_what_the_stored_result_says() -> None:
    done = script("nvidia_table.py", "--check")
    assert done.returncode == 0, done.stderr


# -- fit_cuda.py -----------------------------------------------------------------------------------------------------


def test_a_sweep_can_be_read(fit_cuda: ModuleType, tmp_path: Path) -> None:
    place = tmp_path / "sweep.json.gz"
    done = script("gemm_h200.py", "--dry-run", "--shape", "64", "64", "64", "--sweep", str(place), "--rounds", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    shapes = fit_cuda.read_sweep(place)
    assert [one.name for one in shapes] == ["gemm m=64 n=64 k=64 bf16_rcr"]
    assert len(shapes[0].kernels) == len(shapes[0].seconds) > 10


def test_constants_are_found_again(fit_cuda: ModuleType) -> None:
    """A model of two terms whose numbers are off: kernels are numbers of steps, problems sizes."""
    values = {"start": 1.0, "step": 1.0, "idle": 5.0}
    kernels, sizes = np.array((1, 2, 3, 4, 6, 8, 12)), (8, 20, 60, 150, 400, 900)
    shapes = [fit_cuda.Shape(size, tuple(kernels), 2.0 * kernels + 0.1 * size / kernels) for size in sizes]

    def guess(values: dict[str, float]) -> list[Any]:
        return [values["start"] * kernels + values["step"] * size / kernels for size in sizes]

    before = fit_cuda.mean_regret(fit_cuda.regrets(shapes, guess(values)))
    found = fit_cuda.fit(shapes, values, guess, looks=600)
    assert found["idle"] == 5.0, "what changes nothing stays"
    after = fit_cuda.mean_regret(fit_cuda.regrets(shapes, guess(found)))
    assert before > 1.2
    assert after < 1.01
    assert found["start"] / found["step"] == pytest.approx(20.0, rel=0.25)


@pytest.mark.parametrize("datatype", ["bf16", "fp32", "tf32", "int8"])
def test_estimates_of_every_type_are_the_same_all_at_once(fit_cuda: ModuleType, datatype: str) -> None:
    op, shapes = ops.op("gemm"), []
    for size in ((8, 6272, 2048), (304, 80, 736)):
        problem = GemmProblem(*size, datatype, dtype_c=default_output(datatype, datatype), layout="rrr")
        serving = tuple(one for one in op.candidates(problem.signature, ARCH) if not op.supports(one, problem))
        shapes.append(
            fit_cuda.Shape(problem, serving, np.array([KERNELS.estimate(one, problem, 1) for one in serving]))
        )
    for together, shape in zip(fit_cuda.Table(shapes)({}), shapes, strict=True):
        assert len(shape.kernels) > 5
        assert together == pytest.approx(shape.seconds)


def test_the_estimate_of_the_package_can_be_fitted(fit_cuda: ModuleType) -> None:
    """Made-up times: the model itself with other constants.  Fitting to them must lower what choosing by it costs."""
    op, before = ops.op("gemm"), fit_cuda.constants_of(ARCH)
    assert len(before) > 10
    drawn = np.random.default_rng(5).standard_normal(len(before))
    other = {name: value * math.exp(0.5 * by) for (name, value), by in zip(before.items(), drawn, strict=True)}
    shapes = []
    for size in ((512, 512, 512), (4096, 4096, 4096), (64, 2112, 7168), (1, 4096, 4096), (256, 6144, 4096)):
        problem = GemmProblem(*size, "bf16", layout="rcr")
        serving = [one for one in op.candidates(problem.signature, ARCH) if not op.supports(one, problem)]
        shapes.append(fit_cuda.Shape(problem, tuple(serving), np.ones(len(serving))))
    times = fit_cuda.Table(shapes)(other)
    shapes = [replace(shape, seconds=seconds) for shape, seconds in zip(shapes, times, strict=True)]
    table = fit_cuda.Table(shapes)
    alone = [np.array([KERNELS.estimate(one, shape.problem, 1) for one in shape.kernels]) for shape in shapes]
    for together, one_by_one in zip(table(before), alone, strict=True):
        assert together == pytest.approx(one_by_one), "all at once is what each is alone"
    at_first = fit_cuda.loss(shapes, table(before))
    found = fit_cuda.fit(shapes, before, table, looks=150)
    assert fit_cuda.loss(shapes, table(fit_cuda.rounded(found))) < at_first


def test_constants_are_written_where_they_were(fit_cuda: ModuleType) -> None:
    place = Path(facts.__file__).with_name("fits.json")
    text = place.read_text(encoding="utf-8")
    constants = fit_cuda.constants_of(ARCH)
    assert fit_cuda.rewritten(text, ARCH, constants) == text, "nothing else changes"
    changed = {name: 2 * value for name, value in constants.items()}
    before, after = json.loads(text), json.loads(fit_cuda.rewritten(text, ARCH, changed))
    before["fits"][ARCH]["gemm"].update(changed)
    assert after == before
    assert len(changed) > 40


# -- sanitize_cuda.py ------------------------------------------------------------------------------------------------


def test_findings_belong_to_the_kernel_that_ran(sanitize_cuda: ModuleType) -> None:
    said = """========= COMPUTE-SANITIZER
kernel begins: one
kernel ends: one
kernel begins: two
========= Invalid __global__ read of size 16 bytes
=========     at two+0x80
=========
kernel ends: two
kernel begins: three
========= ERROR SUMMARY: 1 error
"""
    assert sanitize_cuda.findings(said) == {
        "one": [],
        "two": ["Invalid __global__ read of size 16 bytes", "at two+0x80"],
        "three": ["the process ended in it"],
    }


def test_the_sample_has_every_pipeline_and_scheduler_of_the_pool(sanitize_cuda: ModuleType) -> None:
    from tests.backends.cuda.gemm import names as nvidia
    from tests.backends.cuda.gemm.names import WIDE

    specs = [spec for spec, _ in sanitize_cuda.sample(ARCH)]
    assert {one.schedule.pipeline for one in specs} == set(nvidia.PIPELINES)
    assert any(one.signature.dtype_a == "fp8_e4m3" for one in specs)
    wide = [one.schedule for one in specs if one.signature.dtype_a == "tf32"]
    assert {one.tile[:2] for one in wide if one.tile_scheduler == "split_k"} == {(m, n) for m, n, *_ in WIDE}
    assert len({one.digest for one in specs}) == len(specs) <= 50


@pytest.mark.parametrize("op", ["conv", "attention"])
def test_the_sample_of_other_ops_has_every_pipeline_too(sanitize_cuda: ModuleType, op: str) -> None:
    taken = sanitize_cuda.ways(op, ARCH)
    specs = [spec for spec, _ in taken]
    assert len({one.digest for one in specs}) == len(specs) <= 100
    assert all(not ops.op(op).supports(*one) for one in taken)
    read = [ops.op(op).problem_from_dict(json.loads(json.dumps(plain(one)))) for _, one in taken]
    assert read == [one for _, one in taken]
    if op == "conv":
        found = {(one.signature.variant, one.schedule.pipeline) for one in specs}
        for pipeline in ("tma_ws", "width_folded", "padded", "depthwise", "depthwise_tile"):
            assert {variant for variant, each in found if each == pipeline} == set(VARIANTS), pipeline
        assert {variant for variant, each in found if each == "halo"} == {"forward", "backward_data"}


def test_kernels_after_one_that_ended_the_process_are_run(
    sanitize_cuda: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    specs = sanitize_cuda.sample(ARCH)[:3]
    runs: list[int] = []

    def tool(_tool: str, _name: str, work: Path, _limit: float) -> tuple[str, int]:
        names = [sanitize_cuda.GEMM.spec_from_dict(one["spec"]).name for one in json.loads(work.read_text("utf-8"))]
        runs.append(len(names))
        first = f"kernel begins: {names[0]}\n========= Invalid write\n"
        return (
            (first, 86)
            if len(runs) == 1
            else ("".join(f"kernel begins: {one}\nkernel ends: {one}\n" for one in names), 0)
        )

    monkeypatch.setattr(sanitize_cuda, "run_tool", tool)
    told = list(sanitize_cuda.under("tool", "memcheck", specs, 1.0))
    assert runs == [3, 2]
    assert [one.partition(": ")[2] for one in told] == ["Invalid write", "the process ended in it"]
    lines = capsys.readouterr().out.splitlines()
    assert ["FOUND" in one for one in lines] == [True, False, False]


# -- fused_h200.py ---------------------------------------------------------------------------------------------------


def test_fused_problems_are_drawn_as_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    fused = module("fused_h200", monkeypatch)
    asked = list(fused.drawn(7, 200))
    assert asked == list(fused.drawn(7, 200)) != list(fused.drawn(8, 200))
    assert {one.layout for one in asked} == {"rcr", "rrr", "crr", "ccr"}
    assert {one.dtype for one in asked} == {"bf16", "fp16"}
    assert all(2 * one.m * one.n * one.k <= 3e11 for one in asked)
    assert all(256 <= max(one.m, 256) <= 8192 and one.k <= 8192 for one in asked)
    even = sum(one.m % 8 == one.n % 8 == one.k % 8 == 0 for one in asked)
    assert 120 <= even <= 180
    for one in asked[:20]:
        for epilogue, name in fused.EPILOGUES.items():
            problem = one.problem(epilogue)
            assert (problem.epilogue, problem.num_d) == (name, 0 if epilogue == "plain" else 1)


def test_fused_without_a_gpu_says_so() -> None:
    done = script("fused_h200.py", "--random", "1", "--output", os.devnull, CUDA_VISIBLE_DEVICES="")
    assert done.returncode
    assert "no NVIDIA GPU" in done.stderr
