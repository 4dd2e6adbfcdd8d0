"""`replace_modules`: a model whose linear layers and convolutions run our kernels, and the way back.

A module gets another class and nothing else: parameters, buffers, hooks and the state_dict are untouched, and so is the
module itself, whoever else holds it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tilewright.torch import nn
from tilewright.torch.required import torch

CLASSES: dict[type[Any], type[Any]] = {
    torch.nn.Linear: nn.Linear,
    torch.nn.Conv1d: nn.Conv1d,
    torch.nn.Conv2d: nn.Conv2d,
    torch.nn.Conv3d: nn.Conv3d,
}
_OURS = frozenset((*CLASSES.values(), nn.PackedLinear))
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Entry:
    """A module: its name in the model, its class, and why it stayed as it was (empty: it was replaced)."""

    name: str
    kind: str
    why: str = ""


@dataclass
class Report:
    """What `replace_modules` did; `undo()` restores the class of every module."""

    entries: list[Entry] = field(default_factory=list)
    _changed: list[tuple[Any, type[Any], type[Any]]] = field(default_factory=list, repr=False)

    @property
    def replaced(self) -> list[Entry]:
        return [entry for entry in self.entries if not entry.why]

    @property
    def kept(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.why]

    def undo(self) -> None:
        for module, before, ours in self._changed:
            module.__class__ = before if type(module) is ours else _restored(type(module), before, ours)
            vars(module).pop("_packed", None)
        self._changed.clear()

    def __str__(self) -> str:
        count = len(self.replaced)
        head = f"{count} module{'s' * (count != 1)} replaced, {len(self.kept)} kept"
        rows = [
            f"  {entry.name or '(model)'}: {entry.kind}" + (f": {entry.why}" if entry.why else "")
            for entry in self.entries
        ]
        return "\n".join([head, *rows])


def _restored(kind: type[Any], before: type[Any], ours: type[Any]) -> type[Any]:
    """A class that a module got after `ours`: derived from `before` where it was derived from ours, as PyTorch's
    parametrizations do; any other stays."""
    if kind.__bases__ != (ours,):
        return kind
    members = {name: value for name, value in vars(kind).items() if name not in ("__dict__", "__weakref__")}
    derived: type[Any] = type(kind.__name__, (before,), members)
    return derived


def _why_not(name: str, module: Any, where: Callable[[str, Any], bool] | None) -> str:
    kind = type(module)
    if kind in _OURS:
        return "it was replaced before"
    if kind not in CLASSES:
        near = next((known.__name__ for known in CLASSES if isinstance(module, known)), "")
        return f"a class of its own, derived from {near}" if near else "no kernel of ours computes it"
    weight = module.weight
    if torch.nn.parameter.is_lazy(weight):
        return "its sizes are not known yet: run the model once before"
    if type(weight) not in (torch.nn.Parameter, torch.Tensor):
        return f"its weight is a {type(weight).__name__}"
    if weight.dtype not in _FLOATS:
        return f"its weight is {str(weight.dtype).removeprefix('torch.')}"
    if "forward" in vars(module):
        return "its forward was replaced by somebody else"
    return "" if where is None or where(name, module) else "left out by `where`"


def replace_modules(model: Any, *, where: Callable[[str, Any], bool] | None = None, pack: bool = False) -> Report:
    """Replace linear layers and convolutions of a model by ours; the report lists them and gives reasons for the
    others.

    `where(name, module)` selects modules.  Modules without weights are not listed.  `pack` keeps a packed copy of the
    weight of each linear layer on the CPU (`nn.PackedLinear`): faster in inference with eight rows or more, for the
    memory of another weight.
    """
    classes = {**CLASSES, torch.nn.Linear: nn.PackedLinear} if pack else CLASSES
    report = Report()
    for name, module in model.named_modules():
        if not any(True for _ in module.parameters(recurse=False)):
            continue
        why = _why_not(name, module, where)
        report.entries.append(Entry(name, type(module).__name__, why))
        if not why:
            before, ours = type(module), classes[type(module)]
            module.__class__ = ours
            report._changed.append((module, before, ours))
    return report
