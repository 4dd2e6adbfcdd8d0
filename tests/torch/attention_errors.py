"""How far attention and its gradients are from float64 in fp32, beside PyTorch's own path, on problems drawn by seed.

Two measures: the root of the mean square of a tensor's errors over that of its elements, and the largest error over the
largest element.  PyTorch's path is its
scaled_dot_product_attention (windows and biases as an additive mask), and where that has no such thing (soft cap,
dropout of our entries, the gradient of a bias, lse) the same formula of its operations in fp32.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import tilewright as tw
from tilewright.ops.attention_scores import Numbers, kept

KINDS = ("plain", "causal", "window", "bias", "softcap", "dropout", "dbias")
DROPOUT, CAP, SEED = 0.25, 30.0, 91
SDPA = torch.nn.functional.scaled_dot_product_attention


@dataclass(frozen=True)
class Drawn:
    """One problem: what it has, its sizes, and the largest score (of normal operands where it is 0)."""

    kind: str
    batch: int
    group: int
    heads_kv: int
    rows: int
    keys: int
    head_dim: int
    largest: float
    seed: int

    @property
    def fused(self) -> bool:
        return self.kind not in ("softcap", "dropout", "dbias")

    @property
    def window(self) -> tuple[int, int] | None:
        return {"causal": (self.keys, 0), "window": (self.keys // 3, self.keys // 7)}.get(self.kind)


def draw(seed: int | str, most_keys: int = 8192, most_pairs: float = 1.5e6) -> Drawn:
    """A problem of any kind; rows, keys and heads together have no more pairs than `most_pairs`."""
    chosen = random.Random(f"attention's errors {seed}")
    keys = min(most_keys, chosen.choice((33, 130, 257, 512, 1000, 2048, 3000, 4096, 8192)))
    heads_kv, group = chosen.choice((1, 2)), chosen.choice((1, 1, 2, 4))
    kind = chosen.choice(KINDS)
    rows = keys if kind == "causal" and keys <= 1000 else chosen.choice((1, 17, 64, 200, 384, 700))
    rows = min(rows, keys)
    batch = chosen.choice((1, 2)) if rows > 16 else 64 // rows  # of one row alone, chance decides who is nearer
    while batch * heads_kv * group * rows * keys > most_pairs:
        if batch > 1 and batch * rows > 64:
            batch //= 2
        elif group * heads_kv > 1:
            heads_kv, group = (1, group) if heads_kv > 1 else (1, group // 2)
        else:
            rows = max(1, rows // 2)
    largest = chosen.choice((0.0, 0.0, 3.0, 20.0, 50.0, 80.0))
    return Drawn(kind, batch, group, heads_kv, rows, keys, chosen.choice((32, 64, 128)), largest,
                 chosen.randrange(2**31))  # fmt: skip


@dataclass
class Operands:
    q: Any
    k: Any
    v: Any
    dout: Any
    bias: Any  # (1, heads, rows, keys), or None
    added: Any  # what the window and the bias add to scores, for PyTorch; None where nothing
    keep: Any  # what dropout multiplies by; None without


def operands(of: Drawn) -> Operands:
    generator = torch.Generator().manual_seed(of.seed)
    heads = of.heads_kv * of.group

    def normal(*shape: int) -> Any:
        return torch.randn(shape, generator=generator)

    q = normal(of.batch, heads, of.rows, of.head_dim)
    k, v = (normal(of.batch, of.heads_kv, of.keys, of.head_dim) for _ in range(2))
    if of.largest:
        scores = q @ k.repeat_interleave(of.group, 1).transpose(-1, -2) * of.head_dim**-0.5
        q = q * (of.largest / scores.abs().max())
    bias = normal(1, heads, of.rows, of.keys) if of.kind in ("bias", "dbias") else None
    added = bias
    if of.window:
        left, right = of.window
        beside = of.keys - of.rows if of.kind == "causal" else 0
        place = torch.arange(of.rows)[:, None] + beside - torch.arange(of.keys)[None]
        added = torch.zeros(of.rows, of.keys).masked_fill_((place > left) | (place < -right), -torch.inf)
    return Operands(q, k, v, normal(of.batch, heads, of.rows, of.head_dim), bias, added, dropout_of(of))


def dropout_of(of: Drawn) -> Any:
    if of.kind != "dropout":
        return None
    heads = of.heads_kv * of.group
    numbers = Numbers(scale=1.0, dropout=DROPOUT, seed=SEED)
    entries = [kept(numbers, index, np.arange(of.rows), of.keys) for index in range(of.batch * heads)]
    return torch.from_numpy(np.stack(entries)).reshape(of.batch, heads, of.rows, of.keys)


def formula(of: Drawn, q: Any, k: Any, v: Any, added: Any, keep: Any) -> tuple[Any, Any]:
    """out and lse of the definition, in the type of q."""
    wide_k, wide_v = (each.repeat_interleave(of.group, 1) for each in (k, v))
    scores = (q @ wide_k.transpose(-1, -2)) * of.head_dim**-0.5
    if of.kind == "softcap":
        scores = CAP * torch.tanh(scores / CAP)
    if added is not None:
        scores = scores + added.to(q.dtype)
    weights = torch.softmax(scores, -1)
    if keep is not None:
        weights = weights * keep.to(q.dtype)
    return weights @ wide_v, torch.logsumexp(scores, -1)


def by_torch(of: Drawn, x: Operands, dtype: Any, fused: bool) -> dict[str, Any]:
    """Results and gradients; `fused`: by PyTorch's own attention where it has this one."""
    q, k, v = (each.detach().to(dtype).requires_grad_() for each in (x.q, x.k, x.v))
    bias = None if of.kind != "dbias" else x.bias.detach().to(dtype).requires_grad_()
    added = x.added if bias is None else bias
    out, lse = formula(of, q, k, v, added, x.keep)
    if fused and of.fused:
        given = None if added is None else added.to(dtype)
        if given is not None and given.dim() == 4:
            given = given.expand(of.batch, -1, -1, -1)
        out = SDPA(q, k, v, attn_mask=given, enable_gqa=of.group > 1)
    wanted = (q, k, v) if bias is None else (q, k, v, bias)
    gradients = torch.autograd.grad(out, wanted, x.dout.to(dtype))
    named = dict(zip(("dq", "dk", "dv", "dbias"), gradients, strict=False))
    return {name: each.detach() for name, each in {"out": out, "lse": lse, **named}.items()}


def by_us(of: Drawn, x: Operands) -> dict[str, Any]:
    options: dict[str, Any] = {"layout": "bhsd"}
    if of.window:
        options |= {"causal": "bottom_right"} if of.kind == "causal" else {"window": of.window, "causal": False}
    options |= {"bias": x.bias} if x.bias is not None else {}
    options |= {"softcap": CAP} if of.kind == "softcap" else {}
    options |= {"dropout_p": DROPOUT, "seed": SEED} if of.kind == "dropout" else {}
    out, lse = tw.attention(x.q, x.k, x.v, return_lse=True, **options)
    options |= {"return_dbias": True} if of.kind == "dbias" else {}
    gradients = tw.attention_backward(x.dout, x.q, x.k, x.v, out, lse, **options)
    return {"out": out, "lse": lse, **dict(zip(("dq", "dk", "dv", "dbias"), gradients, strict=False))}


@dataclass(frozen=True)
class Error:
    """Of one tensor: roots of mean squares, and the largest; with the largest of lse, which is handed over in fp32."""

    ours: float
    theirs: float
    ours_largest: float
    theirs_largest: float
    lse: float


def errors(of: Drawn) -> dict[str, Error]:
    """Our errors and PyTorch's, of each tensor."""
    x = operands(of)
    right, theirs, ours = by_torch(of, x, torch.float64, False), by_torch(of, x, torch.float32, True), by_us(of, x)
    lse = float(right["lse"].abs().max())
    by_name = {}
    for name, exact in right.items():
        off = [each[name].double() - exact for each in (ours, theirs)]
        norm, largest = exact.norm() or 1.0, exact.abs().max() or 1.0
        usual = [float(each.norm() / norm) for each in off]
        most = [float(each.abs().max() / largest) for each in off]
        by_name[name] = Error(usual[0], usual[1], most[0], most[1], lse)
    return by_name


def allowed(of: Drawn, error: Error) -> tuple[float, float]:
    """What our two errors may be: twice PyTorch's; of the largest, which is one element's luck, 1e-6 more.

    PyTorch's formula keeps the softmax itself and not the logarithm of its sum, whose rounding in fp32 is an error of
    all weights of a row: half a unit of its last place is allowed where its fused path, which has the same, is not the
    one compared with.
    """
    rounding = 0.0 if of.fused else float(np.spacing(np.float32(error.lse))) / 2
    return 2 * error.theirs + rounding, 2 * error.theirs_largest + 1e-6 + rounding
