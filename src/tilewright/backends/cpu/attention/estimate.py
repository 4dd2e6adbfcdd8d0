"""How long attention takes on the CPU, about: enough to order kernels that nobody measured.

The model counts cycles of the busiest thread: vector multiply-adds with lanes that hold no row, exponentials, what is
packed, what a tile costs however short its keys, and bytes from memory.  The constants were fitted to single-thread
runs on an AVX-512 server core that starts one such multiply-add a cycle; only their proportions matter.
"""

from __future__ import annotations

from tilewright.arch import Arch
from tilewright.arch import arch as arch_by_name
from tilewright.backends.cpu.attention.schedules import CpuDecodeSchedule, CpuSchedule, CpuTiledSchedule
from tilewright.backends.cpu.attention.space import dot_step, lanes
from tilewright.dtypes import DTYPES
from tilewright.ops.attention.problem import AttentionProblem
from tilewright.ops.base import KernelSpec

CYCLES_PER_SECOND = 3.7e9
CALL, WAKE = 1500.0, 3500.0  # cycles of any call; more when a team is woken
MEMORY = 7.0  # bytes a cycle one core gets from memory
LOOP = 1.8  # cycles of a product in plain loops
WEIGHT, TOUCH = 15.0, 12.0  # a vector of scores made weights; met by a bias, a mask, a cap
TILE, TURN = 1500.0, 3.0  # a tile of rows; a vector of it turned around, there and back
PACK = 2.5  # a vector of a key or value packed
FOLD = 2.5  # a product of lanes summed up
BLOCK, ROW = 150.0, 60.0  # a block of keys of a decode kernel; and each row, or vector of rows, in it
NEAR = 1024  # bytes between keys that a decode kernel reads where they lie, though lanes are rows
SMALL = 1 << 19  # products below which a thread is not woken
ITEMS = 48  # below, keys are shared among threads


def _up(x: int, multiple: int) -> int:
    return -(-x // multiple) * multiple


def seconds(spec: KernelSpec, problem: AttentionProblem, threads: int) -> float:
    schedule: CpuSchedule = spec.schedule
    arch = arch_by_name(spec.arch)
    team = max(1, min(threads, problem.flops // 2 // SMALL + 1))
    if not problem.batch:
        cycles = 0.0  # no sequence, nothing to share out
    elif isinstance(schedule, CpuTiledSchedule):
        cycles = _tiled(schedule, problem, arch, team)
    elif isinstance(schedule, CpuDecodeSchedule):
        cycles = _decode(schedule, problem, arch, team)
    else:
        cycles = (LOOP * problem.flops / 2 + problem.bytes / 2) / max(1, threads)
    return (CALL + (WAKE if team > 1 else 0.0) + cycles) / CYCLES_PER_SECOND


def _touches(problem: AttentionProblem) -> int:
    return (problem.bias != "none") + bool(problem.mask_shape) + 3 * problem.softcap


def _tiled(schedule: CpuTiledSchedule, problem: AttentionProblem, arch: Arch, team: int) -> float:
    p, width, step = problem, lanes(arch), dot_step(problem.signature, arch)
    wide, group = schedule.warp_tile[0], p.heads_q // p.heads_kv
    rows = p.total_q / max(1, p.batch) if p.varlen else p.seqlen_q
    apart = p.bounded and rows >= wide
    vectors = group * _up(int(rows), width) // width if apart else _up(int(group * rows), width) // width
    tiles = p.batch * p.heads_kv * -(-vectors * width // wide)
    lines = p.batch * p.heads_kv * vectors  # vectors of rows
    seen = p.pairs / max(1, p.batch * p.heads_q * rows)  # keys a row sees
    walked = min(float(p.seqlen_k), seen + (wide / 2 if apart else rows if p.bounded else 0))
    each = (p.head_dim + _up(p.head_dim_v, schedule.warp_tile[1])) / step * 1.06 + WEIGHT + TOUCH * _touches(p)
    cycles = lines * walked * each + tiles * TILE + lines * (p.head_dim + p.head_dim_v) * TURN
    moved = p.batch * p.heads_kv * walked * (p.head_dim + p.head_dim_v) * DTYPES[p.dtype_kv].bytes / MEMORY
    if p.dtype_kv != "fp32" or p.pages != "none" or max(p.k_strides[1], p.v_strides[1]) > 512:
        shared = max(1, min(tiles // (4 * team), schedule.tile[0] // wide))  # tiles of a set, of one head of keys
        sets = p.batch * p.heads_kv * -(-tiles // (p.batch * p.heads_kv * shared))
        cycles += sets * walked * (p.head_dim + p.head_dim_v) / width * PACK
        cycles += moved  # what is packed is read first and multiplied then: few rows wait for memory
    cycles = max(cycles, moved)
    parts = max(1, min(ITEMS // max(1, tiles), p.seqlen_k // 512))
    return cycles / max(1, min(team, tiles * parts))


def _decode(schedule: CpuDecodeSchedule, problem: AttentionProblem, arch: Arch, team: int) -> float:
    p, width = problem, lanes(arch)
    rows, heads = max(1, p.seqlen_q * (p.heads_q // p.heads_kv)), p.batch * p.heads_kv
    keys = p.total_k / max(1, p.batch) if p.varlen and p.pages == "none" else p.seqlen_k
    seen = min(float(keys), p.pairs / max(1, p.batch * p.heads_q * p.seqlen_q) + p.seqlen_q)
    in_lanes = rows > width // 2
    each = _in_lanes(schedule, p, arch, rows) if in_lanes else _by_row(schedule, p, arch, rows)
    blocks = seen / schedule.tile[1] + 1
    cycles = heads * (seen * each + blocks * (BLOCK + ROW * (-(-rows // width) if in_lanes else rows)))
    cycles += heads * rows * (p.head_dim + p.head_dim_v) / width * TURN  # queries packed, results stored
    moved = heads * seen * (p.head_dim + p.head_dim_v) * DTYPES[p.dtype_kv].bytes
    parts = max(1, min(ITEMS // max(1, heads), int(seen) // 256))
    return max(cycles, moved / MEMORY) / max(1, min(team, heads * parts))


def _by_row(schedule: CpuDecodeSchedule, p: AttentionProblem, arch: Arch, rows: int) -> float:
    """Cycles of a key where lanes are elements of a head."""
    width, step = lanes(arch), dot_step(p.signature, arch)
    at_once = 1
    while at_once < min(rows, schedule.tile[0]):
        at_once *= 2
    narrow = 0.0 if p.dtype_kv == "fp32" else 2.0  # widening a vector of values, or pairing two
    dots = -(-p.head_dim // (width * step)) + FOLD
    values = -(-p.head_dim_v // (width * step)) * (1.0 + narrow / at_once)
    return _up(rows, at_once) * (dots + values + (WEIGHT + TOUCH * _touches(p)) / width)


def _in_lanes(schedule: CpuDecodeSchedule, p: AttentionProblem, arch: Arch, rows: int) -> float:
    """Cycles of a key where lanes are rows."""
    width, step = lanes(arch), dot_step(p.signature, arch)
    vectors, at_once = -(-rows // width), schedule.tile[0]
    narrow = 0.0 if p.dtype_kv == "fp32" else 2.0
    far = p.k_strides[1] * DTYPES[p.dtype_kv].bytes > NEAR
    packs = far or (step == 1 and p.dtype_kv != "fp32")
    dots = vectors * p.head_dim / step + (PACK * p.head_dim / (width * step) if packs else 0.0)
    values = -(-p.head_dim_v // (width * step)) * (_up(rows, at_once) + narrow * -(-rows // at_once))
    return dots + values + vectors * (WEIGHT + TOUCH * _touches(p))
