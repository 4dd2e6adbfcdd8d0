"""What main loops of built kernels reach by a model of their own code: a table for selection and `explain`.

`code_models.json` is written by `benchmarks/amd_code_models.py`, which compiles kernels and counts their main loops
(`tilewright.inspect.amd_model`).  It is a model, not a measurement: no AMD GPU was at hand.  Kernels with equal
operands and tiles share a main loop, whatever they do with its accumulators; a kernel that is not in the table is
estimated by the constants of its pipeline.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from tilewright import jsontext, packaged
from tilewright.arch import Arch
from tilewright.ops.base import KernelSpec

WORDS = "a model from the code, not a measurement"
PACKAGE, TABLE = "tilewright.backends.hip.gemm", "code_models.json"
# What of a schedule its main loop is made of.
_FIELDS = ("tile", "warp_grid", "warp_tile", "scheduler", "stages", "pad")


def main_loop(spec: KernelSpec) -> str:
    """By what the table knows a main loop of a matrix product."""
    s, h = spec.signature, spec.schedule
    values = [getattr(h, name, None) for name in _FIELDS]
    words = ["x".join(str(int(part)) for part in value) if isinstance(value, tuple) else str(value) for value in values]
    parts = [spec.op, spec.arch, s.dtype_a, s.dtype_b, s.layout[:2], h.pipeline]
    return " ".join([*parts, *(f"{name}={word}" for name, word in zip(_FIELDS, words, strict=True) if word != "None")])


def entry(model: Mapping[str, Any], arch: Arch, dtype: str) -> dict[str, Any]:
    """A line of the table, of a kernel's code model.

    Of types without a rate in the data sheet (fp32, and what is multiplied as another type) the share of the peak is
    how busy the matrix units are.
    """
    peak = peak_macs(arch, dtype)
    of_peak = model["macs"] / model["turn"] / peak if peak else model["matrix_issue"]
    return {
        "of_peak": round(min(1.0, of_peak), 3),
        **{name: model[name] for name in ("matrix_issue", "bound", "waves", "turn", "clocks")},
    }


def peak_macs(arch: Arch, dtype: str) -> float:
    """Multiply-adds a clock of one SIMD, by the data sheet; 0 where it has none of the type."""
    assert arch.rates is not None
    return arch.rates.mma.get(dtype, 0.0) / 2 / arch.rates.clock / arch.compute_units / arch.simds


@lru_cache(maxsize=1)
def _models() -> Mapping[str, Mapping[str, Any]]:
    models: Mapping[str, Mapping[str, Any]] = jsontext.loads(packaged.read_text(PACKAGE, TABLE))["models"]
    return models


def model_of(spec: KernelSpec) -> Mapping[str, Any] | None:
    return _models().get(main_loop(spec))


def issue(spec: KernelSpec) -> int:
    """Thousandths of the matrix units' peak that the main loop reaches by the model; 0 where it is not in the table."""
    model = model_of(spec)
    return 0 if model is None else max(1, round(1000 * float(model["of_peak"])))


def remark(spec: KernelSpec) -> str:
    """For people; empty where the table does not have the kernel's main loop."""
    model = model_of(spec)
    if model is None:
        return ""
    share, bound = model["matrix_issue"], model["bound"]
    return f"main loop: {share:.2f} of matrix issue, bound by {bound} ({WORDS})"
