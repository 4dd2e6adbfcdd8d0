"""A model with our ops run by a program in C++ without Python, from AOTInductor's library instead of a package.

    python -m tests.gpu.library_from_cpp                   on cuda
    python -m tests.gpu.library_from_cpp --device cpu      the same without a GPU

PyTorch 2.11 dies where it loads a CUDA package, its own too (`tests.gpu.package_crash`).  Here
`torch._export.aot_compile` makes the bare library, and `plans.cpp` gives it to AOTInductor's runner.  One line a step;
the last says that the numbers are those that Python has.
"""

from __future__ import annotations

import argparse
import faulthandler
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tilewright as tw
import tilewright.torch
from tests.torch.programs import compiled, run

ROWS, WIDTH, HEADS = 64, 256, 4


class Model(torch.nn.Module):  # type: ignore[misc]
    """A product with an activation, a convolution, a cache that is appended to, and attention over it."""

    def __init__(self, device: str) -> None:
        super().__init__()
        kind = torch.bfloat16 if device == "cuda" else torch.float32
        for name, shape in {"weight": (WIDTH, WIDTH), "filters": (WIDTH, 3, 3, WIDTH)}.items():
            numbers = torch.randn(*shape, device=device) / float(np.prod(shape[1:])) ** 0.5
            self.register_buffer(name, numbers.to(kind))

    def forward(self, x: Any) -> Any:
        hidden = tw.gemm(x.to(self.weight.dtype), self.weight.T, epilogue="relu")
        image = tw.conv(hidden.reshape(1, 8, 8, WIDTH), self.filters, padding=1)
        rows = image.reshape(1, ROWS, HEADS, WIDTH // HEADS)
        caches = torch.zeros(2, 1, 512, HEADS, WIDTH // HEADS, device=x.device, dtype=hidden.dtype)
        lengths = torch.full((1,), 8, device=x.device, dtype=torch.int32)
        kept = tw.append_kv(caches[0], caches[1], rows, rows, cache_seqlens=lengths)
        seen = tw.attention(rows[:, -1:], kept.cache_k, kept.cache_v, seqlens_k=lengths + ROWS)
        return (hidden.float() + seen.reshape(1, WIDTH).float()).contiguous()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    device = parser.parse_args().device
    warnings.simplefilter("ignore")
    faulthandler.enable()
    started = time.perf_counter()

    def say(text: str) -> None:
        print(f"{time.perf_counter() - started:6.1f} s  {text}", flush=True)

    torch.manual_seed(29)
    model, x = Model(device).eval(), torch.randn(ROWS, WIDTH, device=device)
    with tempfile.TemporaryDirectory() as place, torch.no_grad():
        library = torch._export.aot_compile(model, (x,))
        say(f"compiled: {Path(str(library)).name}, ops by {tilewright.torch.registration()}")
        loaded = torch._export.aot_load(str(library), device)
        say("loaded by Python")
        with tilewright.torch.plans(Path(place) / "folder") as written:
            expected = loaded(x)
        torch.testing.assert_close(expected, model(x), atol=0.05, rtol=0.05)
        say(f"plans of {sorted({op for op, _ in written.calls})}")
        program = compiled("plans", Path(place))
        say("the program is built")
        given, result = Path(place) / "x", Path(place) / "y"
        given.write_bytes(x.cpu().numpy().tobytes())
        ran = run(program, library, Path(place) / "folder", given, result, WIDTH, device)
        if ran.returncode:
            say(f"the program ended with {ran.returncode}: {(ran.stdout + ran.stderr)[-1500:]}")
            return 1
        numbers = np.frombuffer(result.read_bytes(), np.float32).reshape(expected.shape)
        same = np.array_equal(numbers, expected.cpu().numpy())
        worst = float(np.abs(numbers - expected.cpu().numpy()).max())
        say(f"run by C++ without Python: {'the same bits' if same else f'largest difference {worst:.3g}'}")
    return int(worst > 0.05)


if __name__ == "__main__":
    sys.exit(main())
