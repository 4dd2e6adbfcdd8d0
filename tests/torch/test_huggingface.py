"""Hugging Face's models with our attention beside their own; weights are random."""

from __future__ import annotations

import copy
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
transformers: Any = pytest.importorskip("transformers")
hf: Any = pytest.importorskip("tilewright.torch.huggingface", exc_type=ImportError)

SMALL: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
}  # fmt: skip
DECODERS: dict[str, dict[str, Any]] = {
    name: {"vocab_size": 99, "num_key_value_heads": 2} for name in ("Llama", "Qwen2")
}


def pair(kind: str, config: Any) -> tuple[Any, Any]:
    """A model with our attention and one with PyTorch's, of the same weights."""
    name = hf.register()
    models = []
    for implementation in (name, "sdpa"):
        torch.manual_seed(0)
        own = copy.deepcopy(config)
        own._attn_implementation = implementation
        models.append(getattr(transformers, kind)(own).eval())
    assert models[0].config._attn_implementation == name
    models[0].load_state_dict(models[1].state_dict())
    return models[0], models[1]


@pytest.mark.parametrize("family", DECODERS)
def test_decoders_prefill_and_generate(family: str) -> None:
    config = getattr(transformers, f"{family}Config")(**SMALL, **DECODERS[family])
    ours, theirs = pair(f"{family}ForCausalLM", config)
    tokens = torch.randint(1, 99, (2, 7))
    mask = torch.ones_like(tokens)
    mask[0, :3] = 0
    with torch.no_grad():
        torch.testing.assert_close(ours(tokens).logits, theirs(tokens).logits, rtol=1e-3, atol=1e-4)
        found = ours(tokens, attention_mask=mask).logits[:, 3:]
        torch.testing.assert_close(found, theirs(tokens, attention_mask=mask).logits[:, 3:], rtol=1e-3, atol=1e-4)
    options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0, "attention_mask": mask}
    assert torch.equal(ours.generate(tokens, **options), theirs.generate(tokens, **options))


def test_a_mask_of_the_lowest_number() -> None:
    """As models of older versions write it, padding included: rows that see nothing are those of SDPA too."""
    ours, theirs = pair("LlamaForCausalLM", transformers.LlamaConfig(**SMALL, **DECODERS["Llama"]))
    tokens = torch.randint(1, 99, (2, 7))
    mask = torch.full((2, 1, 7, 7), torch.finfo(torch.float32).min).triu(1)
    mask[0, :, :, :3] = torch.finfo(torch.float32).min
    with torch.no_grad():
        found, expected = (model(tokens, attention_mask=mask).logits for model in (ours, theirs))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def test_a_vision_transformer() -> None:
    config = transformers.ViTConfig(**SMALL, image_size=32, patch_size=8)
    ours, theirs = pair("ViTModel", config)
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        found, expected = ours(x).last_hidden_state, theirs(x).last_hidden_state
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def test_an_encoder_and_decoder() -> None:
    config = transformers.WhisperConfig(
        vocab_size=99, d_model=64, encoder_layers=1, decoder_layers=1, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=96, num_mel_bins=8, max_source_positions=20,
        max_target_positions=16, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    ours, theirs = pair("WhisperModel", config)
    sound, tokens = torch.randn(2, 8, 40), torch.randint(3, 99, (2, 5))
    with torch.no_grad():
        found, expected = (one(sound, decoder_input_ids=tokens).last_hidden_state for one in (ours, theirs))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def test_gradients_are_left_to_pytorch() -> None:
    config = transformers.LlamaConfig(**SMALL, **DECODERS["Llama"])
    ours, theirs = pair("LlamaForCausalLM", config)
    tokens = torch.randint(1, 99, (2, 7))
    for model in (ours, theirs):
        model(tokens, labels=tokens).loss.backward()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("family", ["Gemma2", "GptOss"])
def test_soft_caps_and_sinks_reach_the_kernels(family: str) -> None:
    """SDPA has neither, so these are compared with the eager implementation."""
    if not hasattr(transformers, f"{family}ForCausalLM"):
        pytest.skip(f"this release of transformers has no {family}")
    options = {"vocab_size": 99, "num_key_value_heads": 2, "head_dim": 16, "sliding_window": 8}
    more = {"attn_logit_softcapping": 1.0} if family == "Gemma2" else {"num_local_experts": 4, "num_experts_per_tok": 2}
    config = getattr(transformers, f"{family}Config")(**{**SMALL, **options, **more})
    models = []
    for implementation in (hf.register(), "eager"):
        own = copy.deepcopy(config)
        own._attn_implementation = implementation
        models.append(getattr(transformers, f"{family}ForCausalLM")(own).eval())
    torch.manual_seed(0)
    for parameter in models[1].parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    models[0].load_state_dict(models[1].state_dict())
    tokens = torch.randint(1, 99, (2, 24))
    with torch.no_grad():
        found, expected = (model(tokens).logits for model in models)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)
