"""One bundle for all tests of this folder: gemm, convolution and attention on two archs of every x86-64 machine."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import pytest

from tilewright.build import bundled
from tilewright.bundle.build import Made, Wish, build

PROBLEMS: dict[str, list[dict[str, Any]]] = {
    "gemm": [{"m": 64, "n": 128, "k": 256, "layout": "rcr"}, {"m": 1, "n": 128, "k": 256, "layout": "rcr"}],
    "conv": [{"batch": 1, "channels": 16, "filters": 32, "size": "28x28", "window": "3", "padding": "1"}],
    "attention": [
        {
            "batch": 1, "heads_q": 8, "heads_kv": 8, "seqlen_q": 128, "seqlen_k": 128, "head_dim": 64,
            "causal": "top_left",
        },
        {"batch": 1, "heads_q": 8, "heads_kv": 2, "seqlen_q": 1, "seqlen_k": 1000, "head_dim": 64},
    ],
}  # fmt: skip
# What is left of x86-64 where a machine is of another kind.
TARGETS = ("x86_64_v3", "generic") if platform.machine() == "x86_64" else ("generic",)


@pytest.fixture(scope="session")
def problems(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("problems") / "problems.json"
    path.write_text(json.dumps(PROBLEMS), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def wish(problems: Path) -> Wish:
    return Wish(TARGETS, [("", str(problems))], threads=(2,))


@pytest.fixture(scope="session")
def made(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory, wish: Wish) -> Made:
    """The bundle, and what was said of it."""
    from tests.conftest import WHY_NO_COMPILER

    if pytestconfig.stash[WHY_NO_COMPILER]:
        pytest.skip(pytestconfig.stash[WHY_NO_COMPILER])
    return build(tmp_path_factory.mktemp("bundle") / "model.twb", wish, jobs=2)


@pytest.fixture
def bundle(made: Made, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    copy = tmp_path / "model.twb"
    copy.write_bytes(made.path.read_bytes())
    return copy


@pytest.fixture(autouse=True)
def no_bundle_is_left() -> object:
    yield
    for one in list(bundled._named):
        bundled.drop(one)
