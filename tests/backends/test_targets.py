"""Which target a word means, and whether kernels of it run here: asked in one place each."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright import settings
from tilewright.arch import all_archs, best_host_arch
from tilewright.backends import base
from tilewright.backends.base import backend, demand_runnable, not_runnable, resolve_target
from tilewright.errors import DeviceError, UnknownNameError


class Without:
    """A backend none of whose archs runs here."""

    usual_arch = "sm_90a"

    def available_archs(self) -> list[str]:
        return []

    def why_unavailable(self) -> str:
        return "there is no driver"


@pytest.fixture
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(name: str) -> Any:
        return Without() if name == "cuda" else backend(name)

    monkeypatch.setattr(base, "backend", without)


def test_a_target_is_an_arch_or_a_backend() -> None:
    assert resolve_target("gfx942").name == "gfx942"
    assert resolve_target("cpu") == best_host_arch() == resolve_target(None) == resolve_target("")
    with settings.override(target="generic"):
        assert resolve_target().name == "generic"
        assert resolve_target("cpu") == best_host_arch()


def test_a_backend_without_a_device_is_refused_only_where_something_must_run(no_device: None) -> None:
    with pytest.raises(DeviceError, match="no driver") as caught:
        resolve_target("cuda")
    assert caught.value.rule == "target-unavailable"
    assert resolve_target("cuda", to_run=False).name == "sm_90a"


def test_an_unknown_target_names_its_neighbours() -> None:
    with pytest.raises(UnknownNameError) as caught:
        resolve_target("cudaa")
    assert caught.value.rule == "arch-name"
    assert "'cuda'" in caught.value.remedy
    assert "gfx942" in caught.value.remedy


def test_usual_archs_are_known_and_of_their_backend() -> None:
    for name, one in base.all_backends().items():
        assert all_archs()[one.usual_arch].backend == name


def test_what_does_not_run_here_says_why(no_device: None) -> None:
    assert not_runnable("generic") is None
    demand_runnable("generic")
    with pytest.raises(DeviceError, match="no driver") as caught:
        demand_runnable("sm_90a")
    assert (caught.value.rule, caught.value.value) == ("arch-not-runnable", "sm_90a")
