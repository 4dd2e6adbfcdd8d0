"""`tilewright specs` and `tilewright generate`, end to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tilewright.arch import best_host_arch
from tilewright.cli.main import build_app
from tilewright.ops import op

APP = build_app()
BASE = ("--target", "x86_64_v3", "--pool", "tiny")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(APP, list(arguments))


def specs(*arguments: str) -> list[dict[str, Any]]:
    done = run("specs", "gemm", "--json", *arguments)
    assert done.exit_code == 0, done.stderr
    return [one["spec"] for one in json.loads(done.stdout)["specs"]]


def values(found: list[dict[str, Any]], part: str, field: str) -> set[Any]:
    return {str(one[part][field]) for one in found}


def test_names_go_to_stdout_and_the_count_to_stderr() -> None:
    done = run("specs", "gemm", *BASE)
    assert done.exit_code == 0
    names = done.stdout.split()
    assert names
    assert all(name.startswith("gemm_fp32_rrr_") for name in names)
    assert f"{len(names)} spec{'s' * (len(names) != 1)}" in done.stderr
    assert "1 spec " in f"{run('specs', 'gemm', *BASE, '--limit', '1').stderr} ".replace("\n", " ").replace(",", " ")


def test_json_gives_specs_that_can_be_read_back() -> None:
    for data in specs(*BASE):
        assert not op("gemm").check(op("gemm").spec_from_dict(data))


def test_the_target_defaults_to_the_best_of_this_machine() -> None:
    assert {one["arch"] for one in specs("--pool", "tiny")} == {best_host_arch().name}


@pytest.mark.parametrize(
    "several",
    [
        ("--datatype", "fp32", "--datatype", "bf16"),
        ("--datatype", "fp32,bf16"),
        ("--datatype", "bf16, fp32,"),
        ("--datatype", "fp32", "bf16", "--layout", "rrr"),
    ],
)
def test_an_option_takes_several_values(several: tuple[str, ...]) -> None:
    assert values(specs(*BASE, *several), "signature", "dtype_a") == {"fp32", "bf16"}


def test_a_word_before_the_op_is_never_taken_for_the_op() -> None:
    done = run("specs", "--datatype", "fp32", "gemm", *BASE)
    assert done.exit_code == 0, done.stderr


def test_each_axis_reaches_the_specs() -> None:
    found = specs(
        *BASE, "--datatype", "fp16", "--layout", "rcr,ccr", "--variants", "multi_d", "--epilogue", "relu",
        "--num-d", "0,2", "--output", "fp32",
    )  # fmt: skip
    assert values(found, "signature", "layout") == {"rcr", "ccr"}
    assert values(found, "signature", "epilogue") == {"Relu"}
    assert values(found, "signature", "num_d") == {"0", "2"}
    assert values(found, "signature", "dtype_c") == {"fp32"}


def test_two_datatypes_may_be_mixed() -> None:
    found = specs(*BASE, "--datatype", "fp8_e4m3:bf16")
    assert values(found, "signature", "dtype_b") == {"bf16"}


def test_a_preselected_set_by_name() -> None:
    found = specs("--target", "x86_64_v3", "--preselected", "llm_bf16")
    assert values(found, "signature", "dtype_a") == {"bf16"}
    assert "preshuffle" in values(found, "signature", "variant")


def test_a_set_is_narrowed_by_axes_that_agree_with_it() -> None:
    target = ("--target", "x86_64_v3", "--preselected", "llm_bf16")
    every = specs(*target)
    assert specs(*target, "--datatype", "bf16", "--layout", "rcr") == every
    some = specs(*target, "--variants", "multi_d", "--epilogue", "silu,multidadd")
    assert values(some, "signature", "epilogue") == {"Silu", "MultiDAdd"}
    assert 0 < len(some) < len(every)
    done = run("specs", "gemm", *target, "--num-d", "1", "--epilogue", "silu")
    assert done.exit_code == 1
    assert "[no-specs]" in done.stderr
    done = run("specs", "gemm", *target, "--num-d", "7")
    assert done.exit_code == 1
    assert "it has 0, 1" in done.stderr
    done = run("specs", "gemm", *target, "--pool", "tiny")
    assert done.exit_code == 1
    assert "[preselected-pool]" in done.stderr


def test_count_is_a_number_and_nothing_else() -> None:
    names = run("specs", "gemm", *BASE).stdout.split()
    assert run("specs", "gemm", *BASE, "--count").stdout == f"{len(names)}\n"
    assert json.loads(run("specs", "gemm", *BASE, "--count", "--json").stdout)["count"] == len(names)


@pytest.mark.parametrize(("target", "arch"), [("cuda", "sm_90a"), ("hip", "gfx942"), ("cpu", best_host_arch().name)])
def test_a_backends_name_is_a_target_for_every_command(target: str, arch: str, tmp_path: Path) -> None:
    common = ("--target", target, "--pool", "tiny", "--datatype", "fp16", "--layout", "rcr")
    assert {one["arch"] for one in specs(*common)} == {arch}
    done = run("generate", "gemm", *common, "-o", str(tmp_path))
    assert done.exit_code == 0, done.stderr
    assert all(one["arch"] == arch for one in json.loads((tmp_path / "manifest.json").read_text())["kernels"])
    done = run("explain", "gemm", "--m", "4", "--n", "4", "--k", "4", "--datatype", "fp16", "--layout", "rcr",
               "--target", target, "--json")  # fmt: skip
    assert json.loads(done.stdout)["target"] == arch


def test_filter_and_limit() -> None:
    request = ("--target", "x86_64_v3", "--pool", "full", "--datatype", "fp32,fp16", "--filter", "c.dtype_a == 'fp16'")
    found = specs(*request, "--limit", "9")
    assert len(found) == 9
    assert values(found, "signature", "dtype_a") == {"fp16"}


def test_why_not_names_rule_sentence_and_remedy() -> None:
    request = ("specs", "gemm", *BASE, "--output", "int8", "--output", "fp32", "--why-not")
    short = run(*request)
    assert short.exit_code == 0
    assert "dtype-output" in short.stdout
    assert "cannot give int8" in short.stdout
    full = run(*request, "-v")
    assert len(full.stdout) > len(short.stdout)
    assert "[dtype-output] fp32 times fp32 cannot give int8 (use " in full.stdout
    data = json.loads(run(*request, "--json").stdout)
    assert len(data["why_not"]) == data["rejected"] > 0
    for rejection in data["why_not"]:
        assert rejection["spec"]["signature"]["dtype_c"] == "int8"
        assert all(one["rule"] and one["message"] for one in rejection["violations"])


def test_why_not_says_when_nothing_was_rejected() -> None:
    assert "no proposal was rejected" in run("specs", "gemm", *BASE, "--why-not").stderr


@pytest.mark.parametrize(
    ("arguments", "rule", "hint"),
    [
        (("gem",), "op-name", "gemm"),
        (("gemm", "--target", "x86_64_v5"), "arch-name", "x86_64_v4"),
        (("gemm", "--target", "gfx943"), "arch-name", "did you mean 'gfx942'"),
        (
            ("gemm", "--target", "gfx942", "--preselected", "fp16_rcr_esential"),
            "preselected-name",
            "fp16_rcr_essential",
        ),
        (("gemm", "--datatype", "fp23"), "dtype-name", "fp32"),
        (("gemm", "--layout", "rcc"), "layout-name", "rcr"),
        (("gemm", "--variants", "multid"), "variant-name", "multi_d"),
        (("gemm", "--pool", "fulll"), "pool-name", "full"),
        (("gemm", "--preselected", "llm_bf61"), "preselected-name", "llm_bf16"),
        (("gemm", "--preselected", "llm_bf16", "--layout", "rrr"), "preselected-axes", "it has rcr"),
        (("gemm", "--epilogue", "gellu"), "epilogue-name", "Gelu"),
        (("gemm", "--num-d", "two"), "option-value", "--num-d"),
        (("gemm", "--filter", "c.tile_q > 1"), "filter-name", "tile_"),
        (("gemm", "--filter", "c.tile_n >"), "filter-syntax", "^"),
        (("gemm", "--filter", "c.pipeline > 3"), "filter-type", "compare"),
    ],
)
def test_a_wrong_request_names_rule_and_what_would_work(arguments: tuple[str, ...], rule: str, hint: str) -> None:
    done = run("specs", *arguments)
    assert done.exit_code == 1
    assert f"error: [{rule}]" in done.stderr
    assert "remedy:" in done.stderr
    assert hint in done.stderr
    assert done.stdout == ""


def test_generate_writes_once(tmp_path: Path) -> None:
    place = tmp_path / "out"
    request = ("generate", "gemm", *BASE, "--datatype", "fp32,bf16", "--jobs", "2", "--output-dir", str(place))
    first = run(*request)
    assert first.exit_code == 0, first.stderr
    sources = sorted(path.name for path in place.glob("*.cpp"))
    assert f"{len(sources)} written, 0 unchanged, 0 removed" in first.stdout
    assert f"generating: {len(sources)} of {len(sources)}" in first.stderr
    second = run(*request, "--json")
    data = json.loads(second.stdout)
    assert data["written"] == []
    assert data["unchanged"] == sources
    assert (place / data["manifest"]).exists()


def test_generate_mirrors_or_adds(tmp_path: Path) -> None:
    run("generate", "gemm", *BASE, "--datatype", "fp32", "-o", str(tmp_path))
    run("generate", "gemm", *BASE, "--datatype", "bf16", "-o", str(tmp_path), "--add")
    both = len(list(tmp_path.glob("*.cpp")))
    done = run("generate", "gemm", *BASE, "--datatype", "bf16", "-o", str(tmp_path), "-v")
    assert "removed gemm_fp32" in done.stdout
    assert 0 < len(list(tmp_path.glob("*.cpp"))) < both


def test_generate_leaves_what_others_wrote(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"name": "my web app"}', encoding="utf-8")
    done = run("generate", "gemm", *BASE, "-o", str(tmp_path))
    assert done.exit_code == 1
    assert "[foreign-file]" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]
    assert (tmp_path / "manifest.json").read_text() == '{"name": "my web app"}'


def test_an_empty_folder_name_is_a_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (("generate", "gemm", *BASE, "--output-dir", ""), ("wrap", "--kernel-dir", "k", "--output-dir", "")):
        done = run(*words)
        assert done.exit_code == 1
        assert "[output-dir]" in done.stderr
    assert "--kernel-dir is empty" in run("wrap", "--kernel-dir", "", "--output-dir", "o").stderr
    assert not list(tmp_path.iterdir())
    assert run("generate", "gemm", *BASE, "--output-dir", ".").exit_code == 0
    assert (tmp_path / "manifest.json").exists()


def test_generate_of_nothing_is_an_error_that_keeps_the_folder(tmp_path: Path) -> None:
    request = ("generate", "gemm", *BASE, "-o", str(tmp_path))
    run(*request)
    before = sorted(path.name for path in tmp_path.iterdir())
    done = run(*request, "--filter", "c.tile_n < 0")
    assert done.exit_code == 1
    assert "[no-specs]" in done.stderr
    assert "did not pass the filter" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_generate_for_a_gpu_without_kernels_says_why(tmp_path: Path) -> None:
    request = ("--target", "gfx1100", "--variant", "preshuffle", "--datatype", "fp32")
    done = run("generate", "gemm", *request, "-o", str(tmp_path / "out"))
    assert done.exit_code == 1
    assert "[no-specs]" in done.stderr
    assert "no matrix instruction" in done.stderr
    assert not (tmp_path / "out").exists()


def test_generate_into_a_file_is_an_error_of_the_request(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    for place in (str(tmp_path / "file"), "/dev/null"):
        done = run("generate", "gemm", *BASE, "-o", place)
        assert done.exit_code == 1
        assert "[output-folder]" in done.stderr
        assert "remedy:" in done.stderr


@pytest.mark.parametrize("form", [("--count",), ("--json",), ("--why-not",), ()])
@pytest.mark.parametrize(
    ("request_words", "why"),
    [
        ((*BASE, "--filter", "c.arch == 'none'"), "did not pass the filter"),
        (("--target", "gfx1100", "--variant", "preshuffle", "--datatype", "fp32"), "no matrix instruction"),
    ],
)
def test_a_request_that_means_no_kernel_is_the_same_error_to_specs_as_to_generate(
    form: tuple[str, ...], request_words: tuple[str, ...], why: str, tmp_path: Path
) -> None:
    """`specs` of a refused arch ended with 0 where `generate` ended with 1."""
    listed = run("specs", "gemm", *request_words, *form)
    written = run("generate", "gemm", *request_words, "-o", str(tmp_path / "out"))
    assert (listed.exit_code, written.exit_code) == (1, 1)
    said = [line for line in listed.stderr.splitlines() if line.startswith("error: [no-specs]")]
    assert said
    assert said == [line for line in written.stderr.splitlines() if line.startswith("error:")]
    assert why in said[0]
    if form == ("--count",):
        assert listed.stdout == "0\n"
    if form == ("--json",):
        assert json.loads(listed.stdout)["specs"] == []
