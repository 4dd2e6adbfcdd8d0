"""A bundle on a GPU from Python and from C++, without nvcc: the same choices and bits, and the time of first calls.

    python tests/gpu/bundle_from_cpp.py build WORK     # with nvcc; a GPU is not needed
    python tests/gpu/bundle_from_cpp.py run WORK       # with a GPU; nvcc is taken off the path

Exits with 1 where a choice or a bit differs.  First calls are printed, and those over 60 ms are marked.  Of Python each
op is called in a process of its own, and the parts of its start are told apart: interpreter and NumPy, the package, the
CUDA context with the operands, `use_bundle`, and of the first call the modules that it imports.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import _bootstrap
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
TARGET = "sm_90a"
MOST_MS = 60.0
PROCESSES = 5  # of each op in Python: hosts differ by a third from one process to the next
SHAPES = {
    "gemm_a": (512, 768), "gemm_b": (768, 1024),
    "conv_x": (4, 28, 28, 64), "conv_w": (128, 3, 3, 64),
    "attention_q": (2, 512, 8, 64), "attention_k": (2, 512, 2, 64), "attention_v": (2, 512, 2, 64),
    "decode_q": (2, 1, 8, 64), "decode_k": (2, 4096, 2, 64), "decode_v": (2, 4096, 2, 64),
}  # fmt: skip


def problems() -> dict[str, Any]:
    import tilewright as tw

    return {
        "gemm": tw.GemmProblem(m=512, n=1024, k=768, dtype_a="fp16", dtype_b="fp16"),
        "conv": tw.ConvProblem(4, 64, 128, (28, 28), (3, 3), before=(1, 1), after=(1, 1), dtype="fp16"),
        "attention": tw.AttentionProblem(2, 8, 512, 512, 64, heads_kv=2, window_right=0, dtype_q="fp16"),
        "decode": tw.AttentionProblem(2, 8, 1, 4096, 64, heads_kv=2, num_splits=4, dtype_q="fp16"),
    }


def compiler() -> list[str]:
    from tilewright.backends.cpu.toolchain import find_toolchain

    return list(find_toolchain().driver)


def build(work: Path) -> None:
    from tilewright.bundle.build import Wish
    from tilewright.bundle.build import build as build_bundle

    work.mkdir(parents=True, exist_ok=True)
    print(build_bundle(work / "model.twb", Wish([TARGET], list(problems().values()))))
    draw = np.random.default_rng(25)
    for name, shape in SHAPES.items():
        draw.standard_normal(shape, np.float32).astype(np.float16).tofile(work / f"{name}.bin")
    cpp = ROOT / "cpp"
    includes = [f"-I{cpp / 'include'}", f"-I{ROOT / 'src/tilewright/include'}"]
    sources = [*map(str, sorted((cpp / "src").glob("*.cpp"))), str(cpp / "tests/gpu_bundle.cpp")]
    words = [*compiler(), "-std=c++17", "-O2", *includes, *sources, "-o", str(work / "gpu_bundle"), "-ldl", "-pthread"]
    subprocess.run(words, check=True)


def without_nvcc() -> dict[str, str]:
    """The environment without any folder that has an nvcc, a store of its own, and nothing that is compiled."""
    places = [place for place in os.environ.get("PATH", "").split(os.pathsep) if not (Path(place) / "nvcc").exists()]
    env = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA_HOME", "CUDA_PATH"))}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # as of an installed package: see `run`
    return {**env, "PATH": os.pathsep.join(places), "TILEWRIGHT_FROZEN": "1", "PYTHONPATH": str(ROOT / "src")}


class Imports:
    """Time that imports take from now on, the outermost of each thread."""

    def __init__(self) -> None:
        self.seconds, self._deep = 0.0, False
        bootstrap: Any = _bootstrap
        self._load, bootstrap._find_and_load = bootstrap._find_and_load, self._timed

    def _timed(self, name: str, loader: Any) -> Any:
        if self._deep:
            return self._load(name, loader)
        start, self._deep = time.perf_counter(), True
        try:
            return self._load(name, loader)
        finally:
            self._deep = False
            self.seconds += time.perf_counter() - start


def since_the_process_began() -> float:
    """Milliseconds, as exactly as the system keeps them (10)."""
    ticks = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
    return 1e3 * (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))


def from_python(work: Path, op: str, imports: Imports, target: str = TARGET) -> None:
    """In a process of its own: a line of JSON of one op's problem.  Learned models choose, as in C++."""
    parts = {"interpreter and NumPy": since_the_process_began()}

    def part(label: str, action: Callable[[], Any]) -> Any:
        start, imported = time.perf_counter(), imports.seconds
        done = action()
        parts[label] = 1e3 * (time.perf_counter() - start)
        parts[f"{label}: imports"] = 1e3 * (imports.seconds - imported)
        return done

    tw = part("import tilewright", lambda: importlib.import_module("tilewright"))
    assert shutil.which("nvcc") is None

    def operand(label: str) -> Any:
        name = f"{op}_{label}"
        return tw.to_device(np.fromfile(work / f"{name}.bin", np.float16).reshape(SHAPES[name]), "cuda")

    labels = [name.split("_")[1] for name in SHAPES if name.startswith(f"{op}_")]
    operands = part("context and operands", lambda: [operand(label) for label in labels])
    keywords: dict[str, dict[str, Any]] = {
        "gemm": {}, "conv": {"padding": 1}, "attention": {"causal": True}, "decode": {"num_splits": 4},
    }  # fmt: skip
    call = {"gemm": tw.gemm, "conv": tw.conv}.get(op, tw.attention)
    with part("use_bundle", lambda: tw.use_bundle(work / "model.twb")), tw.settings.override(measure=False):
        result = part("first call", lambda: call(*operands, **keywords[op]).numpy())
        part("second call", lambda: call(*operands, **keywords[op]).numpy())
        chosen = tw.explain(problems()[op], target=target).selection
        assert chosen is not None
    print(json.dumps({
        "name": op, "digest": "+".join(stage.spec.digest for stage in chosen.stages), "tier": chosen.tier,
        "ms": parts["first call"], "parts": parts,
        "bits": hashlib.sha256(np.ascontiguousarray(result).tobytes()).hexdigest(),
    }))  # fmt: skip


def run(work: Path) -> int:
    env = without_nvcc() | {"TILEWRIGHT_CACHE_DIR": str(work / "store"), "PYTHONPYCACHEPREFIX": str(work / "bytecode")}
    python = {}
    for op in ("gemm", "conv", "attention", "decode"):
        words = [sys.executable, __file__, "python", str(work), op]
        processes = []
        for _ in range(1 + PROCESSES):  # the first one writes bytecode, which an installed package has
            said = subprocess.run(words, env=env, capture_output=True, text=True, check=False)
            if said.returncode:
                print(said.stdout, said.stderr)
                return 1
            processes.append(json.loads(said.stdout))
        python[op] = sorted(processes[1:], key=lambda process: process["ms"])[PROCESSES // 2]
        every = ", ".join(f"{process['ms']:.1f}" for process in processes[1:])
        print(f"{op}: first calls of {PROCESSES} processes {every} ms; of the one in the middle:")
        print(f"{op}:", "; ".join(f"{name} {ms:.1f}" for name, ms in python[op]["parts"].items() if ms >= 0.05), "ms")
    said = subprocess.run([work / "gpu_bundle", work / "model.twb", work], env=env, capture_output=True, text=True,
                          check=False)  # fmt: skip
    print(said.stdout, said.stderr)
    if said.returncode:
        return 1
    wrong = 0
    for line in said.stdout.splitlines()[1:]:
        name, digest, tier, first = line.split()
        bits = hashlib.sha256((work / f"{name}.cpp.bin").read_bytes()).hexdigest()
        mine = python[name]
        same = {"choice": mine["digest"] == digest, "tier": mine["tier"] == tier, "bits": mine["bits"] == bits}
        late = "" if float(first) < MOST_MS else f"  over {MOST_MS:.0f} ms"
        print(
            f"{name}: {same}; first call C++ {float(first):.1f} ms{late}, Python {mine['ms']:.1f} ms ({mine['tier']})"
        )
        wrong += not all(same.values())
    print(
        "the same choices and bits"
        if not wrong and len(said.stdout.splitlines()) == 1 + len(python)
        else f"{wrong} differ"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    what, folder = sys.argv[1], Path(sys.argv[2]).absolute()
    if what == "python":
        from_python(folder, sys.argv[3], Imports())
    elif what == "build":
        build(folder)
    else:
        sys.exit(run(folder))
