"""Calls of the op's house run on the floor: which kernels a target has beside it is no matter of these tests."""

from __future__ import annotations

from typing import Any

import pytest

from tests.attention.drawing import ATTENTION
from tilewright import api
from tilewright.dispatch.registry import Registry
from tilewright.ops.attention import AttentionProblem


@pytest.fixture
def floor(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A registry of one kernel: what it does not compute falls to the floor, which is built when it is asked for."""
    signature = AttentionProblem(1, 1, 1, 1, 1).signature
    registry = Registry()
    registry = Registry(specs=[ATTENTION.fallback_spec(signature, registry.target)])
    registries: dict[str, Any] = {**api._registries, "": registry, registry.target: registry}
    monkeypatch.setattr(api, "_registries", registries)
    return registry
