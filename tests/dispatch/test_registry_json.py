"""A registry as JSON: what C++ chooses by, and a registry again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tests.built import why_no_compiler
from tilewright.dispatch import registry_json
from tilewright.errors import FileError, LoadError
from tilewright.native.judge import native_kernels
from tilewright.native.library import library


def small() -> tw.Registry:
    return tw.Registry("generic").add_pool("gemm", "tiny", datatypes=("fp32",), layouts=("rcr",))


def test_every_kernel_has_the_numbers_that_the_library_asks_for() -> None:
    registry = small()
    data = json.loads(registry.to_json())
    assert (data["format"], data["version"], data["target"]) == ("tilewright-registry", 1, "generic")
    registered = [entry for entry in data["kernels"] if not entry["fallback"]]
    assert [entry["digest"] for entry in registered] == [spec.digest for spec in registry.specs()]
    for entry, spec in zip(registered, registry.specs(), strict=True):
        assert entry["spec"] == spec.to_dict()
        shared = data["selection"][entry["selection"]["set"]]
        kernels = native_kernels((spec,))
        native = library(kernels) if kernels is not None else None
        if native is None:
            pytest.skip("the selection library cannot be had here")
        assert tuple(shared["problem"]) == native.names.problem
        assert set(shared["arch"][entry["selection"]["arch"]]) == set(native.names.arch)
        assert set(shared["rates"][entry["selection"]["rates"]]) == set(native.names.rates)
        assert set(entry["selection"]["schedule"]) == set(native.names.families[entry["selection"]["family"]][1])


def test_signatures_without_a_fallback_kernel_get_one() -> None:
    data = json.loads(small().to_json())
    extra = [entry for entry in data["kernels"] if entry["fallback"]]
    signatures = {json.dumps(entry["spec"]["signature"], sort_keys=True) for entry in data["kernels"]}
    assert 0 < len(extra) <= len(signatures)
    assert registry_json.fallbacks((*small().specs(), *registry_json.fallbacks(small().specs(), "generic")),
                                   "generic") == ()  # fmt: skip


def test_back_from_json() -> None:
    registry = small()
    again = tw.Registry.from_json(registry.to_json())
    assert again.target == registry.target
    assert again.specs() == registry.specs()
    problem = tw.GemmProblem(m=33, n=20, k=17, layout="rcr")
    assert again.select(problem).spec == registry.select(problem).spec


@pytest.mark.parametrize(
    ("change", "kind", "rule"),
    [
        ({"format": "other"}, FileError, "registry-json"),
        ({"version": 2}, FileError, "registry-json-version"),
        ({"kernels": None}, FileError, "registry-json"),
        ({"kernels": [{"op": "gemm"}]}, FileError, "registry-json"),
    ],
)
def test_other_json_is_refused_by_rule(change: dict[str, Any], kind: type[Exception], rule: str) -> None:
    data = json.loads(small().to_json()) | change
    with pytest.raises(kind) as error:
        tw.Registry.from_json(json.dumps(data))
    assert error.value.rule == rule  # type: ignore[attr-defined]


def test_a_changed_spec_is_refused() -> None:
    data = json.loads(small().to_json())
    data["kernels"][0]["digest"] = "0" * 64
    with pytest.raises(LoadError) as error:
        tw.Registry.from_json(json.dumps(data))
    assert error.value.rule == "registry-digest"


def test_no_json_at_all() -> None:
    with pytest.raises(FileError) as error:
        tw.Registry.from_json("{")
    assert error.value.rule == "registry-json"


@pytest.mark.skipif(bool(why_no_compiler()), reason="there is no C++ compiler here")
def test_an_exported_folder_is_complete(tmp_path: Path) -> None:
    registry = small()
    file = registry.export(tmp_path / "kernels")
    data = json.loads(file.read_text())
    named = [entry["library"] for entry in data["kernels"]] + [one["library"] for one in data["selection"].values()]
    assert all((file.parent / name).is_file() for name in named)
    again = tw.Registry.from_json(file.read_text(), file.parent)
    assert again.specs() == registry.specs()
