"""What the costs of attention's gradients on AMD GPUs are counted in."""

from __future__ import annotations

from functools import partial

from tilewright.backends.hip.attention_rates import arch_numbers, rates_of

__all__ = ["arch_numbers", "rates"]

rates = partial(rates_of, "hip_attention_backward", ("fp16", "bf16"))
