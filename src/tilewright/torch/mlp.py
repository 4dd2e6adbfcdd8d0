"""`fuse_mlps`: gated MLPs of a model, by whatever name, with both projections, activation and product as one call.

A module counts as one if its forward, traced with its children as they are, is down(act(gate(x)) * up(x)).  It gets a
subclass of its class with another forward, and nothing else: parameters, hooks and the state_dict are untouched.
"""

from __future__ import annotations

import operator
from functools import lru_cache
from types import MethodType
from typing import Any

from tilewright.api import gemm as gemm_api
from tilewright.dataclass import NamedTuple
from tilewright.runtime.copies import CopyNeeded
from tilewright.torch import nn
from tilewright.torch.replace import Entry, Report
from tilewright.torch.required import torch

_LINEAR = (torch.nn.Linear, nn.Linear, nn.PackedLinear)
_MULTIPLIED = (operator.mul, torch.mul, torch.multiply)
_F = torch.nn.functional


class Parts(NamedTuple):
    """The names of an MLP's children, and its activation as `gated_gemm` names it."""

    gate: str
    up: str
    down: str
    activation: str
    act: str = ""  # the child that is the activation, where it is a module
    functions: tuple[tuple[str, Any], ...] = ()  # attributes that its forward may call, and what they were


class _Tracer(torch.fx.Tracer):  # type: ignore[misc]
    def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
        return True


def _activation_of(child: Any) -> str:
    kind = type(child)
    if kind is torch.nn.SiLU or kind.__name__ == "SiLUActivation":
        return "silu"
    if kind is torch.nn.GELU:
        return "gelu" if child.approximate == "none" else "fastgelu"
    return "fastgelu" if kind.__name__ in ("GELUTanh", "PytorchGELUTanh") else ""


def _activation(module: Any, node: Any) -> str:
    """What a node computes, as `gated_gemm` names it; empty where that has no such gate."""
    if node.op == "call_module":
        return _activation_of(module.get_submodule(node.target))
    if node.op != "call_function":
        return ""
    if node.target is _F.gelu:
        return "gelu" if node.kwargs.get("approximate", "none") == "none" else "fastgelu"
    return "silu" if node.target is _F.silu else ""


def _parts(module: Any) -> Parts | str:
    """The parts of a gated MLP, or why it is none."""
    try:
        graph = _Tracer().trace(module)
    except Exception as error:  # whatever a forward does with a proxy; it is no MLP that is known
        return f"its forward cannot be traced: {type(error).__name__}"
    nodes = list(graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder"]
    called = [node for node in nodes if node.op not in ("placeholder", "output")]
    if len(inputs) != 1 or len(called) != 5:
        return "not down(act(gate(x)) * up(x))"
    (x,), down = inputs, nodes[-1].args[0]

    def linear_of(node: Any, source: Any) -> bool:
        return getattr(node, "op", "") == "call_module" and node.args == (source,) and not node.kwargs

    if down not in called or down.op != "call_module" or len(down.args) != 1:
        return "not down(act(gate(x)) * up(x))"
    product = down.args[0]
    if getattr(product, "target", None) not in _MULTIPLIED or len(product.args) != 2:
        return "not down(act(gate(x)) * up(x))"
    for act, up in (product.args, product.args[::-1]):
        activation = _activation(module, act) if hasattr(act, "op") else ""
        if activation and linear_of(up, x) and len(act.args) == 1 and linear_of(act.args[0], x):
            child = act.target if act.op == "call_module" else ""
            return Parts(act.args[0].target, up.target, down.target, activation, child, _functions(module))
    return "not down(act(gate(x)) * up(x))"


def _functions(module: Any) -> tuple[tuple[str, Any], ...]:
    """Attributes that are called as functions: an activation among them is in a traced graph, but not its name."""
    code = getattr(type(module).forward, "__code__", None)
    names = {*vars(module), *(code.co_names if code is not None else ())}
    values = {name: getattr(module, name, None) for name in sorted(names) if not name.startswith("_")}
    return tuple(
        (name, value)
        for name, value in values.items()
        if callable(value) and not isinstance(value, (torch.nn.Module, MethodType))
    )


def _why_not(module: Any, parts: Parts) -> str:
    for name in parts[:3]:
        child = module.get_submodule(name)
        if type(child) not in _LINEAR:
            return f"{name} is a {type(child).__name__}"
    gate, up = (module.get_submodule(name) for name in parts[:2])
    if gate.bias is not None or up.bias is not None:
        return f"{parts.gate} or {parts.up} has a bias"
    if gate.weight.shape != up.weight.shape:
        return f"{parts.gate} and {parts.up} are of different sizes"
    act = module.get_submodule(parts.act) if parts.act else None
    if any(child is not None and (child._forward_hooks or child._forward_pre_hooks) for child in (gate, up, act)):
        return f"{parts.gate}, {parts.up} or the activation has hooks, which would not be called"
    if act is not None and _activation_of(act) != parts.activation:
        return f"{parts.act} is another activation now"
    return ""


def _child(module: Any, name: str) -> Any:
    """`get_submodule` without its walk, for the children of a module itself; None where there is none any more."""
    if "." not in name:
        return module._modules.get(name)
    try:
        return module.get_submodule(name)
    except AttributeError:
        return None


def _weight(linear: Any) -> Any:
    """The weight of a projection that is still what it was: no bias, and no hooks, which nobody would call."""
    if type(linear) not in _LINEAR or linear._forward_hooks or linear._forward_pre_hooks:
        return None
    parameters = linear._parameters
    return parameters.get("weight") if parameters.get("bias") is None else None


def _weights(module: Any, parts: Parts) -> tuple[Any, Any] | None:
    """The weights of gate and up, or None where children or functions changed since: `_why_not` in a microsecond."""
    gate, up = _weight(_child(module, parts.gate)), _weight(_child(module, parts.up))
    if gate is None or up is None or gate.shape != up.shape:
        return None
    if parts.act:
        act = _child(module, parts.act)
        if act is None or act._forward_hooks or act._forward_pre_hooks or _activation_of(act) != parts.activation:
            return None
    for name, function in parts.functions:
        if getattr(module, name, None) is not function:
            return None
    return gate, up


def _remade(kind: Any, parts: Parts) -> Any:
    """An empty module of a fused class, for pickle: no module of Python holds that class under its name."""
    ours = _fused(kind, parts)
    return ours.__new__(ours)


@lru_cache(maxsize=256)
def _fused(kind: Any, parts: Parts) -> Any:
    """A subclass of a module's class whose forward multiplies by gate and up in one call."""

    def forward(self: Any, x: Any) -> Any:
        weights = None if isinstance(x, torch.fx.Proxy) else _weights(self, parts)
        if weights is None or x.dim() < 2 or not nn._served(x, weights[0]):
            return kind.forward(self, x)
        gate, up = weights
        try:
            gated = gemm_api.gated_gemm(x, gate.T, up.T, activation=parts.activation)
        except CopyNeeded:
            gated = gemm_api.gated_gemm(x, gate.T, up.T, activation=parts.activation, copy="allow")
        return _child(self, parts.down)(gated)

    def reduce(self: Any, _protocol: Any) -> Any:
        return _remade, (kind, parts), self.__getstate__() if hasattr(self, "__getstate__") else vars(self)

    members = {"forward": forward, "fused_parts": parts, "__module__": kind.__module__, "__reduce_ex__": reduce}
    return type(kind.__name__, (kind,), members)


def fuse_mlps(model: Any) -> Report:
    """Let gated MLPs of a model (Llama's, Qwen's, Gemma's, ...) compute gate, up, activation and product in one call.

    The report lists modules with three linear children or more, and why one was left; `undo()` restores them.  It goes
    together with `replace_modules`, in either order.
    """
    report = Report()
    for name, module in model.named_modules():
        if sum(isinstance(child, torch.nn.Linear) for child in module.children()) < 3 or hasattr(module, "fused_parts"):
            continue
        parts = _parts(module)
        why = parts if isinstance(parts, str) else _why_not(module, parts)
        report.entries.append(Entry(name, type(module).__name__, why))
        if not why and isinstance(parts, Parts):
            before: Any = type(module)
            ours = _fused(before, parts)
            module.__class__ = ours
            report._changed.append((module, before, ours))
    return report
