"""What a kernel of attention's gradients computes: its signature.  How is in the families' schedules.

dot       delta = rowsum(dout * out) - dlse of each row, lse in powers of two, the gradient of sink logits
grad      dq, dk, dv, and the gradients of a bias and of ALiBi's slopes
convert   fp32 accumulators that `grad` left, rounded to the type of dq, dk and dv

A signature says what a kernel HAS; what is a number of the call (lengths, strides, window, scale, whether sums have a
fixed order) is read at run time.  Every field is canonical: where a family does not read one it has its default, so
that equal kernels have equal signatures (`normalized`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilewright.dataclass import dataclass
from tilewright.errors import either
from tilewright.ops.attention_terms import BIASES, FLOATS, MASKS
from tilewright.ops.base import Violation

OP = "attention_backward"
FAMILIES = ("dot", "grad", "convert")
# Which results `grad` leaves in fp32 accumulators for `convert`; with none of them there is no such stage.
ACCUMULATES = ("none", "dq", "dkv", "all")
WORDS = {"family": FAMILIES, "mask": MASKS, "bias": BIASES, "accumulate": ACCUMULATES}
# Words of kernels' names for what a signature has, and the fields that say so.
SWITCHES = {"masked": "masked", "softcap": "softcap", "dropout": "dropout", "packed": "varlen", "dlse": "dlse",
            "dsink": "dsink", "dbias": "dbias", "dalibi": "dalibi"}  # fmt: skip
_ALIASES = {"bwd_dot_do_o": "dot", "dot_do_o": "dot", "bwd_dq_dk_dv": "grad", "dq_dk_dv": "grad", "bwd": "grad",
            "bwd_convert_dq": "convert", "convert_dq": "convert"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class AttentionBackwardSignature:
    """Kernels with equal signatures are interchangeable."""

    family: str
    dtype: str  # of q, k, v, out, dout, dq, dk and dv
    head_dim: int = 128  # the largest heads the kernel holds, of HEADS
    head_dim_v: int = 128
    mask: str = "none"
    bias: str = "none"
    dtype_aux: str = "fp32"  # of the bias tensor
    masked: bool = False  # a boolean mask
    softcap: bool = False
    dropout: bool = False
    varlen: bool = False  # rows and keys are packed, one sequence after another
    dlse: bool = False  # lse has a gradient too
    dsink: bool = False  # what is asked for besides
    dbias: bool = False
    dalibi: bool = False
    accumulate: str = "none"

    @property
    def features(self) -> tuple[str, ...]:
        """What it has beyond the plain softmax, in words."""
        words = [] if self.mask == "none" else [self.mask]
        if self.bias != "none":
            words.append("alibi" if self.bias == "alibi" else f"bias_{self.dtype_aux}")
        words += [word for word, name in SWITCHES.items() if getattr(self, name)]
        if self.accumulate != "none":
            words.append(f"accum_{self.accumulate}")
        return tuple(words)

    def label(self) -> str:
        return "_".join((self.family, self.dtype, f"h{self.head_dim}x{self.head_dim_v}", *self.features))


_SCORES = ("mask", "bias", "masked", "softcap", "dropout", "dbias", "dalibi")
# What each family does not read has its default.
_UNREAD: dict[str, tuple[str, ...]] = {
    "dot": (*_SCORES, "accumulate"),
    "grad": ("dlse", "dsink"),
    "convert": (*_SCORES, "dlse", "dsink"),
}
_PLAIN = AttentionBackwardSignature("grad", "fp32")


def normalized(signature: AttentionBackwardSignature) -> AttentionBackwardSignature:
    """The signature with defaults where its family reads nothing."""
    s = signature
    changed: dict[str, object] = {name: getattr(_PLAIN, name) for name in _UNREAD.get(s.family, ())}
    if s.family == "dot":
        changed["head_dim"] = s.head_dim_v  # it sees no queries
    s = replace(s, **changed)  # type: ignore[arg-type]
    return s if s.bias == "tensor" else replace(s, dtype_aux="fp32")


def normal_family(name: str, _arch: object = None) -> str:
    """The proper name of a family; one that is not known is let be."""
    folded = str(name).lower().replace("-", "_")
    return _ALIASES.get(folded, folded)


def signature_violations(signature: AttentionBackwardSignature) -> Iterator[Violation]:
    """Which types and features go together, on any target."""
    s = signature
    if s.dtype not in FLOATS:
        message = f"attention of {s.dtype} has no gradients"
        yield Violation("dtype-input", message, f"use {either(FLOATS)}")
        return
    aux = dict.fromkeys((s.dtype, "fp32"))
    if s.bias == "tensor" and s.dtype_aux not in aux:
        yield Violation("dtype-bias", f"a bias of {s.dtype_aux} with queries of {s.dtype}", f"use {either(tuple(aux))}")
    if s.dbias and s.bias != "tensor":
        yield Violation("dbias-bias", f"the gradient of a bias with bias {s.bias}", "use bias tensor, or leave it out")
    if s.dalibi and s.bias != "alibi":
        message = f"the gradient of ALiBi's slopes with bias {s.bias}"
        yield Violation("dalibi-bias", message, "use bias alibi, or leave it out")
    if s.family == "convert" and s.accumulate == "none":
        yield Violation("accumulate", "a convert kernel without accumulators", f"use {either(ACCUMULATES[1:])}")
