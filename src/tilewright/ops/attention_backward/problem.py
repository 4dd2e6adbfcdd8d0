"""The gradients of an attention as the user has them at run time: sizes, what a row sees, what is asked for."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any, ClassVar

from tilewright.dataclass import dataclass
from tilewright.dtypes import dtype as dtype_of
from tilewright.ops.attention_backward.spec import OP, AttentionBackwardSignature, normalized
from tilewright.ops.attention_terms import Sizes, fill_strides, head_class, seen_pairs, settle_window
from tilewright.ops.base import settle
from tilewright.renames import renamed_fields

OPERANDS = ("q", "k", "v", "o", "do", "dq", "dk", "dv")
PREPARED_ROWS = 128  # TW_ATTENTION_BACKWARD_ROWS of attention_backward_args.h
_SUMS_OF_DKV = ("dkv", "all")
_LIKE = {"o": "o", "do": "o", "dq": "q", "dk": "k", "dv": "v"}  # a gradient has the shape of what it is of


@renamed_fields({"dkv_parts": "dkv_splits"})
@dataclass(frozen=True, slots=True)
class AttentionBackwardProblem:
    """`seqlen_q` and `seqlen_k` are those of every sequence, or of the longest where they differ.

    Strides are in elements, in the order sequence, row, head; empty ones mean dense rows of heads ("bshd").  A window
    of -1 is unbounded.  With `family` empty it is the whole; `stage` gives the problem of one of its kernels.
    """

    op: ClassVar[str] = OP
    pages: ClassVar[str] = "none"  # a cache has no gradients
    page_lookup: ClassVar[str] = "none"

    batch: int
    heads_q: int
    seqlen_q: int
    seqlen_k: int
    head_dim: int
    heads_kv: int = 0  # as many as query heads where not said
    head_dim_v: int = 0  # as large as those of keys where not said
    family: str = ""
    dtype: str = "fp32"
    align: str = "top_left"  # where the window is laid; matters only where it is bounded
    window_left: int = -1
    window_right: int = -1
    sink_tokens: int = 0  # first keys that a window bounded on the left does not hide
    bias: str = "none"
    dtype_aux: str = ""  # of the bias tensor
    bias_shape: Sizes = ()  # sequences, heads, rows, keys; 1 where it repeats
    mask_shape: Sizes = ()  # of a boolean mask, likewise; empty where there is none
    softcap: bool = False
    dropout: bool = False
    varlen: bool = False
    total_q: int = 0  # of all packed sequences
    total_k: int = 0
    seqlens_q: bool = False  # sequences are shorter than their room, and a table says how long
    seqlens_k: bool = False
    dlse: bool = False
    dsink: bool = False
    dbias: bool = False
    dalibi: bool = False
    deterministic: bool = False
    accumulate: str = ""  # of a stage: which results `grad` leaves to `convert`; of the whole the backend chooses
    dkv_splits: int = 0  # of a stage: partial sums of dk and dv per KV head; 0: one per query head
    q_strides: Sizes = ()
    k_strides: Sizes = ()
    v_strides: Sizes = ()
    o_strides: Sizes = ()
    do_strides: Sizes = ()
    dq_strides: Sizes = ()
    dk_strides: Sizes = ()
    dv_strides: Sizes = ()
    aligned: bool = True  # operands begin at multiples of 16 bytes

    def __post_init__(self) -> None:
        settle(self)
        put = object.__setattr__
        if not self.varlen:
            for name in ("total_q", "total_k"):
                if getattr(self, name) > 0:
                    put(self, name, 0)
        for name, usual in (("heads_kv", self.heads_q), ("head_dim_v", self.head_dim), ("dtype_aux", "fp32")):
            if not getattr(self, name):
                put(self, name, usual)
        if self.bias == "tensor" and not self.bias_shape:
            put(self, "bias_shape", (1, 1, self.seqlen_q, self.seqlen_k))
        if self.accumulate not in _SUMS_OF_DKV or self.dkv_splits * self.heads_kv == self.heads_q:
            put(self, "dkv_splits", min(self.dkv_splits, 0))
        if self.varlen:
            for name, size in (("total_q", self.seqlen_q), ("total_k", self.seqlen_k)):
                if not getattr(self, name):
                    put(self, name, self.batch * size)
        settle_window(self)
        fill_strides(self, OPERANDS)

    # -- shapes ------------------------------------------------------------------------------------

    def shape(self, name: str) -> Sizes:
        """Sequences, rows and heads of an operand, and a head's elements."""
        like = _LIKE.get(name, name)
        size = self.head_dim if like in "qk" else self.head_dim_v
        if like in "qo":
            batch, rows = (1, self.total_q) if self.varlen else (self.batch, self.seqlen_q)
            return batch, rows, self.heads_q, size
        batch, keys = (1, self.total_k) if self.varlen else (self.batch, self.seqlen_k)
        return batch, keys, self.heads_kv, size

    def dense_strides(self, name: str) -> Sizes:
        _, rows, heads, size = self.shape(name)
        return (0 if self.varlen else rows * heads * size, heads * size, size)

    @property
    def lse_shape(self) -> Sizes:
        return (self.heads_q, self.total_q) if self.varlen else (self.batch, self.heads_q, self.seqlen_q)

    def prepared(self, name: str) -> Sizes:
        """Sequences, heads and rows of what has the layout of prepared rows: of queries ("q"), or of keys ("k")."""
        rows, total = (self.seqlen_q, self.total_q) if name == "q" else (self.seqlen_k, self.total_k)
        heads = self.heads_q if name == "q" else self.dkv_heads
        if self.varlen:
            return 1, heads, (total // PREPARED_ROWS + max(1, self.batch)) * PREPARED_ROWS
        return self.batch, heads, -(-rows // PREPARED_ROWS) * PREPARED_ROWS

    @property
    def dkv_heads(self) -> int:
        """Heads of dk and dv as `grad` writes them: partial sums have one a query head, or several a KV head."""
        if self.accumulate not in _SUMS_OF_DKV:
            return self.heads_kv
        return self.heads_kv * self.dkv_splits if self.dkv_splits else self.heads_q

    def parts(self, name: str) -> int:
        """Partial sums of a result that `convert` adds up."""
        return 1 if name == "dq" else self.dkv_heads // self.heads_kv

    # -- what a row sees ---------------------------------------------------------------------------

    @property
    def bounded(self) -> bool:
        return self.window_left >= 0 or self.window_right >= 0

    @property
    def mask(self) -> str:
        return "none" if not self.bounded else "generic" if self.sink_tokens else "window"

    @property
    def pairs(self) -> int:
        """Rows and keys that see each other, over sequences and heads; of different lengths about as many."""
        rows = self.total_q // max(1, self.batch) if self.varlen else self.seqlen_q
        keys = self.total_k // max(1, self.batch) if self.varlen else self.seqlen_k
        each = seen_pairs(rows, keys, self.align, self.window_left, self.window_right, self.sink_tokens)
        return self.batch * self.heads_q * each

    # -- stages ------------------------------------------------------------------------------------

    def stage(self, family: str, accumulate: str = "none", dkv_splits: int = 0) -> AttentionBackwardProblem:
        """The problem of one kernel: what it does not read has its default, so that it is measured once."""
        p = self
        if family == "grad":
            kind: dict[str, Any] = {"family": family, "accumulate": accumulate, "dkv_splits": dkv_splits}
            return replace(p, **kind, dlse=False, dsink=False, o_strides=())
        unread: dict[str, Any]
        plain: dict[str, Any] = {
            "family": family, "align": "top_left", "window_left": -1, "window_right": -1, "sink_tokens": 0,
            "bias": "none", "dtype_aux": "", "bias_shape": (), "mask_shape": (), "softcap": False, "dropout": False,
            "dbias": False, "dalibi": False,
        }  # fmt: skip
        if family == "convert":
            kept = {"dq": ("dq",), "dkv": ("dk", "dv"), "all": ("dq", "dk", "dv")}[accumulate]
            unread = {f"{name}_strides": () for name in OPERANDS if name not in kept}
            unread |= {"dlse": False, "dsink": False}
            return replace(p, **plain, **unread, accumulate=accumulate, dkv_splits=dkv_splits)
        unread = {f"{name}_strides": () for name in OPERANDS if name not in ("o", "do")}
        return replace(
            p, **plain, **unread, seqlen_k=0, total_k=0, heads_kv=p.heads_q, head_dim=p.head_dim_v, seqlens_k=False,
            accumulate="none", dkv_splits=0,
        )  # fmt: skip

    # -- the contract of a problem -----------------------------------------------------------------

    @property
    def signature(self) -> AttentionBackwardSignature:
        p = self
        return _signature(
            p.family or "grad", p.dtype, p.head_dim, p.head_dim_v, p.mask, p.bias, p.dtype_aux, bool(p.mask_shape),
            p.softcap, p.dropout, p.varlen, p.dlse, p.dsink, p.dbias, p.dalibi, p.accumulate or "none",
        )  # fmt: skip

    @property
    def flops(self) -> int:
        """Multiplications and additions of the five matrix products, of the pairs that see each other."""
        if self.family == "dot":
            return 2 * prod(self.shape("o"))
        if self.family == "convert":
            return sum(prod(self.shape(name)) for name in self.converted)
        return 2 * self.pairs * (3 * self.head_dim + 2 * self.head_dim_v)

    @property
    def converted(self) -> tuple[str, ...]:
        """The results that are left in fp32 accumulators."""
        results = {"dq": ("dq",), "dkv": ("dk", "dv"), "all": ("dq", "dk", "dv")}
        return results.get(self.accumulate, ())

    @property
    def bytes(self) -> int:
        """Each operand read once, each result written once."""
        element, prepared = dtype_of(self.dtype).bytes, 8 * prod(self.prepared("q"))
        if self.family == "dot":
            return 2 * prod(self.shape("o")) * element + prepared + 4 * prod(self.lse_shape) * (1 + self.dlse)
        if self.family == "convert":
            return sum(prod(self.shape(name)) * (4 * self.parts(name) + element) for name in self.converted)
        read = sum(prod(self.shape(name)) for name in ("q", "k", "v", "do")) * element + prepared
        written = sum(
            prod(self.shape(name)) * (4 * self.parts(name) if name in self.converted else element)
            for name in ("dq", "dk", "dv")
        )
        more = prod(self.bias_shape) * (dtype_of(self.dtype_aux).bytes + 4 * self.dbias) if self.bias_shape else 0
        more += prod(self.mask_shape) if self.mask_shape else 0
        if not self.family:
            more += 2 * prod(self.shape("o")) * element
        return read + written + more

    def dense(self) -> AttentionBackwardProblem:
        """The same problem with dense operands."""
        if self.aligned and all(getattr(self, f"{name}_strides") == self.dense_strides(name) for name in OPERANDS):
            return self
        return replace(self, **{f"{name}_strides": () for name in OPERANDS}, aligned=True)  # type: ignore[arg-type]

    def describe(self) -> str:
        heads = str(self.heads_q) if self.heads_q == self.heads_kv else f"{self.heads_q}/{self.heads_kv}"
        size = str(self.head_dim) if self.head_dim == self.head_dim_v else f"{self.head_dim}/{self.head_dim_v}"
        label = self.signature.label() if self.family else self.signature.label().removeprefix("grad_")
        text = f"attention_backward {label} b={self.batch} h={heads} s={self.seqlen_q}x{self.seqlen_k} d={size}"
        if self.bounded:
            text += f" window={self.window_left},{self.window_right} {self.align}"
        text += f" sinks={self.sink_tokens}" if self.sink_tokens else ""
        return text + (" deterministic" if self.deterministic else "")


@lru_cache(maxsize=4096)
def _signature(family: str, dtype: str, head_dim: int, head_dim_v: int, *features: Any) -> AttentionBackwardSignature:
    """One object a signature: problems of new sizes find the one that kernels are known by."""
    heads = head_class(head_dim), head_class(head_dim_v)
    return normalized(AttentionBackwardSignature(family, dtype, *heads, *features))
