"""Write the table of main loops by which GEMM kernels of AMD GPUs are estimated: a model of their code, no measurement.

    python benchmarks/amd_code_models.py [--arch gfx942] [--dtype fp16] [--layout rcr] [--pipeline tiled] [--least 128]
                                         [--check]

Kernels of the default pool whose tile is at least `--least` wide and high are compiled (device code only, no GPU),
their main loops counted, and the lines of the table replaced that they are about.  `--check` writes nothing and prints
what differs.  Needs hipcc with the CK Tile headers.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tilewright.arch import arch as arch_by_name
from tilewright.backends.base import backend
from tilewright.backends.hip.backend import HipBackend
from tilewright.backends.hip.gemm import code_models
from tilewright.ops import op
from tilewright.ops.base import KernelSpec

TABLE = Path(code_models.__file__).with_name(code_models.TABLE)


def kernels(arch: str, dtype: str, layout: str, least: int) -> Iterator[KernelSpec]:
    """One of each main loop."""
    gemm, seen = op("gemm"), set()
    for spec in gemm.proposals("default", arch, datatypes=(dtype,), layouts=(layout,)):
        tile = getattr(spec.schedule, "tile", (0, 0))
        if min(tile[:2]) < least or gemm.check(spec) or code_models.main_loop(spec) in seen:
            continue
        seen.add(code_models.main_loop(spec))
        yield spec


def line(spec: KernelSpec) -> dict[str, Any] | None:
    """Of a kernel that is compiled now; None where its code has no main loop with matrix instructions."""
    hip = backend("hip")
    assert isinstance(hip, HipBackend)
    toolchain: Any = hip.toolchain()
    with tempfile.TemporaryDirectory() as work:
        source, output = Path(work) / "kernel.hpp", Path(work) / "kernel.co"
        source.write_text(toolchain.source(spec).text, encoding="utf-8")
        subprocess.run(toolchain.code_object_command(source, output, spec.arch, spec.op), check=True)
        model = hip.read_code(output, spec).get("code_model")
    return None if model is None else code_models.entry(model, arch_by_name(spec.arch), spec.signature.dtype_a)


def main() -> None:
    parser = argparse.ArgumentParser(description="Count the main loops of AMD kernels.")
    parser.add_argument("--arch", action="append")
    parser.add_argument("--dtype", action="append")
    parser.add_argument("--layout", action="append")
    parser.add_argument("--pipeline", action="append", help="only kernels of this one")
    parser.add_argument("--least", type=int, default=128, help="width and height of tiles, at least")
    parser.add_argument("--check", action="store_true", help="write nothing, print what differs")
    chosen = parser.parse_args()
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    table["compiler"] = backend("hip").toolchain().identity.version
    for arch in chosen.arch or ("gfx90a", "gfx942", "gfx950"):
        for dtype in chosen.dtype or ("fp16",):
            for layout in chosen.layout or ("rcr",):
                for spec in kernels(arch, dtype, layout, chosen.least):
                    if chosen.pipeline and spec.schedule.pipeline not in chosen.pipeline:
                        continue
                    key, model = code_models.main_loop(spec), line(spec)
                    if model is None:
                        print(f"no main loop: {spec.name}", flush=True)
                        continue
                    changed = "" if table["models"].get(key) == model else " (changed)"
                    print(f"{model['matrix_issue']:.2f} by {model['bound']:8} {spec.name}{changed}", flush=True)
                    table["models"][key] = model
    if not chosen.check:
        table["models"] = dict(sorted(table["models"].items()))
        TABLE.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
