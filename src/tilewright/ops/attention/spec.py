"""What an attention kernel computes: its signature.  How is in the families' schedules.

forward   o = dropout(softmax(s)) v, s = cap(scale q.k) + bias, of the keys a row sees; and its lse
split     the same of parts of the keys, beside each other in fp32, with an lse each
combine   parts put together
append    new keys and values written behind those of a cache, k (and q) rotated by their places

A signature says what a kernel HAS; what is a number of the call (lengths, strides, window, page size, scale) is read at
run time.  What a schedule cannot take of these its `limits` says.  Every field is canonical: where a family does not
read one it has its default, so that equal kernels have equal signatures (`normalized`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilewright.dataclass import dataclass
from tilewright.errors import either
from tilewright.ops.attention_terms import BIASES, FLOATS, MASKS
from tilewright.ops.base import Violation
from tilewright.renames import renamed_fields

OP = "attention"
FAMILIES = ("forward", "split", "combine", "append")
FP8 = ("fp8_e4m3", "fp8_e4m3fnuz")  # the second where hardware multiplies no other
INPUTS = (*FLOATS, *FP8)
OUTPUTS = FLOATS
PAGES = ("none", "strided", "vectorised")
LOOKUPS = ("none", "table", "indices")
SCALES = ("none", "tensor", "head", "block")
ROTARIES = ("none", "interleaved", "half")
WORDS = {"family": FAMILIES, "mask": MASKS, "bias": BIASES, "pages": PAGES, "page_lookup": LOOKUPS, "scales": SCALES,
         "rotary": ROTARIES}  # fmt: skip

_ALIASES = {"fwd": "forward", "fwd_splitkv": "split", "splitkv": "split", "fwd_splitkv_combine": "combine",
            "fwd_appendkv": "append", "appendkv": "append", "fwd_pagedkv": "forward", "pagedkv": "forward",
            "batch_prefill": "forward"}  # fmt: skip


# Words of kernels' names for what a signature has, and the fields that say so.
SWITCHES = {"masked": "masked", "softcap": "softcap", "dropout": "dropout", "lse": "return_lse", "sink": "sink",
             "packed": "varlen"}  # fmt: skip
# Until version 0.2; JSON keeps them, and with it the digests of kernels.
RENAMED = {"head_qk": "head_dim", "head_v": "head_dim_v", "lse": "return_lse", "packed": "varlen",
           "lookup": "page_lookup"}  # fmt: skip


@renamed_fields(RENAMED)
@dataclass(frozen=True, slots=True)
class AttentionSignature:
    """Kernels with equal signatures are interchangeable."""

    family: str
    dtype_q: str
    dtype_kv: str
    dtype_out: str  # of a split kernel: fp32
    head_dim: int = 128  # the largest heads the kernel holds, of HEADS
    head_dim_v: int = 128
    mask: str = "none"
    bias: str = "none"
    dtype_aux: str = "fp32"  # of the bias tensor, or of rotary tables
    masked: bool = False  # a boolean mask
    softcap: bool = False
    dropout: bool = False
    return_lse: bool = False
    sink: bool = False  # a learned logit a head
    varlen: bool = False  # rows (and keys, unless in pages) are packed, one sequence after another
    pages: str = "none"
    page_lookup: str = "none"
    scales: str = "none"  # the finest of those of q, k and v
    rotary: str = "none"

    @property
    def auxiliary(self) -> bool:
        """Whether it only moves or joins what others compute: plain loops are then a kernel like any other."""
        return self.family in ("append", "combine")

    @property
    def features(self) -> tuple[str, ...]:
        """What it has beyond the plain softmax, in words."""
        words = [] if self.mask == "none" else [self.mask]
        if self.bias != "none":
            words.append("alibi" if self.bias == "alibi" else f"bias_{self.dtype_aux}")
        words += [word for word, name in SWITCHES.items() if getattr(self, name)]
        if self.pages != "none":
            words.append(f"pages_{self.pages}_{self.page_lookup}")
        if self.scales != "none":
            words.append(f"scales_{self.scales}")
        if self.rotary != "none":
            words.append(f"rotary_{self.rotary}_{self.dtype_aux}")
        return tuple(words)

    def label(self) -> str:
        types = self.dtype_q if self.dtype_kv == self.dtype_q else f"{self.dtype_q}_{self.dtype_kv}"
        if self.dtype_out != self.dtype_q:
            types += f"_to_{self.dtype_out}"
        return "_".join((self.family, types, f"h{self.head_dim}x{self.head_dim_v}", *self.features))


# What each family does not read has its default.
_UNREAD: dict[str, tuple[str, ...]] = {
    "forward": ("rotary",),
    "split": ("rotary", "return_lse"),
    "combine": ("mask", "bias", "masked", "softcap", "dropout", "sink", "pages", "page_lookup", "scales", "rotary"),
    "append": ("mask", "bias", "masked", "softcap", "dropout", "return_lse", "sink", "varlen", "scales"),
}
_PLAIN = AttentionSignature("forward", "fp32", "fp32", "fp32")


def normalized(signature: AttentionSignature) -> AttentionSignature:
    """The signature with defaults where its family reads nothing."""
    s = signature
    changed: dict[str, object] = {name: getattr(_PLAIN, name) for name in _UNREAD.get(s.family, ())}
    if s.family == "split":
        changed["dtype_out"] = "fp32"
    if s.family == "combine":
        changed |= {"dtype_q": "fp32", "dtype_kv": "fp32", "head_dim": s.head_dim_v}
    if s.family == "append":
        changed["dtype_out"] = s.dtype_kv
    s = replace(s, **changed)  # type: ignore[arg-type]
    if s.bias != "tensor" and s.rotary == "none":
        s = replace(s, dtype_aux="fp32")
    return s if s.pages != "none" else replace(s, page_lookup="none")


def default_output(dtype: str) -> str:
    """What comes out when nobody says: the type of q, bf16 for fp8."""
    return dtype if dtype in OUTPUTS else "bf16"


def normal_family(name: str, _arch: object = None) -> str:
    """The proper name of a family; one that is not known is let be."""
    folded = str(name).lower().replace("-", "_")
    return _ALIASES.get(folded, folded)


def signature_violations(signature: AttentionSignature) -> Iterator[Violation]:
    """Which types and features go together, on any target."""
    s = signature
    if s.family == "combine":
        if s.dtype_out not in OUTPUTS:
            yield Violation("dtype-output", f"attention cannot give {s.dtype_out}", f"use {', '.join(OUTPUTS)}")
        return
    if s.dtype_q not in INPUTS:
        yield Violation("dtype-input", f"{s.dtype_q} is not a type of q", f"use {', '.join(INPUTS)}")
        return
    if s.family == "append":
        caches = (s.dtype_q, *(FP8 if s.dtype_q in FLOATS else ()))
        if s.dtype_kv not in caches:
            message = f"new keys of {s.dtype_q} cannot be appended to a cache of {s.dtype_kv}"
            yield Violation("dtype-mix", message, f"use a cache of {either(caches)}, or convert the rows")
        return
    allowed = (s.dtype_q, *FP8) if s.dtype_q in ("fp16", "bf16") else (s.dtype_q,)
    if s.dtype_kv not in allowed:
        message = f"keys of {s.dtype_kv} do not go with queries of {s.dtype_q}"
        yield Violation("dtype-mix", message, f"use {either(allowed)}")
    if s.dtype_out not in OUTPUTS:
        yield Violation("dtype-output", f"attention cannot give {s.dtype_out}", f"use {', '.join(OUTPUTS)}")
    if s.scales != "none" and not {s.dtype_q, s.dtype_kv} & set(FP8):
        message = f"scales of {s.scales} with elements of {s.dtype_q}"
        yield Violation("scales-dtype", message, "only fp8 has scales; give scale= instead")
    aux = (s.dtype_q, "fp32") if s.dtype_q in FLOATS else ("fp32",)
    if s.bias == "tensor" and s.dtype_aux not in aux:
        yield Violation("dtype-bias", f"a bias of {s.dtype_aux} with queries of {s.dtype_q}", f"use {either(aux)}")
    if (s.pages == "none") != (s.page_lookup == "none"):
        yield Violation("page-lookup", f"pages {s.pages} with lookup {s.page_lookup}", "use both, or none")
