"""Archs from files of one's own: they stand beside the package's, and every mistake is told by file, arch and field."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tilewright import ops, packaged, settings
from tilewright.arch import all_archs, arch, archs_of, families, fitted
from tilewright.arch.rates import Memory
from tilewright.backends.base import backend, resolve_target
from tilewright.backends.cuda import driver
from tilewright.backends.cuda.conv import rates as conv_rates
from tilewright.errors import FileError, UnknownNameError

Write = Callable[..., Path]


def invented(**changes: Any) -> dict[str, Any]:
    """A GPU of 188 multiprocessors with the instructions of sm_120."""
    return {
        "family": "nvidia",
        "backend": "cuda",
        "description": "188 multiprocessors",
        "includes": ["sm_89"],
        "features": ["mma", "bf16", "cp-async", "fp8-ocp", "ptx"],
        "compile_flags": ["-gencode=arch=compute_120,code=[sm_120,compute_120]"],
        "capability": [12, 0],
        "vector_registers": 255,
        "warp_size": 32,
        "scratch_bytes": 101376,
        "compute_units": 188,
        "max_threads": 1024,
        "simds": 4,
        "warps_per_simd": 12,
        "simd_registers": 512,
        "register_granule": 8,
        "warp_tiles": {"bf16_bf16_fp32": [[8, 16, 16], [16, 8, 16]], "fp16_fp16_fp32": [[8, 16, 16], [16, 8, 16]]},
        "rates": {
            "clock": 2.4e9,
            "launch": 4e-6,
            "memory": 1.8e12,
            "cache": 2.9e13,
            "fma": 1.2e14,
            "mma": {"fp16": 5e14, "bf16": 5e14, "int8": 1e15, "tf32": 2.5e14},
        },
    } | changes


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Archs by name, written into a file that the settings name."""

    def written(name: str = "archs.json", more: dict[str, Any] | None = None, **archs: Any) -> Path:
        path = tmp_path / name
        path.write_text(json.dumps({"schema": 1, "archs": archs, **(more or {})}), encoding="utf-8")
        return path

    return written


def test_an_arch_of_a_file_stands_beside_the_others(write: Write) -> None:
    path = write(gpu188=invented())
    with pytest.raises(UnknownNameError):
        arch("gpu188")
    with settings.override(arch_files=str(path)):
        assert list(all_archs())[-1] == "gpu188"
        assert resolve_target("gpu188", to_run=False).compute_units == 188
    assert "gpu188" not in all_archs()


def test_files_build_on_each_other(write: Write) -> None:
    first = write("first.json", gpu188=invented())
    second = write("second.json", gpu189=invented(includes=["gpu188"], compute_units=189))
    with settings.override(arch_files=os.pathsep.join((str(first), str(second)))):
        assert arch("gpu189").includes == ("gpu188",)


@pytest.mark.parametrize("op", ["gemm", "conv", "attention"])
def test_every_op_has_kernels_within_its_shared_memory(write: Write, op: str) -> None:
    """By the mma.sync families, and nothing else."""
    with settings.override(arch_files=str(write(gpu188=invented()))):
        specs = [spec for spec in ops.op(op).proposals("default", "gpu188") if not ops.op(op).check(spec)]
        cuda = backend("cuda")
        assert max(cuda.promises(spec).dynamic_shared_bytes for spec in specs) <= 101376
        pipelines = {spec.schedule.pipeline for spec in specs}
        assert pipelines & {"multistage", "gather", "mma"}
        text = cuda.render(specs[0]).text
        assert "processors = 188;" in text


@pytest.mark.parametrize("layout", ["rcr", "rrr", "crr", "ccr"])
@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp8_e4m3", "int8", "tf32"])
def test_a_small_shared_memory_has_matrix_kernels_for_any_alignment(write: Write, dtype: str, layout: str) -> None:
    """Tiles of the pool for 48 KB, which larger shared memories do not get."""
    with settings.override(arch_files=str(write(gpu48=invented(includes=[], scratch_bytes=49152)))):
        axes = {"datatypes": (dtype,), "layouts": (layout,)}
        legal = [
            spec for spec in ops.op("gemm").proposals("default", "gpu48", **axes) if not ops.op("gemm").check(spec)
        ]
        multistage = [spec.schedule for spec in legal if spec.schedule.pipeline == "multistage"]
        assert any(min(schedule.vector) == 1 for schedule in multistage)
        assert any(min(schedule.vector) > 1 for schedule in multistage)


@pytest.mark.parametrize(
    ("heads", "pipeline"), [("64", "mma"), ("96", "mma"), ("128", "mma"), ("160", "mma"), ("256", "loops")]
)
def test_a_small_shared_memory_has_gradients_of_attention(write: Write, heads: str, pipeline: str) -> None:
    with settings.override(arch_files=str(write(gpu48=invented(includes=[], scratch_bytes=49152)))):
        op = ops.op("attention_backward")
        proposed = op.proposals("default", "gpu48", families=("grad",), datatypes=("bf16",), heads=(heads,))
        assert {spec.schedule.pipeline for spec in proposed if not op.check(spec)} == {pipeline}


def test_estimates_are_of_its_own_rates(write: Write) -> None:
    with settings.override(arch_files=str(write(gpu188=invented()))):
        own, hopper = conv_rates.constants("gpu188"), conv_rates.constants("sm_90a")
        assert own.units == 188
        assert own.memory == pytest.approx(hopper.memory * 1.8 / 4.8)


def test_a_file_may_bring_constants_fitted_on_its_arch(write: Write) -> None:
    from typing import NamedTuple

    class Only(NamedTuple):
        memory: Memory

    more = {"fits": {"gpu188f": {"mine": {"memory": 7e11}}}}
    with settings.override(arch_files=str(write(more=more, gpu188f=invented()))):
        assert fitted("mine", Only, "gpu188f").memory == 7e11
        assert fitted("mine", Only, "sm_90a").memory == pytest.approx(7e11 * 4.8 / 1.8)


def test_of_archs_of_a_capability_a_device_is_the_one_of_its_size(write: Write) -> None:
    with settings.override(arch_files=str(write(gpu188=invented()))):
        assert driver.arch_of(12, 0, 188) == "gpu188"
        assert driver.arch_of(12, 0, 170) == "sm_120"
        assert driver.arch_of(12, 0, 3) == "sm_120"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"scratch_bytes": "much"}, "gpu0, scratch_bytes: 'much' should be a valid integer"),
        ({"scratch_byte": 3}, "did you mean 'scratch_bytes'"),
        ({"backend": "cudda"}, "gpu0: backend 'cudda' is not one of"),
        ({"includes": ["sm_9"]}, "gpu0: includes unknown arch 'sm_9'"),
        ({"capability": [12]}, "gpu0, capability[1]: it is missing"),
        ({"rates": None}, "gpu0, rates"),
        ({"compute_units": 0}, "needs compute_units, scratch_bytes and rates"),
        ({"compute_units": -3}, "gpu0: compute_units: -3 is negative"),
        ({"warp_size": 31}, "gpu0: warp_size: 31 is no power of two"),
        ({"warp_size": 0}, "gpu0: warp_size: 0 is no power of two"),
        ({"family": "intel"}, "gpu0: family 'intel' is not one of backend 'cuda': nvidia"),
        ({"family": "rdna"}, "gpu0: family 'rdna' is not one of backend 'cuda': nvidia"),
        ({"features": ["mmaa"]}, "gpu0: features: 'mmaa' is unknown, did you mean 'mma'?"),
        ({"features": ["mma", "CP-Async"]}, "'CP-Async' is unknown, did you mean 'cp-async'?"),
        ({"features": ["fp8"]}, "'fp8' is unknown, did you mean 'fp8-ocp'?"),
        ({"features": ["mfma"]}, "'mfma' is unknown, did you mean 'mma'?"),
        ({"includes": ["sm_80"]}, "they may take 166912 bytes of shared memory (scratch_bytes), and this has 101376"),
        ({"includes": ["sm_90a"], "scratch_bytes": 232448}, "kernels of 'sm_90a' do not run here, they have no PTX"),
        ({"includes": ["sm_120"], "capability": [8, 9]}, "its capability [12, 0] is newer than [8, 9]"),
        ({"includes": ["gfx942"]}, "it is of family 'cdna' and backend 'hip'"),
    ],
)
def test_mistakes_are_told_with_the_file(write: Write, changes: dict[str, Any], told: str) -> None:
    entry = invented(**changes)
    if entry["rates"] is None:
        entry["rates"] = {"clock": 1e9}
    path = write(gpu0=entry)
    with settings.override(arch_files=str(path)), pytest.raises(FileError) as caught:
        all_archs()
    assert told in str(caught.value)
    assert str(path) in caught.value.message
    assert "adding-an-arch.md" in caught.value.remedy


@pytest.mark.parametrize(
    ("rate", "told"),
    [
        (0, "gpu_rate: rates: memory: 0 is not a positive number"),
        (True, "rates.memory: True"),
        ("fast", "rates.memory: 'fast'"),
    ],
)
def test_a_rate_that_is_none_is_named_by_its_field(write: Write, rate: Any, told: str) -> None:
    path = str(write(gpu_rate=invented(rates={**invented()["rates"], "memory": rate})))
    with settings.override(arch_files=path), pytest.raises(FileError) as caught:
        all_archs()
    assert told in caught.value.message


def test_a_rate_may_be_written_as_an_integer(write: Write) -> None:
    with settings.override(arch_files=str(write(gpu_int=invented(rates={**invented()["rates"], "memory": 10**12})))):
        rates = arch("gpu_int").rates
    assert rates is not None
    assert (rates.memory, type(rates.memory)) == (1e12, float)


def test_a_feature_like_no_other_may_be_of_a_kernel_family_of_ones_own(write: Write) -> None:
    with settings.override(arch_files=str(write(gpu_own=invented(features=["mma", "avx10", "stochastic"])))):
        assert "stochastic" in arch("gpu_own").features


def test_the_archs_of_the_package_pass_as_a_file_of_ones_own(write: Write) -> None:
    """Under other names: what is refused in a file does not stand in the table either."""
    table = json.loads(packaged.read_text("tilewright.arch", "specs.json"))["archs"]
    renamed = {
        f"own_{name}": entry | {"includes": [f"own_{other}" for other in entry["includes"]]}
        for name, entry in table.items()
    }
    with settings.override(arch_files=str(write(**renamed))):
        assert all_archs().keys() >= renamed.keys()


def test_names_are_taken_once(write: Write) -> None:
    with settings.override(arch_files=str(write(sm_90a=invented()))), pytest.raises(FileError, match="is taken"):
        all_archs()
    with settings.override(arch_files=str(write("once.json", gpu_twice=invented()))):
        all_archs()
    other = str(write("again.json", gpu_twice=invented(compute_units=20)))
    with settings.override(arch_files=other), pytest.raises(FileError, match="another arch of this name"):
        all_archs()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[]", "version"),
        ("{", "no JSON"),
        ('{"schema": 2}', "version 2 is not 1"),
        ('{"schema": 1, "archs": [3]}', "not an object"),
        ('{"schema": 1, "archs": {"x": 3}}', "x"),
        ('{"schema": 1, "fits": {"nowhere": {}}}', "'nowhere' is no arch of this file"),
    ],
)
def test_files_that_are_no_tables(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "odd.json"
    path.write_text(text, encoding="utf-8")
    with settings.override(arch_files=str(path)), pytest.raises(FileError) as caught:
        all_archs()
    assert told in caught.value.message


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    missing = settings.override(arch_files=str(tmp_path / "none.json"))
    with missing, pytest.raises(FileError, match=r"none\.json"):
        all_archs()


@pytest.mark.parametrize("name", [name for name, entry in all_archs().items() if entry.family == "nvidia"])
def test_an_nvidia_arch_runs_the_kernels_of_those_it_includes(name: str) -> None:
    """Their PTX is compiled for it; it has their instructions, and their shared memory."""
    mine = arch(name)
    for other in map(arch, mine.includes):
        assert "ptx" in other.features
        assert mine.features >= other.features - {"ptx"}
        assert mine.scratch_bytes >= other.scratch_bytes
        assert mine.capability is not None
        assert other.capability is not None
        assert mine.capability > other.capability


def test_a_family_of_ones_own_has_a_backend(write: Write) -> None:
    path = write(new_gpu=invented())
    with settings.override(arch_files=str(path)):
        assert "new_gpu" in [one.name for one in archs_of("nvidia")]
        assert families()["nvidia"] == "cuda"
