"""PyTorch: a model whose layers run Tilewright's kernels, trained and restored; gradients of a fused product.

Needs PyTorch; without it the example says so and ends.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import tilewright as tw

sys.path.append(str(Path(__file__).parents[1]))
from _common import check, options

given = options(__doc__, steps=3)
try:
    import torch

    import tilewright.torch
except ImportError as error:
    print(error)
    raise SystemExit(0) from None

torch.manual_seed(0)
device = "cpu" if tw.Registry().kind == "cpu" else "cuda"
model: Any = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 3, padding="same"),
    torch.nn.ReLU(),
    torch.nn.Flatten(),
    torch.nn.Linear(16 * 64, 10),
).to(device)
x, labels = torch.randn(32, 3, 8, 8, device=device), torch.randint(0, 10, (32,), device=device)

# Linear layers and convolutions get our kernels; parameters and state_dict stay what they are.
before = model(x).detach().double().cpu().numpy()
report = tilewright.torch.replace_modules(model)
print(report)
check("replaced modules", model(x).detach().cpu().numpy(), before)

# It trains as before.
optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
for _ in range(given.steps):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), labels)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(f"torch: loss {losses[0]:.3f}, then {losses[-1]:.3f} after {given.steps} steps")
if not losses[-1] < losses[0]:
    sys.exit("the loss did not fall")

# Without modules: a product with bias and activation, differentiated.
a, weight = torch.randn(4, 8, device=device), torch.randn(5, 8, device=device, requires_grad=True)
tw.gemm(a, weight.T, bias=torch.zeros(5, device=device), epilogue="gelu").sum().backward()
wide = weight.detach().double().requires_grad_()
torch.nn.functional.gelu(a.double() @ wide.T).sum().backward()
check("gradient of the weight", weight.grad.cpu().numpy(), wide.grad.cpu().numpy())

report.undo()
print(f"torch: {type(model[0]).__module__}.{type(model[0]).__name__} again")
