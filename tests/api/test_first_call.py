"""What the first call of a process loads when the store has its kernels: what compiles and measures stays away."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tilewright.backends import search
from tilewright.backends.cpu.toolchain import find_toolchain

CALL = """
import json, sys
import numpy as np
before = set(sys.modules)
import tilewright as tw
ones = lambda *shape: np.ones(shape, np.float32)
{call}
print(json.dumps(sorted(set(sys.modules) - before)))
"""
CALLS = {
    "gemm": "tw.gemm(ones(24, 40), ones(40, 32))",
    "conv": "tw.conv(ones(1, 9, 9, 16), ones(16, 3, 3, 16), padding=1)",
    "attention": "tw.attention(ones(1, 5, 2, 64), ones(1, 20, 2, 64), ones(1, 20, 2, 64), causal='bottom_right')",
}
# Packages and modules that took a third of a first call, each with the question it was loaded for.
AWAY = {
    "jinja2": "sources are rendered for their keys (backends.plain_templates)",
    "pydantic": "files that people write are read by it",
    "typer": "the command line",
    "rich": "the command line",
    "concurrent.futures": "a kernel is loaded once however many threads ask (dispatch.kernels)",
    "logging": "concurrent.futures brings it",
    "queue": "kernels built in the background",
    "zipfile": "files of packages and models (packaged, dispatch.model_archive)",
    "importlib.resources": "files of packages (packaged)",
    "importlib.metadata": "what packages publish (entry_points)",
    "_hashlib": "keys of the store (digests)",
    "tempfile": "libraries in memory (runtime.memory_library)",
    "numpy.random": "samples (runtime.bindings.X.samples)",
    "secrets": "names of work folders (build.store), numpy.random",
    "subprocess": "compilers are asked who they are (backends.asking)",
    "selectors": "subprocess brings it",
    "shutil": "compilers are looked for (backends.search)",
    "random": "problems by a seed (ops.X.engine)",
    "shlex": "words of settings, and lines for people",
    "difflib": "names that are not known",
    "sqlite3": "measurements",
    "tilewright.build.compile_run": "what the store lacks",
    "tilewright.build.diagnose": "compiles that fail",
    "tilewright.build.ninja_run": "compiles",
    "tilewright.build.upkeep": "a store that has grown",
    "tilewright.build.without_compiler": "machines without a compiler",
    "tilewright.dispatch.background": "kernels built in the background",
    "tilewright.dispatch.locks": "lock files",
    "tilewright.dispatch.registry_json": "registries for C++",
    "tilewright.ops.numerics": "results that are checked",
    "tilewright.ops.demo": "`tilewright demo`",
    "tilewright.ops.sweep": "configurations of sweeps",
    "tilewright.cli": "the command line",
    "tilewright.codegen": "folders of sources",
    "tilewright.tune": "measuring",
    "tilewright.inspect": "what is inside a library",
}
# Of compilers whose answers are remembered (backends.search.answers_by_itself).
NOT_ASKED = {"tilewright.backends.asking": "compilers are asked who they are", "select": "asking brings it"}


def loaded(op: str, models: str) -> list[str]:
    # The default of the tests is no models: what they are on a user's machine is asked too.  Nothing was measured.
    environment = {**os.environ, "TILEWRIGHT_MODELS": models, "TILEWRIGHT_MEASURE": "0"}
    code = CALL.format(call=CALLS[op])
    for _ in range(2):  # the first one fills the store
        answer = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
        )
        assert answer.returncode == 0, answer.stderr
    names: list[str] = json.loads(answer.stdout)
    return names


def asked() -> tuple[str, list[str]]:
    toolchain = find_toolchain()
    return toolchain.driver[0], [toolchain.identity.version]


@pytest.mark.parametrize("models", ["0", "1"], ids=["estimates", "models"])
@pytest.mark.parametrize("op", CALLS)
def test_a_first_call_loads_what_it_needs(op: str, models: str) -> None:
    names = loaded(op, models)
    assert f"tilewright.runtime.bindings.{op}" in names  # it was a call
    away = AWAY | (NOT_ASKED if search.answers_by_itself(*asked()) else {})
    odd = {
        name: why for name, why in away.items() if any(each == name or each.startswith(f"{name}.") for each in names)
    }
    assert not odd, f"{op} loads {odd}"
    others = [name for name in ("gemm", "conv", "attention", "attention_backward") if name != op]
    of_others = [
        each for each in names for other in others if f".{other}." in f"{each}." and each.startswith("tilewright")
    ]
    assert not of_others


KERNELS = """
import dataclasses
made, standard = [], dataclasses._process_class
def noted(cls, *how, **more):
    made.append(f"{cls.__module__}.{cls.__qualname__}")
    return standard(cls, *how, **more)
dataclasses._process_class = noted
from tilewright import plugins
for group in ("tilewright.kernels.cpu", "tilewright.kernels.cuda"):
    for name in ("gemm", "conv", "attention"):
        plugins.load(group, name, "kernels")
print(*(name for name in made if name.startswith("tilewright.") and "tilewright.dataclass." not in name))
"""


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="the standard library's are as fast")
def test_kernels_have_dataclasses_of_ours() -> None:
    """Two dozen that the standard library made were a tenth of a first call on a GPU."""
    answer = subprocess.run([sys.executable, "-c", KERNELS], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == []
