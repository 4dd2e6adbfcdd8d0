"""Names that `specs` prints are found again, whatever axes they were printed for."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tilewright.arch import all_archs
from tilewright.build import Store
from tilewright.build.named import pool_specs
from tilewright.build.why import find_spec
from tilewright.errors import TilewrightError, UnknownNameError
from tilewright.ops import all_ops, op
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm import pools
from tilewright.ops.pooling import SMALL, SWEPT

GEMM = op("gemm")
DTYPES = ("fp32", "bf16", "fp16", "int8", "fp8_e4m3", "fp8_e4m3fnuz", "tf32", "fp8_e4m3:fp8_e5m2", "bf16:fp32")
ARCHS = ("generic", "x86_64_v4_vnni", "gfx90a", "gfx950", "sm_80", "sm_90a")


def printed(arch: str, pool: str, rng: random.Random) -> list[KernelSpec]:
    """Some legal kernels of a pool for axes drawn at random."""
    variant = rng.choice(["standard", "preshuffle", "multi_d"])
    axes = {"datatypes": [rng.choice(DTYPES)], "layouts": [rng.choice(["rcr", "rrr"])], "variants": [variant]}
    if variant == "multi_d":
        axes["epilogues"] = [rng.choice(["Gelu", "FastGelu", "MultiDAdd"])]
    if rng.random() < 0.5:
        axes["outputs"] = [rng.choice(["fp32", "bf16", "int32"])]
    found = list(GEMM.proposals(pool, arch, **axes))
    some = [*rng.sample(found, min(len(found), 20)), *found[-1:]]
    return [one for one in some if not GEMM.check(one)][:2]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("pool", GEMM.pool_names)
def test_a_name_of_any_pool_and_axes_is_found(arch: str, pool: str) -> None:
    rng = random.Random(f"{arch} {pool}")
    specs: list[KernelSpec] = []
    for _ in range(40):
        if len(specs) < (2 if pool in SWEPT else 4):
            specs += printed(arch, pool, rng)
    assert specs
    for spec in specs:
        assert list(pool_specs(spec.name)) == [spec]


@pytest.mark.parametrize("name", GEMM.preselected_sets)
def test_a_name_of_a_set_is_found(name: str) -> None:
    arch = {"cpu": "x86_64_v3", "cdna": "gfx942"}[pools.POOLS.sets[name].family]
    for spec in list(GEMM.preselected(name, arch))[:3]:
        assert list(pool_specs(spec.name)) == [spec]


def test_swept_pools_are_walked_only_for_a_whole_name(monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[str] = []
    real = pools.POOLS.proposals

    def noted(pool: str, arch: str, signatures: Any) -> Iterator[KernelSpec]:
        walked.append(pool)
        return real(pool, arch, signatures)

    monkeypatch.setattr(pools.POOLS, "proposals", noted)
    spec = next(one for one in real("default", "sm_90a", [next(GEMM.signatures_of("bf16_rcr"))]))
    for word in (spec.name, spec.name[:-12], spec.digest, "abcdef99", "gemm_bf16_rcr_nothing", "gemm_nonsense"):
        list(pool_specs(word))
    assert walked
    assert not set(walked) & set(SWEPT)


def test_a_digest_is_looked_for_in_small_pools_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pools that an op has of its own hold hundreds of thousands."""
    walked: set[str] = set()
    for each in all_ops().values():
        real = each.proposals

        def noted(pool: str, arch: str, real: Any = real, **axes: Any) -> Iterator[KernelSpec]:
            walked.add(pool)
            found: Iterator[KernelSpec] = real(pool, arch, **axes)
            return found

        monkeypatch.setattr(type(each), "proposals", staticmethod(noted))
    assert list(pool_specs("abcdef99")) == []
    assert walked == set(SMALL)


def test_swept_pools_hold_no_other_kinds_of_kernels_than_the_small_ones() -> None:
    """What keeps the walk for a name that does not exist short."""
    for arch in ARCHS:
        for text in ("bf16_rcr_preshuffle", "bf16_rcr_Relu_d1", "bf16_rcr"):
            axes = GEMM.axes_of(max(GEMM.signatures_of(text), key=lambda one: len(one.label())))
            kinds: dict[bool, set[str]] = {False: set(), True: set()}
            for pool in GEMM.pool_names:
                if pool != "profiler":
                    found = GEMM.proposals(pool, arch, **axes)
                    kinds[pool in SWEPT] |= {one.schedule.label().partition("_")[0] for one in found}
            assert kinds[True] <= kinds[False]


def test_find_spec_takes_a_name_a_beginning_and_a_digest(store: Store) -> None:
    spec = next(one for one in GEMM.proposals("default", "sm_90a", datatypes=["bf16"], layouts=["rcr"]))
    assert find_spec(store, spec.name) == spec
    assert find_spec(store, spec.name[:-4]) == spec
    plain = next(iter(GEMM.proposals("tiny", "generic")))
    assert find_spec(store, plain.digest[:12], "generic") == plain
    with pytest.raises(UnknownNameError) as caught:
        find_spec(store, spec.name[:-1] + ("0" if spec.name[-1] != "0" else "1"))
    assert caught.value.rule == "kernel-name"
    assert all_archs()[spec.arch].backend == "cuda"


def test_several_kernels_of_one_beginning_are_named(store: Store) -> None:
    with pytest.raises(TilewrightError, match=r"means \d+ kernels") as caught:
        find_spec(store, "gemm_bf16_rcr_tma_ws_128x256x64_cooperative")
    assert caught.value.rule == "kernel-ambiguous"
