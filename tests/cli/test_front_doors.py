"""The words people bring along from CK Tile's dispatcher: targets, dtypes, layouts, configurations, sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tilewright import settings
from tilewright.arch import all_archs
from tilewright.cli.main import build_app
from tilewright.codegen import collect
from tilewright.ops import op

APP = build_app()
AMD = ("--gpu-target", "gfx942", "--datatype", "fp16", "--layout", "rcr")
CONFIG: dict[str, Any] = {
    "_comment": "as theirs are written",
    "tile_config": {
        "tile_m": [128, 256], "tile_n": [128], "tile_k": {"min": 32, "max": 64, "step": 32},
        "warp_m": [2], "warp_n": {"values": [2]}, "warp_k": 1,
        "warp_tile_m": [32], "warp_tile_n": [32], "warp_tile_k": [16],
    },
    "trait_config": {
        "pipeline": ["compv3", "compv4"], "epilogue": ["cshuffle", "default"], "scheduler": ["intrawave"],
        "pad_m": [False], "pad_n": [False], "pad_k": [False], "persistent": [False],
    },
    "multi_d_config": {"elementwise_ops": ["MultiDAdd", "Relu"], "num_d_tensors": [1, 2]},
}  # fmt: skip
UNKNOWN_PAIR = '{"pipeline": "compv4", "scheduler": "interwave"}'  # only mem has interwave
CHANGE = "scheduler interwave -> intrawave"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(APP, list(arguments))


def specs(*arguments: str) -> list[dict[str, Any]]:
    done = run("specs", "gemm", "--json", *arguments)
    assert done.exit_code == 0, done.stderr
    return [one["spec"] for one in json.loads(done.stdout)["specs"]]


def signatures(found: list[dict[str, Any]], field: str) -> set[Any]:
    return {one["signature"][field] for one in found}


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIG), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("option", ["--target", "--gpu-target", "--arch"])
def test_a_target_by_each_of_its_names(option: str) -> None:
    assert {one["arch"] for one in specs(option, "gfx950", "--pool", "tiny", "--datatype", "fp16")} == {"gfx950"}
    done = run("explain", "gemm", "--m", "8", "--n", "8", "--k", "8", option, "sm_90a", "--json")
    assert json.loads(done.stdout)["target"] == "sm_90a"


@pytest.mark.parametrize("several", [("a", "b"), ("a,b",), ("a", "--variants", "b")])
def test_several_variants_by_blanks_and_by_commas(several: tuple[str, ...]) -> None:
    words = [{"a": "standard", "b": "multi_d", "a,b": "standard,multi_d"}.get(one, one) for one in several]
    found = specs("--variants", *words, "--target", "gfx942", "--pool", "tiny", "--limit", "9")
    assert signatures(found, "variant") == {"standard", "multi_d"}


FNUZ = {"gfx90a", "gfx942"}


@pytest.mark.parametrize("arch", [name for name, one in all_archs().items() if one.family in ("cpu", "cdna", "nvidia")])
def test_fp8_and_bf8_are_what_the_arch_multiplies(arch: str) -> None:
    ending = "fnuz" if arch in FNUZ else ""
    words = ("--target", arch, "--layout", "rcr")
    for short, whole in (("fp8", f"fp8_e4m3{ending}"), ("bf8", f"fp8_e5m2{ending}")):
        listed = json.loads(run("specs", "gemm", *words, "--pool", "tiny", "--datatype", short, "--json").stdout)
        assert signatures([one["spec"] for one in listed["specs"]], "dtype_a") <= {whole}
        done = run("explain", "gemm", "--m", "64", "--n", "64", "--k", "64", *words, "--datatype", short)
        assert whole in done.stdout + done.stderr
        assert f"{whole}fnuz" not in done.stdout + done.stderr


def test_short_dtypes_of_two_operands_in_files_and_of_results(tmp_path: Path) -> None:
    found = specs("--target", "gfx942", "--pool", "tiny", "--datatype", "fp8:bf8", "--output", "fp16")
    assert (found[0]["signature"]["dtype_a"], found[0]["signature"]["dtype_b"]) == ("fp8_e4m3fnuz", "fp8_e5m2fnuz")
    assert len(collect("gemm", "gfx950", pool="tiny", axes={"datatypes": "fp8"}).specs) == 1
    assert specs("--target", "gfx942", "--preselected", "fp8_rcr_essential", "--datatype", "fp8")


def test_a_layout_of_four_letters_has_d_lie_as_c() -> None:
    for words in (("--pool", "tiny"), ("--preselected", "fp16_rcr_multi_d")):
        found = specs("--target", "gfx942", "--datatype", "fp16", "--layout", "rcrr", "--variants", "multi_d", *words)
        assert signatures(found, "layout") == {"rcr"}
    done = run("explain", "gemm", "--m", "8", "--n", "8", "--k", "8", "--layout", "rrrr")
    assert done.exit_code == 0, done.stderr
    for layout, rule in (
        ("rcrc", "layout-d"),
        ("rcrx", "layout-name"),
        ("rccc", "layout-name"),
        ("rcrrr", "layout-name"),
    ):
        done = run("specs", "gemm", "--target", "gfx942", "--layout", layout)
        assert done.exit_code == 1
        assert f"[{rule}]" in done.stderr


def test_where_nobody_says_a_target_has_its_usual_datatype() -> None:
    assert signatures(specs("--target", "gfx942", "--pool", "tiny"), "dtype_a") == {"fp16"}
    assert signatures(specs("--target", "x86_64_v3", "--pool", "tiny"), "dtype_a") == {"fp32"}


# -- configurations ------------------------------------------------------------------------------------


def test_their_configuration_means_every_combination(config: str) -> None:
    found = specs(*AMD, "--config", config)
    shown = {
        (one["schedule"]["pipeline"], one["schedule"]["store"], *one["schedule"]["tile"], *one["schedule"]["warp_grid"])
        for one in found
    }
    assert ("compv3", "direct", 256, 128, 32, 2, 2, 1) in shown
    assert ("compv4", "cshuffle", 128, 128, 64, 2, 2, 1) in shown
    assert all(one["schedule"]["pad"] == [False, False, False] for one in found)
    assert specs(*AMD, "--tile-config-json", json.dumps(CONFIG)) == found
    flat = {**CONFIG["tile_config"], **CONFIG["trait_config"]}
    assert specs(*AMD, "--tile-config-json", json.dumps(flat)) == found


def test_each_variant_takes_what_it_has_of_a_configuration(config: str) -> None:
    fused = specs(*AMD, "--config", config, "--variants", "multi_d")
    assert signatures(fused, "epilogue") == {"MultiDAdd", "Relu"}
    assert signatures(fused, "num_d") == {1, 2}
    assert {one["schedule"]["store"] for one in fused} == {"cshuffle"}
    packed = specs(*AMD, "--config", config, "--variants", "preshuffle")
    assert {(one["schedule"]["pipeline"], one["schedule"]["scheduler"]) for one in packed} == {
        ("preshuffle", "default")
    }
    both = specs(*AMD, "--config", config, "--variants", "multi_d", "preshuffle")
    assert len(both) == len(fused) + len(packed)
    assert specs(*AMD, "--config", config, "--variants", "multi_d", "--epilogue", "Gelu", "--num-d", "0")


def test_our_words_are_a_configuration_on_every_target() -> None:
    ours = '{"pipeline": "tma_ws", "tile": [[128, 128, 64], [128, 256, 64]], "stages": [3, 4]}'
    found = specs("--target", "sm_90a", "--datatype", "fp16", "--layout", "rcr", "--tile-config-json", ours)
    assert len(found) == 4
    assert len(specs("--target", "x86_64_v3", "--tile-config-json", '{"pipeline": "loops"}')) == 1
    typed = specs("--target", "x86_64_v3", "--tile-config-json", '{"pipeline": "loops", "datatype": ["bf16", "fp8"]}')
    assert signatures(typed, "dtype_a") == {"bf16", "fp8_e4m3"}
    whole = '{"pipeline": "compv3", "tile": [[128, 128, 32], [256, 128, 32]], "pad": [[true, true, false]]}'
    assert {tuple(one["schedule"]["pad"]) for one in specs(*AMD, "--tile-config-json", whole)} == {(True, True, False)}
    assert len(specs(*AMD, "--variants", "preshuffle", "--tile-config-json", whole)) == 2


@pytest.mark.parametrize(
    ("text", "rule", "hint"),
    [
        ("{", "config-file", "is no JSON"),
        ("[]", "config-file", "holds no object"),
        ("", "option-empty", "leave the option out"),
        ('{"tile_config": {"tile_m": 128}, "tile_m": 64}', "config-name", "leave one of them out"),
        ('{"warp_m": 2, "wave_m": 4}', "config-name", "leave one of them out"),
        ('{"trait_config": 5}', "config-value", "pipeline"),
        (
            '{"tile_n": 1048576000}',
            "no-specs",
            "tile_n 1048576000 -> 256",
        ),  # divisible, and once counted down one by one
        ('{"tile_q": 3}', "config-name", "tile_"),
        ('{"tile_m": []}', "config-value", "values"),
        ('{"tile_m": {"min": 3}}', "config-value", "values"),
        ('{"tile_m": {"min": 1, "max": 9, "step": 0}}', "config-value", "values"),
        ('{"tile_m": "128"}', "config-value", 'tile_m of the configuration is "128", and must be a whole number'),
        ('{"tile_m": {"min": 1, "max": 20000}, "warp_m": [[2]]}', "config-value", "warp_m of the configuration is [2]"),
        ('{"tile_config": 3}', "config-value", "tile_m"),
        ('{"multi_d_config": 3}', "config-value", "elementwise_ops"),
        ('{"multi_d_config": {"ops": 3}}', "config-name", "elementwise_ops"),
        ('{"vector_size_a": 4}', "config-value", "leave it out"),
        ('{"tile_m": {"min": 64, "max": 64, "step": 64, "exclude": [64]}}', "config-value", "values"),
        ('{"pipeline": "comp_async"}', "pipeline-name", "compv3"),
        ('{"tile_m": {"min": 1, "max": 3000, "step": 1}, "tile_n": {"min": 1, "max": 3000}}', "config-size", "fewer"),
    ],
)
def test_a_wrong_configuration_is_one_clear_error(text: str, rule: str, hint: str) -> None:
    done = run("specs", "gemm", *AMD, "--tile-config-json", text)
    assert done.exit_code == 1, done.output
    assert f"error: [{rule}]" in done.stderr
    assert hint in done.stderr
    assert done.stdout == ""


def test_an_operation_that_is_no_word_is_an_unknown_one() -> None:
    section = '{"multi_d_config": {"elementwise_ops": [3], "num_d_tensors": [1]}}'
    done = run("specs", "gemm", *AMD, "--variants", "multi_d", "--tile-config-json", section)
    assert done.exit_code == 1, done.output
    assert "error: [epilogue-name] 3 is not" in done.stderr


@pytest.mark.parametrize("option", ["--target", "--arch", "--pool", "--preselected"])
def test_an_empty_option_is_not_one_that_was_left_out(option: str) -> None:
    """A script's variable that nobody set must not turn kernels of a GPU into those of this CPU."""
    done = run("specs", "gemm", option, "")
    assert done.exit_code == 1, done.output
    assert "[option-empty]" in done.stderr


def test_where_a_kernel_cannot_be_written_none_is(tmp_path: Path) -> None:
    """Headers of late-2025 have no preshuffle: the other kernels of the request were written before that was seen."""
    theirs = tmp_path / "there"
    theirs.mkdir()
    (theirs / "mine.hpp").write_text("int mine;")
    for folder in (tmp_path / "new" / "kernels", theirs):
        with settings.override(ck_tile_profile="late-2025"):
            done = run("generate", "gemm", *AMD, "--variants", "standard", "preshuffle", "-o", str(folder))
        assert done.exit_code == 2, done.output
        assert "[headers-lack]" in done.stderr
    assert [one.relative_to(tmp_path).as_posix() for one in sorted(tmp_path.rglob("*"))] == ["there", "there/mine.hpp"]


def test_headers_that_are_named_must_be_there(tmp_path: Path) -> None:
    with settings.override(ck_tile=str(tmp_path / "none")):
        done = run("generate", "gemm", *AMD, "-o", str(tmp_path / "kernels"))
    assert done.exit_code == 2, done.output
    assert "[no-headers]" in done.stderr
    assert not list(tmp_path.iterdir())


def test_what_tile_engine_s_files_hold_beside() -> None:
    """A section `problem`, values left out of a range, hints to its compiler, and older spellings."""
    config = {
        "problem": {
            "layout_a": {"values": ["r"]}, "layout_b": {"values": ["r", "c"]}, "layout_c": {"values": ["r"]},
            "datatype_a": {"values": ["fp8"]}, "datatype_b": {"values": ["fp8"]}, "datatype_c": {"values": ["fp16"]},
        },
        "tile_config": {"tile_m": {"min": 64, "max": 256, "step": 64, "exclude": [192, 256]}, "tile_k": [64]},
        "trait_config": {"kPadM": {"values": [True]}},
        "k_block_per_cu": 2,
        "permute_n": True,
    }  # fmt: skip
    found = collect("gemm", "gfx942", config=config)
    proposed = [*found.specs, *(one.spec for one in found.rejected)]
    assert {(one.signature.dtype_a, one.signature.dtype_c) for one in proposed} == {("fp8_e4m3fnuz", "fp16")}
    assert {one.signature.layout for one in proposed} == {"rrr", "rcr"}
    assert {one.schedule.tile[0] for one in proposed} == {64, 128}
    assert {one.schedule.pad for one in proposed} == {(True, False, False)}
    asked = collect("gemm", "gfx942", config=config, axes={"datatypes": "bf16", "outputs": "bf16"})
    assert {one.signature.dtype_a for one in asked.specs} == {"bf16"}, "what was asked for counts first"


def test_a_sweep_as_large_as_tile_engine_s_is_read() -> None:
    """Of 103,680 combinations only those whose parts divide, and that the arch has, are proposed."""
    edges = {"min": 64, "max": 256, "step": 64}
    config: dict[str, Any] = {
        "tile_config": {
            **{f"tile_{axis}": edges for axis in "mnk"}, "warp_m": [4, 2, 1], "warp_n": [4, 2, 1], "warp_k": [1],
            "warp_tile_m": [4, 16, 32], "warp_tile_n": [16, 32, 64], "warp_tile_k": [8, 16, 32, 64, 128],
        },
        "trait_config": {"pipeline": ["compv3", "compv4"], "persistent": [True, False]},
    }  # fmt: skip
    found = collect("gemm", "gfx942", config=config)
    assert len(found.specs) + len(found.rejected) < 20_000
    assert len(found.specs) > 500
    few = {**config["tile_config"], "tile_m": 128, "tile_n": 128, "tile_k": 64}
    listed = collect("gemm", "gfx942", config={**config, "tile_config": few})
    assert set(listed.specs) <= set(found.specs), "a smaller sweep, whose every combination is asked about"


def test_one_source_of_kernels_at_a_time(config: str, tmp_path: Path) -> None:
    for words, rule in (
        (("--config", config, "--pool", "tiny"), "preselected-pool"),
        (("--config", config, "--preselected", "fp16_rcr_all"), "preselected-pool"),
        (("--config", config, "--tile-config-json", "{}"), "config-or-text"),
        (("--config", str(tmp_path / "none.json")), "config-file"),
        (("--correct",), "correct-what"),
    ):
        done = run("specs", "gemm", *AMD, *words)
        assert done.exit_code == 1
        assert f"[{rule}]" in done.stderr
    assert "[build-what]" in run("build", "gemm", *AMD, "--config", config, "--pool", "tiny").stderr
    ours = ("--target", "x86_64_v3", "--tile-config-json", '{"pipeline": "tma_ws"}')
    assert "[pipeline-name]" in run("specs", "gemm", *ours).stderr
    missing = ("--target", "x86_64_v3", "--tile-config-json", '{"pipeline": "packed", "tile_m": 64, "warp_tile_m": 8}')
    assert "not tile_n" in run("specs", "gemm", *missing).stderr


def test_an_illegal_configuration_gets_its_nearest_legal_neighbours(tmp_path: Path) -> None:
    done = run("generate", "gemm", *AMD, "--tile-config-json", UNKNOWN_PAIR, "-o", str(tmp_path / "out"))
    assert done.exit_code == 1
    assert "[no-specs]" in done.stderr
    assert f"the nearest legal kernels: {CHANGE}; or pipeline compv4 -> mem" in done.stderr
    assert not (tmp_path / "out").exists()
    listed = run("specs", "gemm", *AMD, "--tile-config-json", UNKNOWN_PAIR, "--why-not", "-v")
    assert f"  nearest: {CHANGE}" in listed.stdout


def test_correct_takes_the_nearest_and_says_what_it_changed(tmp_path: Path) -> None:
    request = (*AMD, "--tile-config-json", UNKNOWN_PAIR, "--correct")
    done = run("generate", "gemm", *request, "-o", str(tmp_path / "out"))
    assert done.exit_code == 0, done.stderr
    assert f"{CHANGE} (amd-scheduler)" in done.stderr
    assert "1 proposal corrected" in done.stderr
    kernels = json.loads((tmp_path / "out" / "manifest.json").read_text())["kernels"]
    assert [one["spec"]["schedule"]["scheduler"] for one in kernels] == ["intrawave"]
    data = json.loads(run("specs", "gemm", *request, "--json").stdout)
    assert data["corrected"][0]["taken"] == kernels[0]["name"]
    changed = [{"name": "scheduler", "before": "interwave", "after": "intrawave"}]
    assert data["corrected"][0]["changes"] == changed


def test_correct_leaves_what_is_legal_as_it_is() -> None:
    request = (*AMD, "--tile-config-json", '{"tile_m": 128}', "--correct")
    done = run("specs", "gemm", *request)
    assert done.exit_code == 0
    assert "corrected" not in done.stderr
    refused = run("specs", "gemm", "--target", "gfx1100", "--tile-config-json", '{"tile_m": 128}', "--correct")
    assert refused.exit_code == 1
    assert "no WMMA code" in refused.stderr


# -- what there is -------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["gfx942", "gfx90a", "x86_64_v3"])
def test_sets_are_listed_with_their_counts(arch: str) -> None:
    rows = json.loads(run("sets", "--target", arch, "--json").stdout)["sets"]
    assert {row["op"] for row in rows} == {"gemm"}
    mine = [name for name, one in op("gemm").preselected_sets.items() if one.family == all_archs()[arch].family]
    assert [row["name"] for row in rows] == mine
    for row in rows:
        assert row["kernels"] == len(collect("gemm", arch, preselected=row["name"]).specs)
        assert row["purpose"]
    said = run("sets", "gemm", "--arch", arch)
    assert all(name in said.stdout for name in mine)
    assert f"{len(mine)} sets for {arch}" in said.stderr


def test_sets_of_a_target_without_any_say_where_there_are_some() -> None:
    done = run("sets", "--target", "sm_90a")
    assert done.exit_code == 0
    assert "0 sets for sm_90a" in done.stderr
    assert "(--target hip)" in done.stderr
    assert "[op-name]" in run("sets", "gem").stderr


@pytest.mark.parametrize("command", ["specs", "generate"])
def test_arch_info_is_shown_and_nothing_else_done(command: str, tmp_path: Path) -> None:
    done = run(command, "gemm", "--arch", "gfx942", "--show-arch-info")
    assert done.exit_code == 0, done.stderr
    for words in ("65536 bytes of LDS", "2x2x1", "fp16_fp16_fp32: 32x32x8", "CDNA 3"):
        assert words in done.stdout
    data = json.loads(run(command, "gemm", "--arch", "gfx942", "--show-arch-info", "--json").stdout)
    assert [2, 2, 1] in data["warp_grids"]
    assert [32, 32, 16] in data["warp_tiles"]["fp16_fp16_fp32"]
    assert data["kernels"]["default"] == len(collect("gemm", "gfx942").specs)
    assert run(command, "gemm", "--arch", "gfx943", "--show-arch-info").exit_code == 1
    newest = run(command, "gemm", "--arch", "gfx1250", "--show-arch-info")
    assert newest.exit_code == 0
    assert "fp16_fp16_fp32: 16x16x32" in newest.stdout


def test_generate_without_a_folder_says_which_option() -> None:
    done = run("generate", "gemm", "--pool", "tiny")
    assert done.exit_code == 1
    assert "[output-dir]" in done.stderr
    assert "--output-dir" in done.stderr


@pytest.mark.usefixtures("needs_compiler")
def test_a_configuration_is_built() -> None:
    done = run("build", "gemm", "--target", "generic", "--tile-config-json", '{"pipeline": "loops"}', "--json")
    assert done.exit_code == 0, done.stderr
    built = json.loads(done.stdout)["built"]
    assert [one["digest"] for one in built] == [
        collect("gemm", "generic", config={"pipeline": "loops"}).specs[0].digest
    ]


@pytest.mark.parametrize(
    "words",
    [("--gpu-target", "gfx942", "--arch", "gfx90a"), ("--target=gfx942", "--arch", "sm_90a"),
     ("--target", "gfx942", "--target", "gfx950")],
)  # fmt: skip
def test_two_targets_are_one_error_and_the_same_twice_is_none(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(build_app(), ["specs", "gemm", *words, "--count"])
    assert done.exit_code == 1
    assert "[target-twice]" in done.stderr
    same = [one if one.startswith("-") else "gfx942" for one in words]
    same = ["--target=gfx942" if "=" in one else one for one in same]
    assert CliRunner().invoke(build_app(), ["specs", "gemm", *same, "--count"]).exit_code == 0
