"""Attention as the user has it at run time: sizes, what a row sees, strides, dtypes, pages of keys."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any, ClassVar

from tilewright.dataclass import dataclass
from tilewright.dtypes import dtype
from tilewright.ops.attention.spec import OP, SCALES, AttentionSignature, default_output, normalized
from tilewright.ops.attention.spec import RENAMED as RENAMED_IN_SIGNATURES
from tilewright.ops.attention_terms import Sizes, fill_strides, head_class, seen_pairs, settle_window
from tilewright.ops.base import settle
from tilewright.renames import renamed_fields

Put = Callable[[object, str, object], None]  # `object.__setattr__`: the fields of a frozen dataclass
OPERANDS = ("q", "k", "v", "o")
_FINENESS = {kind: order for order, kind in enumerate(SCALES)}


# Until version 0.2; JSON keeps them.
RENAMED = {
    **RENAMED_IN_SIGNATURES, "rows": "seqlen_q", "keys": "seqlen_k", "sink_keys": "sink_tokens",
    "total_rows": "total_q", "total_keys": "total_k", "lengths_q": "seqlens_q", "lengths_k": "seqlens_k",
    "scales_q": "q_scale", "scales_kv": "kv_scales", "splits": "num_splits", "rotary_size": "rotary_dim",
    "turns_q": "rotary_q",
}  # fmt: skip


@renamed_fields(RENAMED)
@dataclass(frozen=True, slots=True)
class AttentionProblem:
    """`seqlen_q` and `seqlen_k` are those of every sequence, or of the longest where they differ.

    Strides are in elements, in the order sequence (or page), row, head; empty ones mean dense rows of heads ("bshd").
    A window of -1 is unbounded.  A split or combine problem is a stage of a forward one; `num_splits` 0 means that the
    heuristic chooses.
    Of `append`, k and v are the cache, o is q after rotary embedding; new rows of k and v have strides of their own.
    """

    op: ClassVar[str] = OP

    batch: int
    heads_q: int
    seqlen_q: int  # queries of a sequence; of `append`: new rows
    seqlen_k: int  # of `append`: rows a sequence has room for
    head_dim: int
    heads_kv: int = 0  # as many as query heads where not said
    head_dim_v: int = 0  # as large as those of keys where not said
    family: str = "forward"
    dtype_q: str = "fp32"
    dtype_kv: str = ""
    dtype_out: str = ""
    align: str = "top_left"  # where the window is laid; matters only where it is bounded
    window_left: int = -1
    window_right: int = -1
    sink_tokens: int = 0  # first keys that a window bounded on the left does not hide
    bias: str = "none"
    dtype_aux: str = ""  # of the bias tensor or of rotary tables
    bias_shape: Sizes = ()  # sequences, heads, rows, keys; 1 where it repeats
    mask_shape: Sizes = ()  # of a boolean mask, likewise; empty where there is none
    softcap: bool = False
    dropout: bool = False
    return_lse: bool = False
    sink: bool = False
    varlen: bool = False
    total_q: int = 0  # of all packed sequences
    total_k: int = 0
    seqlens_q: bool = False  # sequences are shorter than their room, and a table says how long
    seqlens_k: bool = False
    pages: str = "none"
    page_lookup: str = "none"
    page_size: int = 0
    page_count: int = 0  # pages there are
    q_scale: str = "none"
    kv_scales: str = "none"
    scale_block: int = 0  # rows that share a scale, of scales by block
    num_splits: int = 0
    rotary: str = "none"
    rotary_dim: int = 0  # elements of a head under rotary embedding
    rotary_q: bool = False
    q_strides: Sizes = ()
    k_strides: Sizes = ()
    v_strides: Sizes = ()
    o_strides: Sizes = ()
    aligned: bool = True  # q, k, v and o begin at multiples of 16 bytes

    def __post_init__(self) -> None:
        settle(self)
        put = object.__setattr__
        self._forget(put)
        self._fill(put)
        settle_window(self)
        fill_strides(self, OPERANDS)

    def _forget(self, put: Put) -> None:
        """Numbers that nothing reads have their defaults: one problem has one form, one record and one pin."""
        # The rules speak of negative ones.
        if self.pages == "none":
            if self.page_size > 0:
                put(self, "page_size", 0)
            if self.page_count > 0:
                put(self, "page_count", 0)
        if self.total_q > 0 and not self.varlen:
            put(self, "total_q", 0)
        if self.total_k > 0 and (not self.varlen or self.pages != "none"):
            put(self, "total_k", 0)  # keys in pages are not packed
        if self.scale_block > 0 and self.q_scale != "block" and self.kv_scales != "block":
            put(self, "scale_block", 0)
        if self.rotary_dim > 0 and (self.family != "append" or self.rotary == "none"):
            put(self, "rotary_dim", 0)

    def _fill(self, put: Put) -> None:
        """What is not said has its default."""
        if not self.heads_kv:
            put(self, "heads_kv", self.heads_q)
        if not self.head_dim_v:
            put(self, "head_dim_v", self.head_dim)
        if not self.dtype_kv:
            put(self, "dtype_kv", self.dtype_q)
        if not self.dtype_out:
            put(self, "dtype_out", "fp32" if self.family == "split" else default_output(self.dtype_q))
        if not self.dtype_aux:
            put(self, "dtype_aux", "fp32")
        if self.bias == "tensor" and not self.bias_shape:
            put(self, "bias_shape", (1, 1, self.seqlen_q, self.seqlen_k))
        if self.varlen and self.family != "append":
            if not self.total_q:
                put(self, "total_q", self.batch * self.seqlen_q)
            if not self.total_k and self.pages == "none":
                put(self, "total_k", self.batch * self.seqlen_k)
        if self.rotary != "none" and not self.rotary_dim:
            put(self, "rotary_dim", self.head_dim)
        if self.pages != "none":
            if not self.page_size:
                put(self, "page_size", 16)
            if not self.page_count:
                put(self, "page_count", self.batch * self.sequence_pages)

    # -- shapes ------------------------------------------------------------------------------------

    @property
    def sequence_pages(self) -> int:
        """Pages of the longest sequence."""
        return -(-self.seqlen_k // max(1, self.page_size))

    def shape(self, name: str) -> Sizes:
        """Sequences (or pages), rows and heads of an operand, and a head's elements."""
        rotated = name == "o" and self.family == "append"
        size = self.head_dim if name in "qk" or rotated else self.head_dim_v
        if name in "qo":
            batch, rows = (1, self.total_q) if self.varlen else (self.batch, self.seqlen_q)
            return batch, rows, self.heads_q, size
        if self.pages != "none":
            return (self.page_count, self.page_size, self.heads_kv, size)
        packed = self.varlen and self.family != "append"
        batch, keys = (1, self.total_k) if packed else (self.batch, self.seqlen_k)
        return batch, keys, self.heads_kv, size

    def dense_strides(self, name: str) -> Sizes:
        _, rows, heads, size = self.shape(name)
        if name in "kv" and self.pages == "vectorised":
            return (rows * heads * size, 0, rows * size)
        batch = 0 if self.varlen and name in "qo" else 0 if self._packed_keys and name in "kv" else rows * heads * size
        return (batch, heads * size, size)

    @property
    def _packed_keys(self) -> bool:
        return self.varlen and self.pages == "none" and self.family != "append"

    @property
    def lse_shape(self) -> Sizes:
        return (self.heads_q, self.total_q) if self.varlen else (self.batch, self.heads_q, self.seqlen_q)

    # -- what a row sees ---------------------------------------------------------------------------

    @property
    def bounded(self) -> bool:
        return self.window_left >= 0 or self.window_right >= 0

    @property
    def mask(self) -> str:
        return "none" if not self.bounded else "generic" if self.sink_tokens else "window"

    @property
    def scales(self) -> str:
        """The finest of those of q, k and v."""
        finer = _FINENESS.get(self.kv_scales, 0) > _FINENESS.get(self.q_scale, 0)
        return self.kv_scales if finer else self.q_scale

    @property
    def pairs(self) -> int:
        """Rows and keys that see each other, over sequences and heads; of different lengths about as many."""
        rows = self.total_q // max(1, self.batch) if self.varlen else self.seqlen_q
        keys = self.total_k // max(1, self.batch) if self._packed_keys else self.seqlen_k
        return self.batch * self.heads_q * seen_pairs(rows, keys, self.align, self.window_left, self.window_right,
                                                      self.sink_tokens)  # fmt: skip

    # -- the contract of a problem -----------------------------------------------------------------

    @property
    def signature(self) -> AttentionSignature:
        global _last_signed
        last, signature = _last_signed  # a selection asks more than once
        if last is self and signature is not None:
            return signature
        p = self
        signature = _signature(
            p.family, p.dtype_q, p.dtype_kv, p.dtype_out, p.head_dim, p.head_dim_v, p.mask, p.bias, p.dtype_aux,
            bool(p.mask_shape), p.softcap, p.dropout, p.return_lse, p.sink, p.varlen, p.pages, p.page_lookup, p.scales,
            p.rotary,
        )  # fmt: skip
        _last_signed = self, signature
        return signature

    @property
    def flops(self) -> int:
        """Multiplications and additions of both matrix products, of the pairs that see each other."""
        if self.family == "append":
            return 3 * self.batch * self.seqlen_q * (self.heads_kv + self.heads_q * self.rotary_q) * self.rotary_dim
        if self.family == "combine":
            return 2 * self.num_splits * prod(self.shape("o"))
        return 2 * self.pairs * (self.head_dim + self.head_dim_v)

    @property
    def bytes(self) -> int:
        """Each operand read once, the result written once; of pages those that hold keys."""
        element = {"q": dtype(self.dtype_q).bytes, "o": dtype(self.dtype_out).bytes}
        element["k"] = element["v"] = dtype(self.dtype_kv).bytes
        parts = 4 * self.num_splits * prod(self.shape("o"))
        if self.family == "combine":
            return parts + prod(self.shape("o")) * element["o"]
        if self.family == "append":
            new = self.batch * self.seqlen_q * self.heads_kv * (self.head_dim + self.head_dim_v)
            rotated = 2 * prod(self.shape("q")) * element["q"] if self.rotary_q else 0
            return new * (element["q"] + element["k"]) + rotated
        keys = self.total_k if self._packed_keys else self.batch * self.seqlen_k
        read = keys * self.heads_kv * (self.head_dim + self.head_dim_v) * element["k"]
        read += prod(self.shape("q")) * element["q"]
        written = parts if self.family == "split" else prod(self.shape("o")) * element["o"]
        more = prod(self.bias_shape) * dtype(self.dtype_aux).bytes if self.bias_shape else 0
        more += prod(self.mask_shape) if self.mask_shape else 0
        return read + written + more

    def dense(self) -> AttentionProblem:
        """The same problem with dense operands."""
        if self.aligned and all(getattr(self, f"{name}_strides") == self.dense_strides(name) for name in OPERANDS):
            return self
        return replace(self, q_strides=(), k_strides=(), v_strides=(), o_strides=(), aligned=True)

    def part(self, splits: int) -> AttentionProblem:
        """The stage that makes `splits` parts of the keys; what it writes is dense."""
        return replace(self, family="split", num_splits=splits, dtype_out="fp32", return_lse=False, o_strides=())

    def combined(self, splits: int) -> AttentionProblem:
        """The stage that puts parts together."""
        return AttentionProblem(
            self.batch, self.heads_q, self.seqlen_q, 0, self.head_dim_v, family="combine", dtype_q="fp32",
            dtype_out=self.dtype_out, return_lse=self.return_lse, varlen=self.varlen, total_q=self.total_q,
            seqlens_q=self.seqlens_q, num_splits=splits, o_strides=self.o_strides,
        )  # fmt: skip

    def describe(self) -> str:
        heads = str(self.heads_q) if self.heads_q == self.heads_kv else f"{self.heads_q}/{self.heads_kv}"
        size = str(self.head_dim) if self.head_dim == self.head_dim_v else f"{self.head_dim}/{self.head_dim_v}"
        text = f"attention {self.signature.label()} b={self.batch} h={heads} s={self.seqlen_q}x{self.seqlen_k} d={size}"
        if self.bounded:
            text += f" window={self.window_left},{self.window_right} {self.align}"
        for name, value in (("sinks", self.sink_tokens), ("splits", self.num_splits), ("page", self.page_size)):
            text += f" {name}={value}" if value else ""
        return text


@lru_cache(maxsize=4096)
def _signature(
    family: str, dtype_q: str, dtype_kv: str, dtype_out: str, head_dim: int, head_dim_v: int, *features: Any
) -> AttentionSignature:
    """One object a signature: problems of new sizes find the one that kernels are known by."""
    heads = head_class(head_dim), head_class(head_dim_v)
    return normalized(AttentionSignature(family, dtype_q, dtype_kv, dtype_out, *heads, *features))


# The problem whose signature was asked for last, and that; read and replaced as one.
_last_signed: tuple[AttentionProblem | None, AttentionSignature | None] = (None, None)
