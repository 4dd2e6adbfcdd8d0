"""The problem builder of AMD's CK Tile dispatcher for attention, over our problems.

    from tilewright.compat.fmha import FmhaProblemBuilder

    problem = (FmhaProblemBuilder().api_family("fwd").data_type("bf16").dims(128, 128, 2, 4096, 4096).nheads(32, 8)
               .mask_type("top_left").lse(True).build())

Setters, their words, numbers and aliases are theirs.  A causal mask without a window is causal (theirs masks nothing
then).  The family bwd builds the problem of gradients, whose stages `tilewright.ops` has; a kernel family of it builds
one stage.  What there is no kernel for is an error of `build`, with what would work.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from tilewright.backends.hip.attention.ck_tile.instance import WORDS, canonical
from tilewright.errors import ProblemError, nearest
from tilewright.ops import op as op_by_name
from tilewright.ops.attention import AttentionProblem
from tilewright.ops.attention_backward import AttentionBackwardProblem

__all__ = ["FmhaProblemBuilder"]

_FAMILIES = ("fwd", "fwd_pagedkv", "fwd_splitkv", "fwd_appendkv", "batch_prefill", "bwd")
_STAGES = {"bwd_dot_do_o": "dot", "bwd_dq_dk_dv": "grad", "bwd_convert_dq": "convert"}
_KERNELS = (*_FAMILIES[:3], "fwd_splitkv_combine", *_FAMILIES[3:5], *_STAGES)
# Setters that only forward passes have a meaning for, by a field each sets, and what it is called.
_FORWARD_ONLY = {"pages": "pages of a cache", "rotary": "rotary embedding", "q_scale": "scales of q, k and v",
                 "num_splits": "splits of keys"}  # fmt: skip
# Element types of q, k and v, and of the result.
_TYPES = {
    **{dtype: (dtype, dtype) for dtype in ("fp32", "fp16", "bf16")},
    "fp8": ("fp8_e4m3", "bf16"),
    **{f"fp8{dtype}": ("fp8_e4m3", dtype) for dtype in ("fp16", "bf16", "fp32")},
}
_OLD_FP8 = ("gfx90a", "gfx942")  # whose fp8 has the other bias
_SCALES = {"no": ("none", "none"), "pertensor": ("tensor", "tensor"), "blockscale": ("block", "block"),
           "kv_blockscale": ("none", "block")}  # fmt: skip
_ROTARY = {"none": "none", "inter": "interleaved", "half": "half"}
_BACKWARD = {field.name for field in fields(AttentionBackwardProblem)}
SCALE_BLOCK = 128  # rows of a block of theirs


def _bad(rule: str, message: str, value: object, remedy: str) -> ProblemError:
    return ProblemError(message, rule=rule, value=value, remedy=remedy)


class FmhaProblemBuilder:
    """A problem by setters that can be chained; `build` says what is missing."""

    def __init__(self) -> None:
        self._api, self._arch, self._type = "fwd", "gfx942", "fp16"
        self._fields: dict[str, Any] = {}
        self._mask, self._group, self._longest = "no", False, (0, 0)
        self._window: tuple[int, int] | None = None
        self._bwd = {"dbias": False, "deterministic": False}
        self._refused: list[tuple[str, str]] = []

    # -- what it is --------------------------------------------------------------------------------

    def api_family(self, name: str) -> FmhaProblemBuilder:
        self._api = self._known("family", name, _FAMILIES)
        return self

    def kernel_family(self, name: str) -> FmhaProblemBuilder:
        """Of one stage: the combination of parts is one of its own."""
        self._api = self._known("family", name, _KERNELS)
        return self

    def gfx_arch(self, name: str) -> FmhaProblemBuilder:
        self._arch = str(name)
        return self

    def data_type(self, name: str) -> FmhaProblemBuilder:
        self._type = self._known("data_type", name, tuple(_TYPES))
        return self

    def dims(self, hdim_q: int, hdim_v: int, batch: int, seqlen_q: int, seqlen_k: int) -> FmhaProblemBuilder:
        return self._set(head_dim=hdim_q, head_dim_v=hdim_v, batch=batch, seqlen_q=seqlen_q, seqlen_k=seqlen_k)

    def nheads(self, q: int, k: int) -> FmhaProblemBuilder:
        return self._set(heads_q=q, heads_kv=k)

    # -- what scores meet --------------------------------------------------------------------------

    def mask_type(self, kind: str | int) -> FmhaProblemBuilder:
        self._mask = self._word("mask", kind)
        return self

    def window(self, left: int, right: int) -> FmhaProblemBuilder:
        """Keys before and behind a row's own, -1 for no bound; of a generic mask CK Tile's (y, x)."""
        self._window = (left, right)
        return self

    def sink_size(self, keys: int) -> FmhaProblemBuilder:
        return self._set(sink_tokens=keys)

    def sink(self, on: bool = True) -> FmhaProblemBuilder:
        return self._set(sink=on)

    def bias_type(self, kind: str | int) -> FmhaProblemBuilder:
        bias = self._word("bias", kind)
        return self._set(bias={"no": "none", "bias": "tensor"}.get(bias, bias))

    def logits_soft_cap(self, on: bool = True) -> FmhaProblemBuilder:
        return self._set(softcap=on)

    def dropout(self, on: bool = True) -> FmhaProblemBuilder:
        return self._set(dropout=on)

    def lse(self, on: bool = True) -> FmhaProblemBuilder:
        return self._set(return_lse=on)

    def qscale_type(self, kind: str | int) -> FmhaProblemBuilder:
        q, kv = _SCALES[self._word("qscale", kind)]
        return self._set(q_scale=q, kv_scales=kv, scale_block=SCALE_BLOCK if "block" in (q, kv) else 0)

    def fp8_static_quant(self, on: bool = True) -> FmhaProblemBuilder:
        return self.qscale_type("pertensor") if on else self

    # -- layout ------------------------------------------------------------------------------------

    def group_mode(self, on: bool = True) -> FmhaProblemBuilder:
        self._group = on
        return self

    def max_seqlen(self, q: int, k: int) -> FmhaProblemBuilder:
        self._longest = (q, k)
        return self

    def paged_kv(self, on: bool = True) -> FmhaProblemBuilder:
        return self._set(pages="strided", page_lookup="table", seqlens_k=True) if on else self

    def kv_cache(self, layout: str | int, lookup: str | int, page_size: int = 1) -> FmhaProblemBuilder:
        words = self._word("kv_memory_layout", layout), self._word("kv_lookup_table", lookup)
        by_table = words[1] == "vllm"
        return self._set(
            pages="vectorised" if words[0] == "vectorized" else "strided",
            page_lookup="table" if by_table else "indices",
            seqlens_k=by_table, page_size=page_size,
        )  # fmt: skip

    def rope_type(self, kind: str | int) -> FmhaProblemBuilder:
        return self._set(rotary=_ROTARY[self._word("rope", kind)])

    def num_splits(self, count: int) -> FmhaProblemBuilder:
        """Below 1: by the heuristic."""
        return self._set(num_splits=max(0, count))

    def v_rowmajor(self, on: bool = True) -> FmhaProblemBuilder:
        return self._no("columns of v side by side", not on, "give v with contiguous rows")

    def skip_min_seqlen_q(self, on: bool = True) -> FmhaProblemBuilder:
        return self._no("sequences that are skipped", on, "leave them out of the tables")

    def bwd_flags(self, dbias: bool, store_randval: bool, deterministic: bool) -> FmhaProblemBuilder:
        self._bwd = {"dbias": dbias, "deterministic": deterministic}
        return self._no("random numbers that are stored", store_randval, "leave them out: they follow from the seed")

    # -- the problem -------------------------------------------------------------------------------

    def build(self) -> AttentionProblem | AttentionBackwardProblem:
        for what, remedy in self._refused:
            raise _bad("fmha-feature", f"{what}: there is no kernel for it", what, remedy)
        missing = [name for name in ("batch", "head_dim", "heads_q") if self._fields.get(name, 0) < 1]
        if missing:
            raise _bad("fmha-sizes", f"{', '.join(missing)} must be over 0", missing, "call dims and nheads")
        if self._group and self._longest[0] < 1:
            raise _bad("fmha-group", "group mode without the longest sequence", self._longest, "call max_seqlen(q, k)")
        problem = self._backward() if self._api in ("bwd", *_STAGES) else self._forward()
        for broken in op_by_name(problem.op).problem_violations(problem, self._arch):
            raise _bad(broken.rule, f"{problem.describe()}: {broken.message}", problem, broken.remedy)
        return problem

    def _forward(self) -> AttentionProblem:
        for name, wanted in self._bwd.items():
            if wanted:
                raise _bad("fmha-feature", f"{name} of a forward pass", name, 'call api_family("bwd")')
        return AttentionProblem(**{**self._fields, **self._typed(), **self._masked(), **self._laid()})

    def _backward(self) -> AttentionBackwardProblem:
        """The whole, or one of its kernels: with dq in fp32 where there is no other work for `convert`."""
        fields_set = dict(self._fields)
        for name, what in _FORWARD_ONLY.items():
            if fields_set.get(name, "none") not in ("none", 0):
                raise _bad("fmha-feature", f"gradients with {what}", name, "build a forward problem")
        if not fields_set.pop("return_lse", False):
            raise _bad("fmha-lse", "gradients without the lse of the forward pass", "lse", "call lse()")
        if self._type not in ("fp32", "fp16", "bf16"):
            raise _bad("fmha-data-type", f"gradients of {self._type}", self._type, "use fp32, fp16 or bf16")
        has = {name: value for name, value in fields_set.items() if name in _BACKWARD}
        laid = {
            **self._masked(),
            **self._laid(),
            **self._bwd,
            "dtype": self._type,
            "dsink": fields_set.get("sink", False),
        }
        whole = AttentionBackwardProblem(**{**has, **laid})
        if self._api == "bwd":
            return whole
        stages = op_by_name(whole.op).stages(whole, self._arch)
        wanted = _STAGES[self._api]
        stage = next((stage for stage in stages if stage.family == wanted), None)
        return whole.stage(wanted, "dq") if stage is None else stage

    def _typed(self) -> dict[str, Any]:
        inputs, output = _TYPES[self._type]
        if inputs == "fp8_e4m3" and self._arch in _OLD_FP8:
            inputs = "fp8_e4m3fnuz"
        family = {"fwd_appendkv": "append", "fwd_splitkv_combine": "combine"}.get(self._api, "forward")
        if family == "append":
            return {"family": family, "dtype_q": inputs, "seqlens_k": True}
        return {"family": family, "dtype_q": "fp32" if family == "combine" else inputs, "dtype_out": output}

    def _masked(self) -> dict[str, Any]:
        if self._mask == "no":
            if self._window is not None:
                raise _bad("fmha-window", "a window and no mask", self._window, "call mask_type too")
            return {}
        if self._window is None and self._mask == "generic":
            raise _bad("fmha-window", "a generic mask without its window", "generic", "call window(y, x)")
        left, right = self._window or (-1, 0)
        if self._mask == "generic":
            left, right = left - 1, right - 1
        align = "bottom_right" if self._mask == "bottom_right" else "top_left"
        return {"window_left": left, "window_right": right, "align": align}

    def _laid(self) -> dict[str, Any]:
        if self._api in ("fwd_pagedkv", "batch_prefill") and self._fields.get("pages", "none") == "none":
            raise _bad("fmha-pages", f"{self._api} without pages", self._api, "call paged_kv() or kv_cache(...)")
        if not self._group:
            return {}
        batch = self._fields["batch"]
        rows, keys = self._fields["seqlen_q"], self._fields["seqlen_k"]
        return {"varlen": True, "total_q": batch * rows, "total_k": 0 if "pages" in self._fields else batch * keys,
                "seqlen_q": self._longest[0], "seqlen_k": self._longest[1] or keys}  # fmt: skip

    # -- words -------------------------------------------------------------------------------------

    def _set(self, **fields: Any) -> FmhaProblemBuilder:
        self._fields |= fields
        return self

    def _no(self, what: str, wanted: bool, remedy: str) -> FmhaProblemBuilder:
        if wanted:
            self._refused.append((what, remedy))
        return self

    def _word(self, kind: str, word: str | int) -> str:
        known = WORDS[kind]
        if isinstance(word, int):
            word = known[word] if 0 <= word < len(known) else str(word)
        return self._known(kind, canonical(kind, word), known)

    def _known(self, kind: str, name: str, known: tuple[str, ...]) -> str:
        if name not in known:
            raise _bad(f"fmha-{kind.replace('_', '-')}", f"{name!r} is no {kind}", name, nearest(name, list(known)))
        return name
