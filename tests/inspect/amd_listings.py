"""Listings of AMD device code, as llvm-objdump writes them, made of instructions without addresses."""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.inspect.disassembly import Instruction


def code(lines: Iterable[str], labels: dict[str, int] | None = None) -> list[Instruction]:
    """Instructions of four bytes each.  A line `name:` is a label, which a branch may name."""
    texts: list[str] = []
    places: dict[str, int] = dict(labels or {})
    for line in lines:
        text = line.strip()
        if text.endswith(":"):
            places[text[:-1]] = 4 * len(texts)
        elif text:
            texts.append(text)
    instructions = []
    for at, text in enumerate(texts):
        mnemonic, _, operands = text.partition(" ")
        if "branch" in mnemonic:
            operands = str((places[operands.strip()] - 4 * at - 4) // 4 & 0xFFFF)
        instructions.append(Instruction(4 * at, mnemonic, operands.strip()))
    return instructions


# A main loop as kernels have it: loads for the next turn, LDS, matrix instructions, edge code that whole tiles pass by.
MAIN_LOOP = """
    s_load_dwordx4 s[4:7], s[0:1], 0x0
    s_waitcnt lgkmcnt(0)
    v_mov_b32_e32 v0, 0
loop:
    global_load_dwordx4 v[20:23], v[2:3], off
    ds_read_b128 v[4:7], v0
    ds_read_b128 v[8:11], v0 offset:1024
    s_waitcnt lgkmcnt(0)
    v_mfma_f32_32x32x8_f16 a[0:15], v[4:5], v[8:9], a[0:15]
    v_mfma_f32_32x32x8_f16 a[0:15], v[6:7], v[10:11], a[0:15]
    s_cbranch_vccz whole
edge:
    global_load_ushort v30, v[2:3], off
    s_waitcnt vmcnt(0)
    ds_write_b16 v1, v30
    s_cbranch_scc1 edge
    s_branch after
whole:
    s_waitcnt vmcnt(0)
    ds_write_b128 v1, v[20:23]
after:
    s_waitcnt lgkmcnt(0)
    s_barrier
    s_cbranch_scc0 loop
    s_nop 15
    s_nop 15
    v_accvgpr_read_b32 v40, a0
    global_store_dword v[2:3], v40, off
    s_endpgm
""".splitlines()
