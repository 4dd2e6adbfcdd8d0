"""Calls of the op's house run on the floor: which kernels a target has beside it is no matter of these tests."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright import api, ops
from tilewright.dispatch.registry import Registry

CONV = ops.op("conv")


@pytest.fixture
def floor(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A registry of one kernel: what it does not compute falls to the floor, which is built when it is asked for."""
    signature = CONV.problem({"batch": 1, "channels": 1, "filters": 1, "size": "1", "window": "1"}).signature
    registry = Registry()
    registry = Registry(specs=[CONV.fallback_spec(signature, registry.target)])
    registries: dict[str, Any] = {**api._registries, "": registry, registry.target: registry}
    monkeypatch.setattr(api, "_registries", registries)
    return registry
