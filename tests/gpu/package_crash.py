"""Which part of an AOTInductor package makes PyTorch's loader die on a GPU: variants, each in a process of its own.

    python -m tests.gpu.package_crash                 all variants on cuda; one line each, and what the child said last
    python -m tests.gpu.package_crash --device cpu    the same where it works, to see that the script does

`aoti_load_package` takes any RuntimeError of its first way for an old file and loads the same library a second time by
another; what the first way said is lost, and the second may be what dies.  So each variant takes the first way alone
(`load`), then, in another process, both (`both`), and a third runs what was loaded (`run`).  The variants add one thing
at a time: PyTorch alone without and with buffers (constants of a CUDA package are loaded by another way; see PyTorch's
issue 172739), our import beside it, then our ops one after another.  With gdb at hand a child that dies tells where.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

WIDTH = 64
TOLD = "child says:"  # in front of what the parent shows of a child


def _plain(_model: Any, x: Any) -> Any:
    return (x @ x.T).relu()


def _buffers(model: Any, x: Any) -> Any:
    return (x @ model.weight).relu()


def _gemm(_model: Any, x: Any) -> Any:
    import tilewright as tw

    return tw.gemm(x, x.T, epilogue="relu")


def _gemm_buffers(model: Any, x: Any) -> Any:
    import tilewright as tw

    return tw.gemm(x, model.weight, epilogue="relu")


def _conv(model: Any, x: Any) -> Any:
    import tilewright as tw

    return tw.conv(x.reshape(1, 8, 8, WIDTH), model.filters, padding=1)


def _append(_model: Any, x: Any) -> Any:
    import torch

    import tilewright as tw

    rows = x.reshape(1, WIDTH, 1, WIDTH)
    caches = torch.zeros(2, 1, 256, 1, WIDTH, device=x.device, dtype=x.dtype)
    lengths = torch.full((1,), 8, device=x.device, dtype=torch.int32)
    kept = tw.append_kv(caches[0], caches[1], rows, rows, cache_seqlens=lengths)
    return tw.attention(rows[:, -1:], kept.cache_k, kept.cache_v, seqlens_k=lengths + WIDTH)


# What each computes, whether our ops are imported before the package is loaded, and options of Inductor's.
VARIANTS: dict[str, tuple[Callable[[Any, Any], Any], bool, dict[str, Any]]] = {
    "pytorch": (_plain, False, {}),
    "pytorch, buffers": (_buffers, False, {}),
    "pytorch, buffers mapped": (_buffers, False, {"aot_inductor.force_mmap_weights": True}),
    "pytorch, buffers, ours imported": (_buffers, True, {}),
    "gemm": (_gemm, True, {}),
    "gemm, buffers": (_gemm_buffers, True, {}),
    "gemm, buffers mapped": (_gemm_buffers, True, {"aot_inductor.force_mmap_weights": True}),
    "conv": (_conv, True, {}),
    "append_kv and attention": (_append, True, {}),
}


def _model(variant: str, device: str) -> tuple[Any, Any]:
    import torch

    torch.manual_seed(3)
    dtype = torch.float32 if device == "cpu" else torch.bfloat16

    class Model(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.randn(WIDTH, WIDTH, device=device).to(dtype))
            self.register_buffer("filters", torch.randn(WIDTH, 3, 3, WIDTH, device=device).to(dtype))

        def forward(self, x: Any) -> Any:
            return VARIANTS[variant][0](self, x)

    return Model().eval(), torch.randn(WIDTH, WIDTH, device=device).to(dtype)


def child(step: str, variant: str, device: str, place: str) -> None:
    """One step of one variant: `build` the package, `load` it the first way, by `both`, or `run` it."""
    faulthandler.enable()
    import torch

    _, ours, options = VARIANTS[variant]
    known = dir(importlib.import_module("torch._inductor.config").aot_inductor)
    if not all(name.partition(".")[2] in known for name in options):
        print(TOLD, f"this PyTorch has no {', '.join(options)}: built without")
        options = {}
    if ours:
        import tilewright.torch

        print(TOLD, "ops by", tilewright.torch.registration())
    model, x = _model(variant, device)  # which starts CUDA
    with torch.no_grad():
        expected = model(x)
        if step == "build":
            exported = torch.export.export(model, (x,))
            torch._inductor.aoti_compile_and_package(exported, package_path=place, inductor_configs=options)
        elif step == "load":
            from torch.export.pt2_archive._package import load_pt2

            print(TOLD, list(load_pt2(place).aoti_runners))
        else:
            loaded = torch._inductor.aoti_load_package(place)
            print(TOLD, "loaded")
            if step == "run":
                torch.testing.assert_close(loaded(x), expected, atol=0.05, rtol=0.05)
    print(TOLD, "done")


def started(step: str, variant: str, device: str, place: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.gpu.package_crash", "--child", step, variant, "--device", device]
    command += ["--package", str(place)]
    gdb = shutil.which("gdb")
    if gdb and step != "build":
        command = [gdb, "-q", "-batch", "-ex", "run", "-ex", "bt 25", "--args", *command]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    except subprocess.TimeoutExpired as error:
        return subprocess.CompletedProcess(command, 124, str(error.stdout or ""), str(error.stderr or ""))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    parser.add_argument("--child", nargs=2, metavar=("STEP", "VARIANT"), help=argparse.SUPPRESS)
    parser.add_argument("--package", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        step, variant = given.child
        child(step, variant, given.device, given.package)
        return 0
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for index, variant in enumerate(given.only):
            place = Path(folder) / f"{index}.pt2"
            for step in ("build", "load", "both", "run"):
                ended = started(step, variant, given.device, place)
                well = f"{TOLD} done" in ended.stdout
                print(f"{variant:32} {step:6} {'well' if well else f'DIED, answer {ended.returncode}'}", flush=True)
                if not well:
                    failed += 1
                    print("    " + "\n    ".join((ended.stdout + ended.stderr).splitlines()[-60:]), flush=True)
                    if step == "build":
                        break
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
