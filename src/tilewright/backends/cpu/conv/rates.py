"""What the cost of CPU kernels of convolution is counted in: `Rates` of cost.h.

Fitted to single-thread runs on an AVX-512 server core that starts one vector multiply-add a cycle; only their
proportions matter for a choice, never a report.
"""

from __future__ import annotations

RATES = {
    "cycles_per_second": 3.7e9,
    "call": 1500.0,  # cycles of any call
    "wake": 3500.0,  # more when a team is woken
    "memory": 6.0,  # bytes a cycle one core gets from memory
    "small": 1 << 19,  # multiply-adds below which a thread is not woken
}
