"""Waits and hazards of AMD code: a listing that waits is clean, and one that was doctored is not."""

from __future__ import annotations

import pytest

from tests.inspect.amd_listings import MAIN_LOOP, code
from tilewright.inspect.amd_waits import check


def test_code_that_waits_is_clean() -> None:
    checked = check(code(MAIN_LOOP), "gfx942")
    assert checked.findings == ()
    assert (checked.loads, checked.matrix, checked.notes) == (5, 2, ())


@pytest.mark.parametrize(
    ("at", "register", "writer"),
    [
        (0, "s0", ""),  # nothing reads what the scalar load brings: not a finding
        (1, "v4", "ds_read_b128"),
        (2, "v30", "global_load_ushort"),
        (3, "v20", "global_load_dwordx4"),
    ],
)
def test_a_wait_that_is_missing(at: int, register: str, writer: str) -> None:
    waits = [index for index, line in enumerate(MAIN_LOOP) if "s_waitcnt" in line]
    doctored = [line for index, line in enumerate(MAIN_LOOP) if index != waits[at]]
    findings = check(code(doctored), "gfx942").findings
    assert [finding.register for finding in findings][:1] == ([register] if writer else [])
    assert all(writer in finding.writer for finding in findings[:1])


@pytest.mark.parametrize(("left", "right"), [(1, False), (0, True)])
def test_a_wait_that_is_too_short(left: int, right: bool) -> None:
    """Loads come back in order: of two, one may be left where the first is read, none where the second is."""
    lines = [
        "global_load_dword v1, v[4:5], off",
        "global_load_dword v2, v[4:5], off",
        f"s_waitcnt vmcnt({left})",
        "v_add_u32_e32 v3, v1, v2",
        "s_endpgm",
    ]
    findings = check(code(lines), "gfx90a").findings
    assert (findings == ()) is right
    if not right:
        assert findings[0].register == "v2"
        assert "vmcnt" in str(findings[0])


@pytest.mark.parametrize(("later", "right"), [(62, False), (63, True)])
def test_a_full_counter_holds_further_loads_back(later: int, right: bool) -> None:
    """63 on their way at most, in order: behind as many more, the first is back."""
    loads = ["global_load_dword v1, v[4:5], off", *["global_load_dword v2, v[4:5], off"] * later]
    assert (check(code([*loads, "v_mov_b32_e32 v3, v1", "s_endpgm"]), "gfx90a").findings == ()) is right


@pytest.mark.parametrize(("arch", "most"), [("gfx90a", 15), ("gfx950", 15), ("gfx1100", 63), ("gfx1201", 63)])
def test_lds_operations_behind_a_full_counter(arch: str, most: int) -> None:
    """lgkmcnt has 4 bits on gfx9; scalar and flat loads in between count for nothing: they may be back first."""

    def is_clean(*later: str) -> bool:
        lines = ["ds_read_b32 v1, v0", *later, "v_mov_b32_e32 v3, v1", "s_endpgm"]
        return check(code(lines), arch).findings == ()

    of_lds = "ds_write_b32 v0, v2"
    assert is_clean(*[of_lds] * most)
    assert not is_clean(*[of_lds] * (most - 1))
    for other in ("s_load_dword s4, s[0:1], 0x0", "flat_load_dword v9, v[4:5]"):
        assert not is_clean(*[of_lds] * (most - 1), other)
        assert not is_clean(*[other] * most)


def test_of_two_paths_to_a_full_counter_the_shorter_counts() -> None:
    lines = ["ds_read_b32 v1, v0", "s_cbranch_scc1 join", *["ds_write_b32 v0, v2"] * 8, "join:"]
    lines += ["ds_write_b32 v0, v2"] * 7

    def is_clean(more: int) -> bool:
        return (
            check(
                code([*lines, *["ds_write_b32 v0, v2"] * more, "v_mov_b32_e32 v3, v1", "s_endpgm"]), "gfx90a"
            ).findings
            == ()
        )

    assert is_clean(8)
    assert not is_clean(0)


def test_scalar_loads_come_back_in_any_order() -> None:
    lines = [
        "s_load_dword s4, s[0:1], 0x0",
        "ds_read_b32 v1, v0",
        "s_waitcnt lgkmcnt(1)",
        "s_mov_b32 s5, s4",
        "s_endpgm",
    ]
    assert check(code(lines), "gfx942").findings[0].register == "s4"
    lines[2] = "s_waitcnt lgkmcnt(0)"
    assert check(code(lines), "gfx942").findings == ()


def test_a_load_over_a_loop_is_waited_for_in_the_next_turn() -> None:
    lines = [
        "v_mov_b32_e32 v1, 0",
        "loop:",
        "v_add_u32_e32 v2, v2, v1",  # in the second turn v1 is on its way
        "global_load_dword v1, v[4:5], off",
        "s_cbranch_scc1 loop",
        "s_endpgm",
    ]
    (finding,) = check(code(lines), "gfx942").findings
    assert finding.register == "v1"
    assert finding.instruction.startswith("v_add_u32")


@pytest.mark.parametrize(
    ("arch", "mnemonic", "states"),
    [
        ("gfx90a", "v_mfma_f32_32x32x8f16", 19),
        ("gfx90a", "v_mfma_f32_16x16x16f16", 11),
        ("gfx942", "v_mfma_f32_32x32x8_f16", 11),
        ("gfx942", "v_mfma_f32_16x16x16_f16", 7),
        ("gfx942", "v_mfma_f32_16x16x4_f32", 10),
        ("gfx950", "v_mfma_f32_16x16x32_f16", 8),
        ("gfx950", "v_mfma_f32_32x32x16_f16", 12),
    ],
)
def test_wait_states_behind_a_matrix_instruction(arch: str, mnemonic: str, states: int) -> None:
    def findings(between: int) -> int:
        lines = [f"{mnemonic} v[0:15], v[20:21], v[22:23], v[0:15]", *["s_nop 0"] * between, "v_mov_b32_e32 v40, v3"]
        return len(check(code([*lines, "s_endpgm"]), arch).findings)

    assert findings(states) == 0
    assert findings(states - 1) == 1


@pytest.mark.parametrize(("nops", "right"), [(6, False), (9, True)])
def test_the_shortest_path_decides(nops: int, right: bool) -> None:
    """LLVM 22 counts the path it comes to first: 11 wait states on the longer one were 8 on the other."""
    lines = [
        "v_mfma_f32_16x16x16f16 v[0:3], v[20:21], v[22:23], v[0:3]",
        "s_cbranch_scc1 join",
        *["s_mov_b32 s4, 0"] * 4,
        "join:",
        f"s_nop {nops}",
        "v_mov_b32_e32 v40, v3",
        "s_endpgm",
    ]
    assert (check(code(lines), "gfx90a").findings == ()) is right


@pytest.mark.parametrize(("arch", "right"), [("gfx1201", True), ("gfx1100", False)])
def test_on_gfx12_an_invalidation_counts_as_a_load(arch: str, right: bool) -> None:
    wait = "s_wait_loadcnt 0x1" if right else "s_waitcnt vmcnt(1)"
    lines = ["global_load_b32 v7, v[4:5], off", "global_inv scope:SCOPE_SE", wait, "v_mov_b32_e32 v7, 0", "s_endpgm"]
    assert (check(code(lines), arch).findings == ()) is right


def test_accumulators_may_be_taken_at_once_as_they_are() -> None:
    first = "v_mfma_f32_16x16x16_f16 v[0:3], v[20:21], v[22:23], v[0:3]"
    assert check(code([first, first, "s_endpgm"]), "gfx942").findings == ()
    other = "v_mfma_f32_16x16x16_f16 v[2:5], v[20:21], v[22:23], v[2:5]"
    assert check(code([first, other, "s_endpgm"]), "gfx942").findings
    written_again = "v_mfma_f32_16x16x16_f16 v[0:3], v[20:21], v[22:23], v[8:11]"
    assert check(code([first, written_again, "s_endpgm"]), "gfx942").findings == ()
    operand = "v_mfma_f32_16x16x16_f16 v[8:11], v[2:3], v[22:23], v[8:11]"
    assert check(code([first, operand, "s_endpgm"]), "gfx942").findings


def test_a_matrix_instruction_is_held_back_by_the_one_before() -> None:
    """So that it counts as many wait states as the other has passes."""
    first = "v_mfma_f32_32x32x2_f32 a[0:15], v20, v21, a[0:15]"
    second = "v_mfma_f32_32x32x2_f32 v[2:17], v22, v23, v[2:17]"
    reads = ["v_accvgpr_read_b32 v40, a15", "s_endpgm"]
    assert check(code([first, second, "s_nop 1", *reads]), "gfx942").findings == ()
    assert check(code([first, "s_nop 1", *reads]), "gfx942").findings


def test_wmma_must_not_take_the_result_right_before_it() -> None:
    first = "v_wmma_f32_16x16x16_f16 v[0:7], v[20:27], v[28:35], v[0:7]"
    second = "v_wmma_f32_16x16x16_f16 v[40:47], v[0:7], v[28:35], v[40:47]"
    assert check(code([first, second, "s_endpgm"]), "gfx1100").findings
    assert not check(code([first, "v_nop", second, "s_endpgm"]), "gfx1100").findings


def test_gfx12_counts_apart() -> None:
    lines = ["ds_load_b128 v[0:3], v8", "global_load_b128 v[4:7], v[8:9], off", "s_wait_dscnt 0x0"]
    assert not check(code([*lines, "v_mov_b32_e32 v9, v0", "s_endpgm"]), "gfx1201").findings
    (finding,) = check(code([*lines, "v_mov_b32_e32 v9, v4", "s_endpgm"]), "gfx1201").findings
    assert "loadcnt" in finding.why
    assert not check(code([*lines, "s_wait_loadcnt 0x0", "v_mov_b32_e32 v9, v4", "s_endpgm"]), "gfx1201").findings
    both = [*lines[:2], "s_wait_storecnt_dscnt 0x0"]  # of stores and of LDS
    assert not check(code([*both, "v_mov_b32_e32 v9, v0", "s_endpgm"]), "gfx1201").findings
    assert check(code([*both, "v_mov_b32_e32 v9, v4", "s_endpgm"]), "gfx1201").findings


def test_what_cannot_be_followed_is_said() -> None:
    checked = check(code(["s_getpc_b64 s[0:1]", "s_setpc_b64 s[0:1]", "v_nop", "s_endpgm"]), "gfx942")
    assert checked.notes == ("a jump to an address in a register was not followed", "not reached: 2 instructions")


@pytest.mark.parametrize(
    ("arch", "touch", "states"),
    [
        ("gfx908", "v_accvgpr_write_b32 a3, 0", 7),  # nothing reads it: less than to be read
        ("gfx908", "v_accvgpr_read_b32 v9, a3", 10),
        ("gfx90a", "v_accvgpr_write_b32 a3, 0", 11),
    ],
)
def test_accumulators_are_written_over_sooner_than_read_on_gfx908(arch: str, touch: str, states: int) -> None:
    def is_clean(count: int) -> bool:
        lines = ["v_mfma_i32_16x16x16i8 a[0:3], v1, v2, a[0:3]", f"s_nop {count - 1}", touch, "s_endpgm"]
        return check(code(lines), arch).findings == ()

    assert is_clean(states)
    assert not is_clean(states - 1)
