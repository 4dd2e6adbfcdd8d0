"""The models of models_h200.py: shapes of known ones with few layers, most telling first, so that a short budget sees
every kind."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from _models import RESNET50, Bottleneck, Case, Decoder, Llama, ResNet, UNetBlock, ViT, Whisper

LLAMA = Decoder()  # Llama 3, 8 billion parameters
QWEN = Decoder(5120, 40, 8, 27648, bias=True)  # Qwen 2.5, 32 billion
TINY = Decoder(256, 4, 2, 512)
CONTEXTS = (1024, 4096, 32768)
BATCHES = (1, 16, 64)
PROMPTS = (512, 2048, 8192)


@dataclass(frozen=True)
class Entry:
    """A case, and who takes part in it."""

    case: Case
    kind: str  # what is summed up together
    layers: int = 1
    compiled: bool = False
    autotuned: bool = False  # torch.compile(mode="max-autotune"), which takes a minute
    training: bool = False


def decoder(
    name: str, shape: Decoder, layers: int, batch: int, context: int, rows: int, nominal: int, **who: bool
) -> Entry:
    what = f"prefill {rows}" if rows > 1 else f"decode batch {batch} context {nominal}"
    about = f"{layers} layers, " + (f"{rows} tokens" if rows > 1 else f"batch {batch}, {context} tokens in the cache")
    cached = torch.bfloat16  # from the beginning: the largest would not fit twice
    made = Case(
        f"{name} {what}", lambda: Llama(shape, layers, context, batch, rows, cached), (batch, rows, shape.width), about
    )
    return Entry(made, "prefill" if rows > 1 else "decode", layers, **who)


def _decoders(name: str, shape: Decoder, layers: int, seed: int) -> Iterator[Entry]:
    """Every batch and context, and every prompt.  The seed draws how far a context is below its name, as lengths are in
    serving: no multiple of a tile."""
    lengths = random.Random(f"{name} {seed}")
    for context in sorted(CONTEXTS, key=lambda one: one != 4096):
        for batch in BATCHES:
            tokens = context - lengths.randrange(128)
            first = context == 4096 and (name == "Llama-8B" or batch == 16)
            yield decoder(
                name, shape, layers, batch, tokens, 1, context, compiled=first,
                autotuned=first and batch == 16 and name == "Llama-8B",
            )  # fmt: skip
    for rows in PROMPTS:
        yield decoder(
            name, shape, layers, 1, rows, rows, rows, compiled=rows == 2048 and name == "Llama-8B"
        )  # fmt: skip


def entries(seed: int, layers: int) -> list[Entry]:
    vit = Case("ViT-L", lambda: ViT(1024, 16, layers), (32, 3, 224, 224), f"16x16, {layers} layers, batch 32")
    whisper = Case(
        "Whisper encoder", lambda: Whisper(1280, 20, layers, 128), (4, 128, 3000), f"large-v3, {layers} layers, batch 4"
    )
    unet = Case("U-Net block", lambda: UNetBlock(640, 10), (2, 640, 64, 64), "of SDXL: 640 channels, 64 x 64, batch 2")
    about = "batch 32, channels_last"
    image = (32, 3, 224, 224)
    resnet = Case("ResNet-50", lambda: ResNet(True, RESNET50, Bottleneck), image, f"{about}, batch norms folded")
    training = Case("ResNet-50 training", lambda: ResNet(False, RESNET50, Bottleneck), image, f"{about}, one step")
    llama, qwen = (
        list(_decoders(name, shape, layers, seed)) for name, shape in (("Llama-8B", LLAMA), ("Qwen-32B", QWEN))
    )
    others = [
        Entry(vit, "encoder", layers, compiled=True),
        Entry(resnet, "convolution", compiled=True),
        Entry(whisper, "encoder", layers, compiled=True),
        Entry(unet, "convolution", compiled=True),
        Entry(training, "training", training=True),
    ]
    every = [*llama, *qwen]
    first = [one for one in every if one.compiled and not one.autotuned]
    late = [one for one in every if one.autotuned]
    return [*first[:1], *others, *first[1:], *(one for one in every if not one.compiled), *late]


def tiny_entries(seed: int) -> list[Entry]:
    """One of each, for a rehearsal."""
    tokens = 48 - random.Random(seed).randrange(8)
    image = (2, 3, 32, 32)
    widths = (16, 16, 32)
    return [
        decoder("Tiny", TINY, 2, 2, tokens, 1, 48, compiled=True, autotuned=True),
        decoder("Tiny", TINY, 2, 1, 24, 24, 24),
        Entry(Case("ViT", lambda: ViT(64, 2, 1), (1, 3, 224, 224), "tiny"), "encoder"),
        Entry(Case("Whisper", lambda: Whisper(64, 2, 1, 8, 20), (1, 8, 40), "tiny"), "encoder"),
        Entry(Case("U-Net block", lambda: UNetBlock(64, 2), (1, 64, 8, 8), "tiny"), "convolution"),
        Entry(Case("ResNet", lambda: ResNet(True, widths, Bottleneck), image, "tiny"), "convolution"),
        Entry(
            Case("ResNet training", lambda: ResNet(False, widths, Bottleneck), image, "tiny"), "training", training=True
        ),
    ]
