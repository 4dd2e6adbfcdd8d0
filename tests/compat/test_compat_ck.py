"""`tilewright.compat.ck`: their calls over our specs, pools and registry."""

from __future__ import annotations

import json
import random
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.codegen import collect
from tilewright.compat.ck import (
    CodegenRunner,
    Dispatcher,
    KernelConfig,
    auto_correct_kernel_config,
    setup_gemm_dispatcher,
    setup_multiple_gemm_dispatchers,
    validate_kernel_config,
)
from tilewright.errors import IllegalSpecError, RequestError
from tilewright.ops import op

TOO_LARGE = KernelConfig(tile_m=256, tile_n=256, tile_k=64)  # twice the LDS there is


def test_their_names_reach_our_fields() -> None:
    config = KernelConfig(
        tile_m=256, tile_n=128, tile_k=64, wave_m=4, wave_n=1, warp_m=16, warp_n=16, warp_k=32, pipeline="mem",
        scheduler="interwave", epilogue="default", pad_m=False, persistent=True,
    )  # fmt: skip
    schedule = config.spec.schedule
    assert (schedule.tile, schedule.warp_grid, schedule.warp_tile) == ((256, 128, 64), (4, 1, 1), (16, 16, 32))
    assert (schedule.pipeline, schedule.scheduler, schedule.store) == ("mem", "interwave", "direct")
    assert (schedule.pad, schedule.persistent) == ((False, True, True), True)
    assert config.tile_str == "256x128x64"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ("fp16", "fp16", "fp32", "fp16", "rcr", "standard")),
        ({"dtype_a": "fp8"}, ("fp8_e4m3fnuz", "fp8_e4m3fnuz", "fp32", "fp16", "rcr", "standard")),
        ({"dtype_a": "bf8", "gfx_arch": "gfx950"}, ("fp8_e5m2", "fp8_e5m2", "fp32", "fp16", "rcr", "standard")),
        ({"dtype_a": "int8", "layout_b": "row"}, ("int8", "int8", "int32", "int32", "rrr", "standard")),
        ({"dtype_a": "bf16", "dtype_c": "fp32"}, ("bf16", "bf16", "fp32", "fp32", "rcr", "standard")),
        ({"variant": "preshuffle"}, ("fp16", "fp16", "fp32", "fp16", "rcr", "preshuffle")),
    ],
)
def test_types_and_layouts_follow_as_theirs_do(given: dict[str, Any], expected: tuple[str, ...]) -> None:
    s = KernelConfig(**given).spec.signature
    assert (s.dtype_a, s.dtype_b, s.dtype_acc, s.dtype_c, s.layout, s.variant) == expected


def test_fused_work() -> None:
    s = KernelConfig(variant="multi_d", elementwise_op="MultiDAdd", num_d_tensors=2).spec.signature
    assert (s.variant, s.epilogue, s.num_d) == ("multi_d", "MultiDAdd", 2)


def test_a_config_is_the_json_of_the_command_line() -> None:
    config = KernelConfig(tile_m=256, pipeline="compv3", pad_k=False)
    assert collect("gemm", "gfx942", config=config.to_json()).specs == (config.spec,)


def test_validation_names_rules_and_the_nearest() -> None:
    good = validate_kernel_config(KernelConfig())
    assert good.is_valid
    assert (good.errors, good.suggested_fixes, good.nearest) == ((), {}, ())
    bad = validate_kernel_config(KernelConfig(wave_m=4, wave_n=4, scheduler="interwave"))
    assert not bad.is_valid
    assert any("amd-warp-grid" in one for one in bad.errors)
    assert any("amd-scheduler" in one for one in bad.errors)
    for one in bad.nearest:
        assert validate_kernel_config(one).is_valid
    assert replace(bad.config, **bad.suggested_fixes) == bad.nearest[0]


@pytest.mark.parametrize(
    "given",
    [{"variant": "preshuffle", "scheduler": "intrawave"}, {"variant": "multi_d", "elementwise_op": "Relu"}],
)
def test_what_means_the_same_is_no_fix(given: dict[str, Any]) -> None:
    """Packed and fused kernels have one store and one scheduler, whatever theirs are called."""
    asked = KernelConfig(tile_m=100, epilogue="default", **given)
    fixes = validate_kernel_config(asked).suggested_fixes
    assert fixes
    assert not {"epilogue", "scheduler", "pipeline"} & set(fixes), fixes


def test_drawn_configs_are_corrected_into_legal_ones_in_their_words() -> None:
    """Seed 42, twelve of them, drawn as their stress test does: tile, waves, warp tile and traits."""
    draw = random.Random(42)
    choices: dict[str, tuple[Any, ...]] = {
        **{f"tile_{axis}": (16, 32, 48, 64, 128, 192, 256, 512) for axis in "mnk"},
        **{f"wave_{axis}": (1, 2, 4, 8) for axis in "mn"},
        **{f"warp_{axis}": (4, 16, 32, 64) for axis in "mnk"},
        "pipeline": ("mem", "compv3", "compv4", "compv5"), "scheduler": ("intrawave", "interwave"),
        "epilogue": ("cshuffle", "default"), "persistent": (False, True), "gfx_arch": ("gfx90a", "gfx942", "gfx950"),
        "dtype_a": ("fp16", "bf16", "fp8"),
    }  # fmt: skip
    modified = 0
    for _ in range(12):
        config = KernelConfig(**{name: draw.choice(values) for name, values in choices.items()})
        before = replace(config)
        fixed, was_modified, corrections = auto_correct_kernel_config(config)
        modified += was_modified
        assert config == before, "the caller's own is left alone"
        assert not op("gemm").check(fixed.spec)
        assert fixed.spec.signature == config.spec.signature
        known = {one.name for one in fields(KernelConfig)}
        assert all(text.split(" ", 1)[0] in known for text in corrections)
        assert bool(corrections) == was_modified == (fixed != config)
    assert modified > 8


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"gfx_arch": "gfx1100"}, "amd-wmma"),
        ({"gfx_arch": "sm_90a"}, "ck-arch"),
        ({"gfx_arch": "gfx943"}, "arch-name"),
        ({"layout_a": "diagonal"}, "layout-name"),
        ({"pipeline": "comp_async"}, "pipeline-name"),
        ({"dtype_a": "pk_fp4"}, "dtype-name"),
        ({"dtype_acc": "fp16"}, "accumulator"),
        ({"variant": "stream_k"}, "variant-name"),
        ({"tile_m": "128"}, "config-value"),
    ],
)
def test_what_cannot_be_corrected_is_our_error(given: dict[str, Any], rule: str) -> None:
    with pytest.raises(RequestError) as caught:
        auto_correct_kernel_config(KernelConfig(**given))
    assert caught.value.rule == rule
    assert caught.value.remedy


def test_sources_of_one_config_and_of_variants(tmp_path: Path) -> None:
    runner = CodegenRunner(tmp_path / "kernels")
    config = KernelConfig(tile_m=256, pipeline="compv3")
    first, again = runner.generate_from_config(config), runner.generate_from_config(config)
    assert first.success
    assert first.instance_names == (config.name,)
    assert [path.name for path in first.written] == [f"{config.name}.hpp"]
    assert again.written == ()
    every = runner.generate_all()
    assert all(one.success and one.kernel_count for one in every)
    listed = json.loads((tmp_path / "kernels" / "manifest.json").read_text())["kernels"]
    names = {name for one in (first, *every) for name in one.instance_names}
    assert {one["name"] for one in listed} == names, "calls add to the folder"
    assert runner.generate("preshuffle", tmp_path / "other").output_dir == tmp_path / "other"
    assert runner.generate_preselected("bf16_rcr_essential", tmp_path / "set").kernel_count == 2


def test_a_variant_that_a_layout_does_not_have_is_told(tmp_path: Path) -> None:
    standard, packed, fused = CodegenRunner(tmp_path, layout="rrr").generate_all()
    assert standard.success
    assert fused.success
    assert not packed.success
    assert packed.error is not None
    assert "preshuffled B" in packed.error.message
    ours, ours_packed, _ = CodegenRunner(tmp_path / "rdna", gpu_target="gfx1100").generate_all()
    assert ours.kernel_count > 1, "kernels of our own serve what CK Tile does not"
    assert ours_packed.kernel_count > 1


def test_an_illegal_config_writes_nothing_and_names_its_neighbours(tmp_path: Path) -> None:
    with pytest.raises(IllegalSpecError, match="amd-lds") as caught:
        CodegenRunner(tmp_path / "out").generate_from_config(TOO_LARGE)
    assert "the nearest legal kernels: tile_" in caught.value.remedy
    assert not (tmp_path / "out").exists()


def test_a_dispatcher_knows_what_it_serves() -> None:
    config = KernelConfig(tile_k=64, scheduler="interwave", pad_m=False, pad_n=False, pad_k=False)
    setup = setup_gemm_dispatcher(config, auto_rebuild=False)
    assert setup.success
    assert setup.corrections == ("scheduler interwave -> intrawave",)
    assert setup.library is None
    assert setup.registry.specs() == (setup.kernel,) == (setup.config.spec,)
    assert setup.dispatcher.select_kernel(512, 512, 512) == setup.kernel.name
    assert setup.dispatcher.is_supported(512, 512, 512)
    assert not setup.dispatcher.is_supported(512, 513, 512)
    several = setup_multiple_gemm_dispatchers([KernelConfig(), KernelConfig(gfx_arch="gfx90a")], auto_rebuild=False)
    assert [one.registry.target for one in several] == ["gfx942", "gfx90a"]


@pytest.mark.usefixtures("needs_compiler")
def test_a_dispatcher_runs_with_the_kernels_of_its_registry() -> None:
    """On the host, whose registry stands in for a GPU's."""
    registry = tw.Registry().add_pool(
        "gemm", "tiny", datatypes="fp32", layouts="rrr", variants="multi_d", epilogues="Relu"
    )
    dispatcher = Dispatcher(registry, KernelConfig(variant="multi_d", elementwise_op="Relu", num_d_tensors=1))
    a, b = np.full((3, 4), -1, np.float32), np.ones((4, 5), np.float32)
    ds = (np.full((3, 5), 6, np.float32),)
    assert (dispatcher.run(a, b, ds=ds) == 2).all()
    assert (dispatcher.run(a, b, 3, 5, 4, ds=ds) == 2).all()
    with pytest.raises(RequestError, match="ck-sizes"):
        dispatcher.run(a, b, 3, 4, 5, ds=ds)


def test_old_calls_as_people_typed_them(capsys: pytest.CaptureFixture[str]) -> None:
    KernelConfig(tile_m=256).print_config(indent="  ")
    assert "Tile: 256 x 128 x 32" in capsys.readouterr().out
    found = validate_kernel_config(TOO_LARGE)
    found.print_result()
    assert not found.warnings
    told = capsys.readouterr().out
    assert all(part in told for part in ("not valid", "amd-lds", "suggested: "))
    auto_correct_kernel_config(TOO_LARGE, verbose=True)
    assert "corrected: " in capsys.readouterr().out
    setup = setup_gemm_dispatcher(KernelConfig(), registry_name="mine", verbose=True, auto_rebuild=False)
    assert setup.dispatcher.is_supported(512, 512, 512)


@pytest.mark.parametrize("given", [None, {"tile_m": 256}, "compv4"])
def test_what_is_no_config_is_one_clear_error(given: Any) -> None:
    for ask in (validate_kernel_config, auto_correct_kernel_config, setup_gemm_dispatcher):
        with pytest.raises(RequestError, match="ck-config"):
            ask(given)


@pytest.mark.usefixtures("needs_compiler")
def test_without_a_device_running_is_one_clear_error() -> None:
    from tilewright.backends.base import backend
    from tilewright.errors import DeviceError

    if backend("hip").available_archs():
        pytest.skip("there is an AMD GPU here")
    setup = setup_gemm_dispatcher(KernelConfig(), auto_rebuild=False)
    with pytest.raises((DeviceError, RequestError)):
        setup.dispatcher.run(np.ones((4, 4), np.float16), np.ones((4, 4), np.float16))
