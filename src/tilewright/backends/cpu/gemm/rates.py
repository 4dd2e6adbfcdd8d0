"""What the cost of CPU kernels of GEMM is counted in: `Rates` of cost.h.

Fitted to single-thread runs on an AVX-512 server core (docs/architecture.md); only their proportions matter for a
choice, never a report.
"""

from __future__ import annotations

RATES = {
    "cycles_per_second": 2.8e9,
    "call": 1500.0,  # cycles of any call
    "wake": 3500.0,  # more when a team is woken
    "memory": 8.5,  # bytes a cycle one core gets from memory
    # Cycles a word of A: rows copied (from beyond the cache), columns turned.
    "pack_a": 0.15,
    "pack_a_far": 0.8,
    "turn_a": 0.5,
    # Of B in the second-level cache, beyond it, and turned.
    "pack_b_near": 0.35,
    "pack_b_far": 1.05,
    "turn_b": 0.45,
    # Cycles a sum: the lanes of one added up, and stored across rows.
    "fold": 11.5,
    "fold_turned": 2.7,
    "ways": 16,  # of a second-level cache of today
    "smallest_share": 1 << 19,  # multiply-adds below which a thread is not woken, as in packed/kernel.h
}
