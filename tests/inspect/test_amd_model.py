"""The model of a main loop: which code it counts, and what each instruction costs."""

from __future__ import annotations

import pytest

from tests.inspect.amd_listings import MAIN_LOOP, code
from tilewright.arch import arch
from tilewright.inspect import amd_flow as flow
from tilewright.inspect.amd_model import WORDS, code_model, waits
from tilewright.inspect.amd_rates import lds_bytes, matrix_cost, unit_rates

# Clocks as AMD's matrix instruction calculator states them; gfx950's own as LLVM's scheduling model has them.
CLOCKS = [
    ("gfx908", "v_mfma_f32_32x32x8f16", 64, 32 * 32 * 8),
    ("gfx908", "v_mfma_f32_16x16x8bf16", 32, 16 * 16 * 8),
    ("gfx90a", "v_mfma_f32_16x16x16f16", 32, 16 * 16 * 16),
    ("gfx90a", "v_mfma_f32_32x32x8bf16_1k", 64, 32 * 32 * 8),
    ("gfx90a", "v_mfma_f32_4x4x4f16", 8, 4 * 4 * 4 * 16),
    ("gfx90a", "v_mfma_f32_32x32x4f16", 64, 32 * 32 * 4 * 2),
    ("gfx90a", "v_mfma_i32_16x16x16i8", 32, 16 * 16 * 16),
    ("gfx942", "v_mfma_f32_32x32x8_f16", 32, 32 * 32 * 8),
    ("gfx942", "v_mfma_f32_16x16x16_bf16", 16, 16 * 16 * 16),
    ("gfx942", "v_mfma_f32_16x16x4_f32", 32, 16 * 16 * 4),
    ("gfx942", "v_mfma_f32_4x4x4_16b_f16", 8, 4 * 4 * 4 * 16),
    ("gfx942", "v_mfma_i32_32x32x16_i8", 32, 32 * 32 * 16),
    ("gfx942", "v_mfma_f32_16x16x32_fp8_bf8", 16, 16 * 16 * 32),
    ("gfx950", "v_mfma_f32_16x16x32_bf16", 16, 16 * 16 * 32),
    ("gfx950", "v_mfma_f32_32x32x16_f16", 32, 32 * 32 * 16),
    ("gfx950", "v_mfma_f32_16x16x128_f8f6f4", 32, 16 * 16 * 128),
    ("gfx1100", "v_wmma_f32_16x16x16_bf16", 32, 16 * 16 * 16),
    ("gfx1201", "v_wmma_f32_16x16x16_f16", 16, 16 * 16 * 16),
    ("gfx1201", "v_wmma_i32_16x16x16_iu8", 8, 16 * 16 * 16),
]


@pytest.mark.parametrize(("name", "mnemonic", "clocks", "macs"), CLOCKS)
def test_matrix_instructions(name: str, mnemonic: str, clocks: int, macs: int) -> None:
    cost = matrix_cost(mnemonic, name)
    assert cost is not None
    assert (cost.clocks, cost.macs) == (clocks, macs)


@pytest.mark.parametrize(
    ("name", "dtype", "mnemonic"),
    [
        ("gfx908", "fp16", "v_mfma_f32_16x16x16f16"),
        ("gfx90a", "bf16", "v_mfma_f32_16x16x16bf16_1k"),
        ("gfx90a", "int8", "v_mfma_i32_32x32x8i8"),
        ("gfx942", "fp16", "v_mfma_f32_32x32x8_f16"),
        ("gfx942", "int8", "v_mfma_i32_16x16x32_i8"),
        ("gfx950", "bf16", "v_mfma_f32_16x16x32_bf16"),
        ("gfx950", "fp8_e4m3", "v_mfma_f32_32x32x64_f8f6f4"),
        ("gfx1100", "fp16", "v_wmma_f32_16x16x16_f16"),
        ("gfx1201", "fp16", "v_wmma_f32_16x16x16_f16"),
        ("gfx1201", "fp8_e4m3", "v_wmma_f32_16x16x16_fp8_fp8"),
    ],
)
def test_clocks_agree_with_the_data_sheet(name: str, dtype: str, mnemonic: str) -> None:
    """Two sources that do not know of each other: an instruction's clocks, and the peak of the whole GPU."""
    facts, cost = arch(name), matrix_cost(mnemonic, name)
    assert facts.rates is not None
    assert cost is not None
    peak = 2 * cost.macs / cost.clocks * facts.simds * facts.compute_units * facts.rates.clock
    assert peak == pytest.approx(facts.rates.mma[dtype], rel=0.02)


@pytest.mark.parametrize("mnemonic", ["v_add_f32_e32", "v_mfma_f32_8x8x4_f16", "ds_read_b128"])
def test_what_is_no_matrix_instruction(mnemonic: str) -> None:
    assert matrix_cost(mnemonic, "gfx942") is None


@pytest.mark.parametrize(
    ("mnemonic", "size"),
    [("ds_read_b128", 16), ("ds_read2_b64", 16), ("ds_read2st64_b32", 8), ("ds_write_b16", 4), ("ds_load_b96", 12),
     ("ds_store_2addr_b32", 8), ("ds_read_b64_tr_b16", 8), ("ds_read_u16_d16", 4), ("global_load_dword", 0)],
)  # fmt: skip
def test_bytes_of_lds(mnemonic: str, size: int) -> None:
    assert lds_bytes(mnemonic) == size


def test_one_turn_passes_edge_code_by() -> None:
    model = code_model("kernel", code(MAIN_LOOP), arch("gfx942"), waves=2)
    assert model is not None
    assert (model.matrix_instructions, model.macs, model.address) == (2, 2 * 32 * 32 * 8, 12)
    assert model.loaded_bytes == 16 * 64  # nothing of the edge's two bytes
    # Two reads and one write of 16 bytes a lane, at 128 bytes a clock, of which a SIMD has a quarter.
    assert model.clocks["lds"] == 3 * 64 * 16 / 128 * 4
    assert model.clocks["matrix"] == 64
    assert model.clocks["memory"] == pytest.approx(4 * 64 * 16 / 64, rel=0.01)
    assert model.clocks["one_wave"] > 600  # the load of a turn is waited for in the same turn
    assert model.bound == "latency"
    assert model.turn == pytest.approx(model.clocks["one_wave"] / 2, abs=0.1)
    assert WORDS in str(model)


def test_more_waves_hide_what_one_waits_for() -> None:
    shares = [code_model("kernel", code(MAIN_LOOP), arch("gfx942"), waves) for waves in (1, 2, 4, 8)]
    issue = [model.matrix_issue for model in shares if model is not None]
    assert issue == sorted(issue)
    assert len(set(issue)) > 2
    last = shares[-1]
    assert last is not None
    assert last.bound == "lds"  # however many there are, LDS hands out no more
    assert last.matrix_issue == pytest.approx(64 / 96, abs=1e-3)


def test_waits_of_gfx12() -> None:
    """Loads and LDS by counters of their own, alone or two in one; what else waits has no counter to read."""
    waiting = ["s_wait_alu depctr_sa_sdst(0)", "s_wait_alu 0xfffe", "s_wait_kmcnt 0x0", "s_wait_loadcnt 0x2"]
    waiting += ["s_wait_dscnt 0x1", "s_wait_loadcnt_dscnt 0x304", "s_wait_storecnt_dscnt 0x5", "s_wait_idle"]
    found = [list(waits(instruction)) for instruction in code(waiting)]
    assert found[:5] == [[], [], [], [("vmcnt", 2)], [("lgkmcnt", 1)]]
    assert found[5:] == [[("vmcnt", 3), ("lgkmcnt", 4)], [("lgkmcnt", 5)], [("vmcnt", 0), ("lgkmcnt", 0)]]


def test_code_without_a_loop_or_an_unknown_arch_has_no_model() -> None:
    straight = [line for line in MAIN_LOOP if "branch" not in line]
    assert code_model("kernel", code(straight), arch("gfx942"), 2) is None
    assert unit_rates(arch("gfx1250")) is None
    assert code_model("kernel", code(MAIN_LOOP), arch("gfx1250"), 2) is None
    assert code_model("kernel", [], arch("gfx942"), 2) is None


def test_the_inner_loop_that_multiplies_is_the_main_one() -> None:
    lines = """
    outer:
        v_mov_b32_e32 v0, 0
    inner:
        v_mfma_f32_16x16x16_f16 v[0:3], v[20:21], v[22:23], v[0:3]
        s_cbranch_scc1 inner
    copy:
        ds_write_b32 v0, v1
        s_cbranch_scc1 copy
        s_cbranch_scc0 outer
        s_endpgm
    """.splitlines()
    graph = flow.blocks(code(lines))
    loop = flow.main_loop(graph, lambda instruction: float("mfma" in instruction.mnemonic))
    assert loop is not None
    assert [graph[at].address for at in loop.body] == [4]
    assert len(list(flow.loops(graph))) == 3
