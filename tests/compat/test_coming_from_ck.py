"""docs/coming-from-ck.md: every command and every line of Python in it runs, and nothing of theirs is left out."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests import amd_toolchain
from tilewright.cli.main import build_app

PAGE = Path(__file__).parents[2] / "docs" / "coming-from-ck.md"
TEXT = PAGE.read_text(encoding="utf-8")
# A remark before a block says that it needs the AMD compiler, or how the file of its JSON is called.
BLOCK = re.compile(r"^(?:<!-- (.*?) -->\n)?```(\w+)\n(.*?)^```$", re.M | re.S)
BLOCKS = [(remark == "amd", language, text) for remark, language, text in BLOCK.findall(TEXT)]
FILES = [
    remark.removeprefix("file ") or "config.json" for remark, language, _ in BLOCK.findall(TEXT) if language == "json"
]


def play(folder: Path, *, amd: bool) -> Iterator[str]:
    """Run the blocks that need the compiler, or those that do not, in the order of the page."""
    names: dict[str, Any] = {}
    files = iter(FILES)
    for needs, language, text in BLOCKS:
        if language == "json":
            json.loads(text)
            (folder / next(files)).write_text(text, encoding="utf-8")
        elif needs == amd and language == "console":
            yield from (_command(*one) for one in _commands(text))
        elif needs == amd and language == "python":
            exec(compile(text, str(PAGE), "exec"), names)
            yield text


def _commands(text: str) -> list[tuple[str, str]]:
    """Each command with the output that is shown of it."""
    parts = re.split(r"^\$ ", text, flags=re.M)[1:]
    return [(part.split("\n", 1)[0], part.split("\n", 1)[1]) for part in parts]


def _command(line: str, shown: str) -> str:
    program, *words = shlex.split(line)
    assert program == "tilewright"
    done = CliRunner().invoke(build_app(), words)
    assert done.exit_code == 0, f"{line}\n{done.output}"
    assert shown in done.stdout, f"{line} prints {done.stdout!r}"
    return line


def test_the_page_is_read() -> None:
    languages = [language for _, language, _ in BLOCKS]
    assert set(languages) == {"console", "json", "python", "text"}
    assert TEXT.count("```") == 2 * len(BLOCKS)
    assert {amd for amd, *_ in BLOCKS} == {True, False}


@pytest.mark.proof
@pytest.mark.usefixtures("needs_compiler")
def test_every_command_and_all_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    played = list(play(tmp_path, amd=False))
    assert sum(one.startswith("tilewright ") for one in played) >= 15
    assert {one.name for one in tmp_path.iterdir()} >= {
        "generated", "fused", "small", "mine", "small-lib", "kernels", "convs", "results.csv", "predicted.csv",
    }  # fmt: skip


@pytest.mark.amd
def test_what_needs_the_amd_compiler_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with amd_toolchain.in_force() if amd_toolchain.place() else nullcontext():
        assert len(list(play(tmp_path, amd=True))) == 2


def test_a_wrong_line_would_be_seen() -> None:
    for line, shown in (("tilewright specs gemm --gpu-target gfx943", ""), ("tilewright --version", "no such number")):
        with pytest.raises(AssertionError):
            _command(line, shown)


def test_the_correction_that_is_shown_is_the_one_that_is_said() -> None:
    line = next(one for one in TEXT.splitlines() if one.startswith("$") and "--correct" in one)
    done = CliRunner().invoke(build_app(), shlex.split(line)[2:])
    said = next(one for one in done.stderr.splitlines() if one.startswith("corrected "))
    assert said in TEXT


# What people may have used there: options of their generators, and calls of their Python.
THEIRS = """
    --output-dir --datatype --layout --gpu-target --config --variants --preselected --no-parallel --register
    --no-arch-filter --show-arch-info --kernel-set --tile-config-json --kernel-dir --pattern --generate-cmake
    --generate-ninja --generate-makefile --set --count-only -DGPU_TARGETS
    unified_gemm_codegen.py generate_kernel_wrappers.py generate_arch_specs.py preselected_kernels.py arch_filter.py
    KernelConfig ValidationResult validate_kernel_config auto_correct_kernel_config find_matching_kernel_header
    DispatcherLib GemmRunner Validator CodegenRunner CodegenResult GemmSetupResult Dispatcher setup_gemm_dispatcher
    setup_multiple_gemm_dispatchers generate_all generate_from_config generate_preselected generate_all_parallel
    generate_configs_parallel generate_batch_parallel build_libraries_parallel ensure_kernels_exist list_kernels
    categorize_kernels register_kernel select_kernel is_supported preshuffle_weight_matrix detect_gpu_arch cleanup_gemm
    cleanup_generated_kernels gemm_universal_benchmark.py --problem-sizes --repeat
    expand_sweep GpuGemmRunner k_batch DECL_KERNEL_SET KernelKey register_all_kernels.hpp
    unified_grouped_conv_codegen.py grouped_conv_instance_builder.py grouped_conv_full_benchmark.py --rule-set --ndim
    --list-configs --tile-m --export-json --filter-file -DDISPATCHER_RULE_SET wave_mode num_groups_to_merge
    double_smem_buffer split_image explicit_gemm two_stage basic_v1 compv6 wavelet forward_bf16 bwd_data bwd_weight
    GroupedConvProblem GroupedConvKernelConfig GpuGroupedConvRunner GroupedConvRegistry
    setup_multiple_grouped_conv_dispatchers validate_grouped_conv_config auto_correct_grouped_conv_config
    --csv --kernel-timeout --batch-size --max-kernels --verify convert_csv_to_parquet.py train.py evaluate.py
    predict_cli.py compare_ml_vs_oracle.py search.py --warm_start Predictor
    fmha_benchmark.py fmha_full_benchmark.py instance_gen.py --receipt --category --num-splits FmhaRunner
    FmhaKernelConfig setup_fmha_dispatcher FmhaRegistry FmhaValidator cpu_attention_fwd run_bwd validation.py
"""


def test_nothing_of_theirs_is_left_out() -> None:
    missing = [one for one in THEIRS.split() if not re.search(rf"(?<![\w-]){re.escape(one)}(?![\w-])", TEXT)]
    assert not missing
