"""Random problems in the benchmarks: what they are drawn from, what is reported, and how cublasLt is asked.

Nothing here looks at a time.
"""

from __future__ import annotations

import gzip
import importlib
import json
import shutil
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts import what is beside them."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def loaded(name: str) -> ModuleType:
    return importlib.import_module(name)


# -- the distribution ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("beside")
def test_problems_follow_the_stated_distribution() -> None:
    drawn = loaded("_h200_random")
    found = drawn.random_problems(7, 600, ("bf16", "fp8_e4m3"))
    assert found == drawn.random_problems(7, 600, ("bf16", "fp8_e4m3")), "a seed is a list"
    assert found != drawn.random_problems(8, 600, ("bf16", "fp8_e4m3"))
    assert [one.family for one in found[:6]] == list(drawn.FAMILIES)
    for one in found:
        if one.family == "odd":
            assert one.m % 2 == one.n % 2 == one.k % 2 == 1
            continue
        grain = 16 if one.dtype == "fp8_e4m3" else 8
        leading = one.m if one.layout[0] == "c" else one.k
        assert leading % grain == one.n % grain == one.k % grain == 0
        for size, (low, high) in zip((one.m, one.n, one.k), drawn.FAMILIES[one.family], strict=True):
            assert low / 2 <= size <= high + grain
    for family in drawn.FAMILIES:
        mine = [one for one in found if one.family == family]
        assert {one.layout for one in mine} == set(drawn.LAYOUTS)
        assert {one.dtype for one in mine} == {"bf16", "fp8_e4m3"}


@pytest.mark.usefixtures("beside")
def test_cpu_problems_are_drawn_and_told_by_family() -> None:
    bench = loaded("gemm_cpu")
    options = Namespace(random=5, count=24, dtypes=["fp32", "int8"])
    wanted = bench.asked(options)
    assert wanted == bench.asked(options)
    assert [dtype for _, dtype in wanted] == (["fp32"] * 6 + ["int8"] * 6) * 2
    rows = [
        {"dtype": "fp32", "group": group, "over_best_peer": {"ratio": ratio}}
        for group, ratio in (("small", 2.0), ("small", 0.5), ("odd", 4.0))
    ]
    told = {(one["family"], one["ratio"]): one for one in bench.by_family(rows)}
    assert told["small", "over_best_peer"]["geometric_mean"] == pytest.approx(1.0)
    assert told["small", "over_best_peer"]["least"] == 0.5
    assert told["all", "over_best_peer"]["count"] == 3


@pytest.mark.usefixtures("beside")
def test_convolutions_follow_the_stated_distribution() -> None:
    shapes, bench = loaded("_conv_shapes"), loaded("conv_cpu")
    found = list(shapes.random_shapes(7, 140))
    assert found == list(shapes.random_shapes(7, 140)), "a seed is a list"
    assert found != list(shapes.random_shapes(8, 140))
    assert [one.group for one in found[:7]] == list(shapes.FAMILIES)
    for one in found:
        assert shapes.LEAST <= one.products <= shapes.MOST
        assert one.channels % one.groups == one.filters % one.groups == 0
        assert one.group != "3d" or len(one.size) == 3
    assert any(one.channels % 8 for one in found if one.group == "dense")
    rows = [
        {"dtype": "fp32", "direction": "forward", "group": group, "shape": "s", "over_torch": {"ratio": ratio}}
        for group, ratio in (("dense", 0.5), ("depthwise", 2.0))
    ]
    told = bench.summary(rows)
    assert told["fp32 forward"]["geometric_mean"] == pytest.approx(1.0)
    assert not told["fp32 forward"]["met"]
    assert told["fp32 forward special"]["met"]


# -- gemm_h200.py --random, rehearsed --------------------------------------------------------------------------------


def test_a_rehearsal_tells_every_family_and_leaves_a_sweep(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    result, sweep = tmp_path / "random.json", tmp_path / "sweep.json.gz"
    also = tmp_path / "also.json"
    also.write_text('[[144, 128, 0, [1, 1], "cooperative_swap_ab"]]', encoding="utf-8")
    command = [sys.executable, str(BENCHMARKS / "gemm_h200.py"), "--dry-run", "--random", "11", "--count", "12"]
    command += ["--rounds", "2", "--dtypes", "bf16", "int8", "--output", str(result), "--sweep", str(sweep)]
    done = subprocess.run([*command, "--also", str(also)], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    data = json.loads(result.read_text(encoding="utf-8"))
    families = ["large", "decode", "mid", "tall", "small", "odd"]
    assert [row["family"] for row in data["rows"]] == families * 2
    assert data["seed"] == 11
    assert data["wrong"] == []
    told = {(one["family"], one["ratio"]) for one in data["summary"]}
    assert {(one, "measured_over_cublas") for one in (*families, "all")} <= told
    kept = json.loads(gzip.decompress(sweep.read_bytes()))
    assert any(one["schedule"].get("turned") and one["schedule"]["tile"][0] == 144 for one in kept["kernels"])
    assert [one["family"] for one in kept["about"]["peers"]] == families * 2
    command = [sys.executable, str(BENCHMARKS / "fit_cuda.py"), "--judge", str(sweep), "--looks", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "12 shapes (others): regret" in done.stdout
    assert "decode" in done.stdout


@pytest.mark.usefixtures("beside")
def test_goals_are_judged_by_family() -> None:
    pytest.importorskip("torch")
    race = loaded("_h200_race")
    line = {"geometric_mean": 1.02, "p10": 0.95, "least": 0.85}
    assert race.wanted(line | {"family": "large", "ratio": "default_over_cublas"}) is True
    assert race.wanted(line | {"family": "mid", "ratio": "default_over_cublas"}) is False
    assert race.wanted(line | {"family": "large", "ratio": "measured_over_cublas"}) is False
    assert race.wanted(line | {"family": "tall", "ratio": "measured_over_tuned"}) is True
    assert race.wanted(line | {"family": "tall", "ratio": "default_over_tuned"}) is None
    assert race.wanted(line | {"least": 0.79, "family": "large", "ratio": "default_over_cublas"}) is False


# -- cublasLt, played by a library that multiplies on the host ---------------------------------------------------------

PLAYED = r"""
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
typedef struct { int type; uint64_t rows, columns; int64_t stride; } Matrix;
typedef struct { int compute, scale, turned[2]; } Operation;
typedef struct { uint64_t algorithm[8]; size_t workspace; int state; float waves; int reserved[4]; } Offer;
int cublasLtCreate(void **to) { *to = (void *)1; return 0; }
int cublasLtMatrixLayoutCreate(void **to, int type, uint64_t rows, uint64_t columns, int64_t stride) {
  Matrix *made = malloc(sizeof(Matrix));
  *made = (Matrix){type, rows, columns, stride};
  *to = made;
  return 0;
}
int cublasLtMatmulDescCreate(void **to, int compute, int scale) {
  Operation *made = calloc(1, sizeof(Operation));
  made->compute = compute, made->scale = scale, *to = made;
  return 0;
}
int cublasLtMatmulDescSetAttribute(void *one, int at, const void *value, size_t size) {
  if ((at == 3 || at == 4) && size == 4) memcpy(&((Operation *)one)->turned[at - 3], value, 4);
  return 0;
}
int cublasLtMatmulPreferenceCreate(void **to) { *to = malloc(8); return 0; }
int cublasLtMatmulPreferenceSetAttribute(void *one, int at, const void *value, size_t size) {
  memcpy(one, value, 8);
  return at == 1 && size == 8 ? 0 : 7;
}
int cublasLtMatmulAlgoGetHeuristic(void *handle, void *operation, void *a, void *b, void *c, void *d, void *preference,
                                   int most, Offer *to, int *count) {
  if (((Operation *)operation)->compute != 68 || most < 3) return 7;
  for (int i = 0; i < 3; ++i) to[i].algorithm[7] = 40 + i, to[i].state = i == 1 ? 15 : 0;
  *count = 3;
  return 0;
}
int cublasLtMatmul(void *handle, Operation *op, const float *alpha, const float *a, const Matrix *at, const float *b,
                   const Matrix *bt, const float *beta, const float *c, const Matrix *ct, float *d, const Matrix *dt,
                   const uint64_t *algorithm, void *workspace, size_t room, void *stream) {
  uint64_t k = op->turned[0] ? at->rows : at->columns;
  if (algorithm[7] == 42) return 15;  /* offered, and refused */
  if (at->type || dt->rows != (op->turned[0] ? at->columns : at->rows) || *beta != 0) return 7;
  for (uint64_t i = 0; i < dt->rows; ++i)
    for (uint64_t j = 0; j < dt->columns; ++j) {
      float sum = 0;
      for (uint64_t q = 0; q < k; ++q)
        sum += (op->turned[0] ? a[q + i * at->stride] : a[i + q * at->stride]) *
               (op->turned[1] ? b[j + q * bt->stride] : b[q + j * bt->stride]);
      d[i + j * dt->stride] = *alpha * sum;
    }
  return 0;
}
"""


@pytest.mark.usefixtures("beside")
def test_cublaslt_is_asked_for_the_product_in_every_layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler for the library that plays cublasLt")
    (tmp_path / "played.c").write_text(PLAYED, encoding="utf-8")
    library = tmp_path / "libcublasLt.so.0"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "played.c"], check=True)
    lt = loaded("_cublaslt")
    monkeypatch.setattr(lt, "loaded_library", lambda: library)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=0))
    peer = lt.CublasLt("cpu")
    for turned_a in (False, True):
        for turned_b in (False, True):
            a = torch.randn(9, 5).T if turned_a else torch.randn(5, 9)
            b = torch.randn(7, 9).T if turned_b else torch.randn(9, 7)
            out = torch.zeros(5, 7)
            offers = peer.offers(a, b, out)
            assert len(offers) == 2, "what the heuristic itself calls impossible is left out"
            offers[0]()
            assert torch.allclose(out, a @ b, atol=1e-5), (turned_a, turned_b)
            with pytest.raises(lt.LtError, match="status 15"):
                offers[1]()
    with pytest.raises(lt.LtError, match="Heuristic"):
        peer.offers(a, b, out, tf32=True)


# -- the model beside the estimate -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("beside")
def test_a_selection_beats_another_by_mean_and_p10_of_every_family() -> None:
    pytest.importorskip("torch")
    bench = loaded("selection_h200")

    def row(family: str, model: float, estimate: float) -> dict[str, object]:
        return {"family": family, "same": model == estimate, "decided": "model", "seconds": {"cublas": 1.0,
                "model": model, "estimate": estimate}}  # fmt: skip

    rows = [row("mid", 0.5, 1.0), row("mid", 1.0, 1.0), row("odd", 2.0, 1.0)]
    found = {one["family"]: one for one in bench.summary(rows)}
    assert (found["mid"]["beaten"], found["odd"]["beaten"]) == (True, False)
    assert found["mid"]["same"] == 1
    assert found["mid"]["model_over_estimate"]["mean"] == pytest.approx(2**0.5)
    assert found["all"]["problems"] == 3
    assert found["all"]["model_over_cublas"]["least"] == 0.5
