"""PyTorch: a model whose layers run our kernels, trained, compiled and restored; gradients of a fused product."""

from __future__ import annotations

import argparse
from typing import Any

import tilewright as tw

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=5)
options = parser.parse_args()

try:
    import torch

    import tilewright.torch
except ImportError as error:
    print(error)
    raise SystemExit(0) from None

torch.manual_seed(0)
model: Any = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 3, padding="same"),
    torch.nn.ReLU(),
    torch.nn.Flatten(),
    torch.nn.Linear(16 * 64, 10),
)
x, labels = torch.randn(32, 3, 8, 8), torch.randint(0, 10, (32,))

# Linear layers and convolutions get our kernels; parameters and state_dict stay what they are.
before = model(x)
report = tilewright.torch.replace_modules(model)
print(report)
torch.testing.assert_close(model(x), before, rtol=1e-4, atol=1e-4)

# It trains as before.
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for _ in range(options.steps):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), labels)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0]
print(f"torch: loss {losses[0]:.3f}, then {losses[-1]:.3f} after {options.steps} steps")

# Without modules: a product with bias and activation, differentiated.
weight = torch.randn(5, 8, requires_grad=True)
tw.gemm(torch.randn(4, 8), weight.T, bias=torch.zeros(5), epilogue="gelu").sum().backward()
print(f"torch: gradient of the weight {tuple(weight.grad.shape)}")

# The modules as they were.
report.undo()
print(f"torch: {type(model[0]).__module__}.{type(model[0]).__name__} again")
