"""The categories of the testing matrix of AMD's CK Tile dispatcher, forward: 16 of its smoke test, 15 of its full one.

Names and what each is about are theirs; sizes are ours, and so small in the smoke test that a CPU is quick with them.
An entry is a product of lists, as there; what has no forward meaning here (pairs without a kernel) there is none of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from tilewright.ops.engine import Values

Entry = Mapping[str, Sequence[Any]]  # lists by axis; `heads` are query heads and those of keys, `size` of q and v

_CAUSAL = ("", "-1,0")
_ALL_SIZES = ((32, 32), (64, 64), (80, 96), (96, 128), (128, 128), (160, 160), (192, 128), (192, 192), (256, 256))


def _entry(heads: Sequence[Any], rows: Sequence[Any], size: Sequence[Any] = ((128, 128),), **more: Any) -> Entry:
    """`rows` are rows, or pairs of rows and keys."""
    return {"batch": (1,), "heads": heads, "rows": rows, "size": size, "window": ("",), **more}


SMOKE: Mapping[str, Entry] = {
    "GQA_4to1_Prefill_Basic": _entry([(8, 2)], [128, 256], window=_CAUSAL),
    "Small_GQA_7to1_SubWarp": _entry([(7, 1)], [64, 127]),
    "MHA_H96_Irregular_Dim": _entry([(4, 4)], [128], [(96, 96)], window=_CAUSAL),
    "CK_Asymmetric_Hdim_Small": _entry([(2, 2)], [99], [(16, 64), (64, 24)]),
    "CK_Tiny_Sequences": _entry([(2, 1)], [1, 2, 3, 5], [(64, 64)], window=_CAUSAL),
    "CK_Asymmetric_Seqlen": _entry([(2, 1)], [(55, 256), (100, 51), (256, 64)], window=_CAUSAL),
    "CK_All_Hdim_Sweep": _entry([(2, 2)], [128], _ALL_SIZES),
    "CK_FP8_Basic": _entry([(4, 4)], [128], datatype=("fp8_e4m3",), q_scale=("tensor",), kv_scales=("tensor",)),
    "GQA_16to1_Large": _entry([(32, 2)], [256], window=_CAUSAL),
    "MQA_128to8_Decode": _entry([(128, 8)], [(1, 1024)], batch=(1, 4)),
    "MLA_Sparse_Decode": _entry([(16, 1)], [(1, 512)], [(576, 512)]),
    "Vision_Transformer_Shapes": _entry([(12, 12), (16, 16)], [197, 257], [(64, 64), (80, 80)]),
    "FP8_Varlen_Realistic": _entry([(8, 2)], [301], datatype=("fp8_e4m3",), varlen=(True,), batch=(3,),
                                   q_scale=("tensor",), kv_scales=("tensor",)),
    "Extreme_GQA_Ratios": _entry([(64, 1), (48, 1), (40, 8)], [33]),
    "Paged_Decode_Shapes": _entry([(32, 8)], [(1, 777), (4, 1024)], batch=(2,), pages=("strided",),
                                  page_size=(1, 16, 128), seqlens_k=(True,)),
    "Prefill_Odd_Lengths": _entry([(4, 2)], [101, 251, 509], window=_CAUSAL),
}  # fmt: skip

FULL: Mapping[str, Entry] = {
    "MHA_H256_High_LDS_Pressure": _entry([(16, 16)], [1024, 4096], [(256, 256)], window=_CAUSAL),
    "MQA_64to1_Broadcast": _entry([(64, 1)], [1024, 4096], window=_CAUSAL),
    "GQA_6to1_Irregular": _entry([(48, 8)], [1000, 3000], window=_CAUSAL),
    "MLA_H128xH576_Asymmetric": _entry([(128, 1)], [(1, 8192), (4, 32768)], [(576, 512)], batch=(1, 16)),
    "Asymmetric_Head_Dims_192_128": _entry([(128, 128)], [2048], [(192, 128)], window=_CAUSAL),
    "Asymmetric_Head_Dims_128_192": _entry([(32, 32)], [2048], [(128, 192)], window=_CAUSAL),
    "Diverse_Head_Dims_Sweep": _entry([(16, 16)], [2048], (*_ALL_SIZES, (8, 8), (40, 40), (72, 72), (104, 104))),
    "Stochastic_Execution_Dropout_Sweep": _entry([(16, 16)], [1024], dropout=(True,), window=_CAUSAL,
                                                 return_lse=(False, True)),
    "Padding_Boundary_Stress_Odd_Lengths": _entry([(8, 8)], [127, 129, 1023, 1025, (2047, 4097)], window=_CAUSAL),
    "Bias_Variants_Sweep": _entry([(16, 16)], [1024], bias=("tensor", "alibi"), window=_CAUSAL),
    "Extreme_Batch_Size_Stress": _entry([(8, 8)], [128], [(64, 64)], batch=(64, 512)),
    "Long_Sequence_Stress": _entry([(8, 1)], [16384, 65536], window=_CAUSAL),
    "Cross_Attention_Shapes": _entry([(16, 16)], [(1024, 77), (4096, 77), (77, 1500)], [(64, 64)], batch=(2,)),
    "CK_Benchmark_Standard": _entry([(16, 16)], [512, 1024, 2048, 4096, 8192], [(64, 64), (128, 128)], window=_CAUSAL),
    "CK_Benchmark_V3_Large": _entry([(64, 8)], [8192, 16384], window=_CAUSAL),
}  # fmt: skip


def problems(entry: Entry) -> Iterator[Values]:
    """The product of an entry's lists, as values of the op's options."""
    for chosen in product(*entry.values()):
        values = dict(zip(entry, chosen, strict=True))
        rows, (heads_q, heads_kv), (head_dim, head_dim_v) = values.pop("rows"), values.pop("heads"), values.pop("size")
        rows, keys = rows if isinstance(rows, tuple) else (rows, rows)
        if values.get("varlen"):
            values |= {"total_q": values["batch"] * rows * 2 // 3, "total_k": values["batch"] * keys * 2 // 3}
        yield {"heads_q": heads_q, "heads_kv": heads_kv, "seqlen_q": rows, "seqlen_k": keys, "head_dim": head_dim,
               "head_dim_v": head_dim_v, **values}  # fmt: skip


def category(entries: Mapping[str, Entry]) -> Iterator[Values]:
    for entry in entries.values():
        yield from problems(entry)
