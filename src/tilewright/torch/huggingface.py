"""An attention implementation for Hugging Face's models: `attn_implementation="tilewright"`.

    import tilewright.torch.huggingface as tilewright_hf
    tilewright_hf.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="tilewright")

It takes masks and caches as "sdpa" does; grouped heads are never repeated.  Soft caps and sinks are computed too.
"""

from __future__ import annotations

from typing import Any

from tilewright.torch.required import torch
from tilewright.torch.sdpa import attention, finite_rows, scaled_dot_product_attention

NAME = "tilewright"


def attention_forward(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, dropout: float = 0,
    scaling: float | None = None, is_causal: bool | None = None, position_bias: Any = None, cache: Any = None,
    **options: Any,
) -> tuple[Any, None]:  # fmt: skip
    """The output of shape (batch, rows, heads, elements), and no weights."""
    if position_bias is not None or cache is not None:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        theirs: tuple[Any, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, is_causal=is_causal,
            position_bias=position_bias, cache=cache, **options,
        )  # fmt: skip
        return theirs
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    # One query sees every key of the cache; with a mask, the mask says all.
    is_causal = bool(is_causal) and query.shape[2] > 1 and attention_mask is None
    softcap, sink = options.get("softcap"), options.get("s_aux")
    if softcap is not None or sink is not None:  # of Gemma 2 and GPT-OSS: SDPA has neither
        attended = attention(query, key, value, {
            "attn_mask": finite_rows(attention_mask), "causal": is_causal, "scale": scaling,
            "softcap": softcap, "sink": None if sink is None else sink.float(), "dropout_p": dropout,
            "seed": torch.randint(0, 2**62, (2,), device=query.device) if dropout else None,
        })  # fmt: skip
    else:
        attended = scaled_dot_product_attention(
            query, key, value, attention_mask, dropout, is_causal, scaling, enable_gqa=query.shape[1] != key.shape[1]
        )
    return attended.transpose(1, 2).contiguous(), None


def register(name: str = NAME) -> str:
    """Register the attention implementation under a name, for the argument `attn_implementation` of models."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    AttentionInterface.register(name, attention_forward)
    AttentionMaskInterface.register(name, sdpa_mask)
    return name
