"""FlexAttention on packed sequences, as its users write it: compiled, with a block mask of documents.

The block mask is made from the lengths: which blocks of keys a block of rows sees, and which of these wholly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

BLOCK = 128


def block_mask(lengths: Sequence[int], causal: bool, device: str) -> Any:
    """Rows see the keys of their own sequence, where `causal` those up to their own place."""
    from torch.nn.attention.flex_attention import BlockMask

    total = sum(lengths)
    document = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    begins = torch.tensor((0, *lengths)).cumsum(0)
    low = torch.arange(0, total, BLOCK)
    high = torch.clamp(low + BLOCK, max=total)
    first, last = document[low], document[high - 1]
    # Keys that some row of a block sees, and those that every row sees.
    some_end = high if causal else begins[last + 1]
    every_end = low + 1 if causal else begins[last + 1]
    some, every = _within(begins[first], some_end, low, high, False), _within(begins[last], every_end, low, high, True)
    every &= (first == last)[:, None]
    on_device = document.to(device)

    def seen(_batch: Any, _head: Any, row: Any, key: Any) -> Any:
        same = on_device[row] == on_device[key]
        return same & (row >= key) if causal else same

    return BlockMask.from_kv_blocks(
        *_listed(some & ~every, device), *_listed(every, device), BLOCK, seen, seq_lengths=(total, total)
    )


def _within(begin: Any, end: Any, low: Any, high: Any, wholly: bool) -> Any:
    """Of each block of rows and each of keys (low to high): whether its keys are among begin to end."""
    if wholly:
        return (low[None] >= begin[:, None]) & (high[None] <= end[:, None])
    return (high[None] > begin[:, None]) & (low[None] < end[:, None])


def _listed(blocks: Any, device: str) -> tuple[Any, Any]:
    """How many of each row, and which, those first."""
    counts = blocks.sum(1).to(torch.int32)
    order = torch.argsort((~blocks).to(torch.int8), dim=1, stable=True).to(torch.int32)
    return counts[None, None].to(device), order[None, None].contiguous().to(device)


def flex(q: Any, k: Any, v: Any, lengths: Sequence[int], causal: bool) -> Callable[[], Any]:
    """A call on packed rows x heads x elements; its result has heads outside."""
    from torch.nn.attention.flex_attention import flex_attention

    torch._dynamo.config.recompile_limit = 64
    compiled = torch.compile(flex_attention, dynamic=False)
    heads_first = [one.transpose(0, 1)[None] for one in (q, k, v)]
    mask = block_mask(lengths, causal, str(q.device))
    return lambda: compiled(*heads_first, block_mask=mask, enable_gqa=q.shape[1] != k.shape[1])
