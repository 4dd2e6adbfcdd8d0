"""The attentions of real models, as their publications and configuration files state them."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.dataclass import dataclass
from tilewright.ops.engine import Values


@dataclass(frozen=True, slots=True)
class Model:
    """Heads of a model's attention; `window` is that of its local layers, 0 where it has none."""

    heads_q: int
    heads_kv: int
    head_dim: int
    head_dim_v: int = 0
    window: int = 0
    softcap: bool = False
    sink: bool = False

    def values(self, batch: int, rows: int, keys: int, local: bool = False, **more: object) -> Values:
        """A causal layer as values of the op's options."""
        values: dict[str, object] = {
            "batch": batch, "heads_q": self.heads_q, "heads_kv": self.heads_kv, "seqlen_q": rows, "seqlen_k": keys,
            "head_dim": self.head_dim, "head_dim_v": self.head_dim_v or self.head_dim,
            "window": f"{self.window - 1 if local else -1},0",
        }  # fmt: skip
        if rows != keys:
            values["align"] = "bottom_right"
        for name in ("softcap", "sink"):
            if getattr(self, name):
                values[name] = True
        return {**values, **more}


# Decoders, whose layers are causal.
DECODERS: Mapping[str, Model] = {
    "gpt2_small": Model(12, 12, 64),
    "gpt3_175b": Model(96, 96, 128),
    "llama2_7b": Model(32, 32, 128),
    "llama3_8b": Model(32, 8, 128),
    "llama3_70b": Model(64, 8, 128),
    "llama3_405b": Model(128, 8, 128),
    "mistral_7b": Model(32, 8, 128, window=4096),
    "mixtral_8x7b": Model(32, 8, 128),
    "gemma2_9b": Model(16, 8, 256, window=4096, softcap=True),
    "gemma3_27b": Model(32, 16, 128, window=1024),
    "qwen2_7b": Model(28, 4, 128),
    "qwen3_32b": Model(64, 8, 128),
    "phi3_mini": Model(32, 32, 96),
    "falcon_7b": Model(71, 1, 64),
    "starcoder_15b": Model(48, 1, 128),
    "gpt_oss_120b": Model(64, 8, 64, window=128, sink=True),
    "deepseek_v3_prefill": Model(128, 128, 192, 128),
}
# The latent attention of a decode step: one head of keys, of which the values are a part.
LATENT = Model(128, 1, 576, 512)

# Encoders, whose rows see all keys: heads, size of a head, rows.
ENCODERS: Mapping[str, tuple[int, int, int]] = {
    "bert_base": (12, 64, 512),
    "bert_large": (16, 64, 384),
    "vit_base_16_224": (12, 64, 197),
    "vit_large_14_336": (16, 64, 577),
    "vit_huge_14_224": (16, 80, 257),
    "siglip_so400m": (16, 72, 729),
    "dinov2_giant": (24, 64, 1370),
    "stable_diffusion_64": (8, 40, 4096),
    "stable_diffusion_32": (8, 80, 1024),
    "flux_1024": (24, 128, 4608),
    "whisper_large": (20, 64, 1500),
}
