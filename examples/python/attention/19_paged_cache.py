"""A paged KV cache (vLLM): keys and values in pages of one pool, and a block table that says which pages a sequence
has.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
import _exact
from _common import check, normal, options, to_device, to_host

given = options(__doc__, page=16, spare=3)
rng = np.random.default_rng(17)
lengths = np.array([70, 5, 33], np.int32)
heads, heads_kv, head_dim, most = 8, 2, 64, -(-int(lengths.max()) // given.page)

pages = len(lengths) * most + given.spare
pool_k, pool_v = (normal(rng, pages, given.page, heads_kv, head_dim) for _ in range(2))
table = rng.permutation(pages)[: len(lengths) * most].reshape(len(lengths), most).astype(np.int32)  # in any order
q = normal(rng, len(lengths), 1, heads, head_dim)  # one new token for each sequence

o = to_host(tw.attention(*to_device(q, pool_k, pool_v), block_table=to_device(table), seqlens_k=to_device(lengths)))
for index, length in enumerate(lengths):
    k, v = (pool[table[index]].reshape(1, -1, heads_kv, head_dim)[:, :length] for pool in (pool_k, pool_v))
    check(f"sequence of {length} keys", o[index : index + 1], _exact.attention(q[index : index + 1], k, v).o)

# Heads before slots, as some servers store pages: the same call with its name.
swapped = [np.ascontiguousarray(pool.transpose(0, 2, 1, 3)) for pool in (pool_k, pool_v)]
other = tw.attention(
    *to_device(q, *swapped), block_table=to_device(table), seqlens_k=to_device(lengths), kv_layout="heads_first"
)
check("kv_layout heads_first", other, o.astype(np.float64))

# On the CPU a table that leads out of the pool is an error before anything is read (on GPUs: the setting check_tables).
table[0, 0] = pages
with tw.settings.override(check_tables=True):
    try:
        tw.attention(*to_device(q, pool_k, pool_v), block_table=to_device(table), seqlens_k=to_device(lengths))
    except tw.TilewrightError as error:
        print(f"refused: [{error.rule}] {error.message}")
    else:
        sys.exit("a page that does not exist was accepted")
