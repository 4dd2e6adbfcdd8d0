"""A call of the gradients as users write it, as operands in their slots, scalars and attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.runtime.bindings.attention.calls import (
    NO_ARRAYS,
    layouts,
    longest,
    mask_and_bias,
    scalars,
    sinks,
    window_of,
)
from tilewright.runtime.bindings.attention.operands import bad, not_an_array, switch, whole_number
from tilewright.runtime.bindings.attention_backward.request import ASKED, Attributes
from tilewright.runtime.bindings.attention_backward.stages import NAMES
from tilewright.runtime.requests import Operands

_FORWARD_ONLY = {
    "block_table": "pages hold a cache, which nothing is trained with: give k and v as arrays, or packed with "
    "cu_seqlens_q and cu_seqlens_k",
    "q_scale": "fp8 has no gradients: give fp32, fp16 or bf16, and leave the scales out",
    "kv_scales": "fp8 has no gradients: give fp32, fp16 or bf16, and leave the scales out",
}


def requested_gradients(options: dict[str, Any]) -> tuple[str, ...]:
    """The gradients that are wanted besides dq, dk and dv: by name, or by an array for them."""
    return tuple(
        name for name in ASKED if options[name] is not None or switch(f"return_{name}", options[f"return_{name}"])
    )


def demand_no_pages(**options: Any) -> None:
    for name, value in options.items():
        if value is not None:
            raise bad("backward-forward-only", f"{name} is given to attention_backward", name, _FORWARD_ONLY[name])


def demand_forward(**needed: Any) -> None:
    """Refuse a call without what every gradient is computed from."""
    for name, value in needed.items():
        if value is None:
            remedy = "give what attention(..., return_lse=True) returned with out" if name == "lse" else f"give {name}"
            raise bad("array-type", f"{name} is None, and the gradients need it", "None", remedy)


def backward(
    dout: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, **options: Any
) -> tuple[Operands, Sequence[Any], tuple[Any, ...]]:
    """`tw.attention_backward`'s call."""
    demand_no_pages(**{name: options[name] for name in _FORWARD_ONLY})
    layout, kv_layout = layouts(options["layout"], options["kv_layout"], None)
    align, window = window_of(options["causal"], options["window"])
    sink, first = sinks(options["sink"], options["sink_tokens"])
    sink_tokens = 0 if first is None else whole_number("sink_tokens", first)
    if sink_tokens and window[0] < 0:
        message = f"sink_tokens is {sink_tokens} and no window bounds keys on the left: nothing reads it"
        raise bad("sink", message, sink_tokens, "leave sink_tokens out, or give window=(left, right)")
    mask, bias = mask_and_bias(options["mask"], options["bias"], options["attn_mask"])
    seed, numbers = scalars(options["scale"], options["softcap"], options["dropout_p"], options["seed"])
    placed = {
        "dout": dout, "q": q, "k": k, "v": v, "out": out, "lse": lse, "mask": mask, "bias": bias, "sink": sink,
        "seed": seed,
        **{name: options[name] for name in ("dlse", "alibi_slopes", "cu_seqlens_q", "cu_seqlens_k", "seqlens_q",
                                          "seqlens_k", "dq", "dk", "dv", *ASKED)},
    }  # fmt: skip
    for name, operand in placed.items():
        if isinstance(operand, NO_ARRAYS):
            raise not_an_array(name, operand)
    demand_forward(dout=dout, q=q, k=k, v=v, out=out, lse=lse)
    attributes = Attributes(
        layout=layout, kv_layout=kv_layout, align=align, window=window, sink_tokens=sink_tokens,
        scaled=options["scale"] is not None, softcap=options["softcap"] is not None,
        dropout=options["seed"] is not None,
        longest=(longest("max_seqlen_q", options["max_seqlen_q"]), longest("max_seqlen_k", options["max_seqlen_k"])),
        more_gradients=requested_gradients(options), deterministic=switch("deterministic", options["deterministic"]),
    )  # fmt: skip
    return tuple(placed.get(name) for name in NAMES), numbers, tuple(attributes)
