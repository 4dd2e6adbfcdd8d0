"""Every op, those of other packages included, is served by C in a call made before, and each form of its calls.

An op that C refuses still computes, ten times slower, and nothing else would say so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import api, events, ops, plugins
from tilewright.dispatch.registry import Registry
from tilewright.runtime import calls, fast_path, lines
from tilewright.runtime.bindings import binding
from tilewright.runtime.requests import Slot

pytestmark = pytest.mark.usefixtures("needs_compiler", "every_op")

Array = np.ndarray[Any, Any]
Call = Callable[..., Any]  # with the keywords all ops have
OTHER_PACKAGES = Path(__file__).parent.parent / "plugin_ops"


@pytest.fixture
def every_op(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The ops of the test packages beside ours, on kernels that every target has: those are built fastest."""
    monkeypatch.syspath_prepend(str(OTHER_PACKAGES))
    plugins.forget()
    registry = Registry()
    generic = ops.op("gemm").fallback_spec(tw.GemmProblem(1, 1, 1).signature, registry.target)
    monkeypatch.setattr(api, "_registries", {"": Registry(specs=[generic])})
    yield
    monkeypatch.undo()
    plugins.forget()
    for name in ("rowscale", "regionstats"):
        vars(tw).pop(name, None)


def normal(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


def int32(*values: int) -> Array:
    return np.array(values, np.int32)


def attention_forms() -> dict[str, tuple[Any, ...]]:
    """(function, operands, keywords) by name: the ways of calling attention that a server of models uses."""
    decode = normal(2, 1, 4, 16), normal(2, 24, 2, 16), normal(2, 24, 2, 16)
    prefill = normal(2, 9, 4, 16), normal(2, 9, 2, 16), normal(2, 9, 2, 16)
    packed = normal(9, 4, 16), normal(9, 2, 16), normal(9, 2, 16)
    pools = normal(6, 8, 2, 16), normal(6, 8, 2, 16)
    table = np.arange(6, dtype=np.int32).reshape(2, 3)
    indices = (int32(0, 3, 6), table.ravel(), int32(8, 8))
    starts = int32(0, 4, 9)
    caches = normal(2, 24, 2, 16), normal(2, 24, 2, 16), normal(2, 1, 2, 16), normal(2, 1, 2, 16)
    pages = *pools, normal(2, 1, 2, 16), normal(2, 1, 2, 16)
    rotary = normal(24, 8), normal(24, 8), "half"
    lengths = int32(3, 20)
    new = normal(2, 1, 4, 16)
    return {
        "decode": (tw.attention, decode, {}),
        "decode with lengths": (tw.attention, decode, {"seqlens_k": int32(3, 24)}),
        "decode in splits": (tw.attention, decode, {"num_splits": 2, "return_lse": True}),
        "decode into out": (tw.attention, decode, {"out": np.empty((2, 1, 4, 16), np.float32)}),
        "prefill": (tw.attention, prefill, {"causal": True, "return_lse": True}),
        "prefill with a window": (tw.attention, prefill, {"window": (3, 0, "bottom_right"), "sink_tokens": 1,
                                                          "scale": 0.5}),
        "prefill with a mask": (tw.attention, prefill, {"mask": normal(9, 9) < 0, "softcap": 5.0}),
        "prefill with a bias": (tw.attention, prefill, {"bias": normal(9, 9)}),
        "prefill with slopes": (tw.attention, prefill, {"alibi_slopes": normal(4), "sink": normal(4)}),
        "prefill with dropout": (tw.attention, prefill, {"dropout_p": 0.25, "seed": (7, 1)}),
        "prefill, packed": (tw.attention, packed, {"cu_seqlens_q": starts, "cu_seqlens_k": starts, "max_seqlen_q": 5}),
        "decode, paged": (tw.attention, (decode[0], *pools), {"block_table": table, "seqlens_k": lengths}),
        "decode, paged by indices": (tw.attention, (decode[0], *pools), {"block_table": indices}),
        "decode, paged, in splits": (
            tw.attention, (decode[0], *pools), {"block_table": table, "seqlens_k": lengths, "num_splits": 3},
        ),
        "append": (tw.append_kv, caches, {"cache_seqlens": lengths}),
        "append, turned": (tw.append_kv, caches, {"cache_seqlens": lengths, "rotary": rotary, "q": new}),
        "append, paged": (tw.append_kv, pages, {"cache_seqlens": lengths, "block_table": table,
                                                "seqlens_new": int32(1, 0)}),
    }  # fmt: skip


def backward_forms() -> dict[str, tuple[Any, ...]]:
    q, k, v, dout = (normal(2, 9, 4, 16) for _ in range(4))
    out, lse = tw.attention(q, k, v, causal=True, return_lse=True)
    gradients = {name: np.empty_like(q) for name in ("dq", "dk", "dv")}
    return {
        "plain": (tw.attention_backward, (dout, q, k, v, out, lse), {"causal": True}),
        "into arrays": (tw.attention_backward, (dout, q, k, v, out, lse), {"causal": True, **gradients}),
        "of lse too": (tw.attention_backward, (dout, q, k, v, out, lse), {"causal": True, "dlse": lse, "scale": 0.5}),
    }


def forms() -> dict[str, dict[str, tuple[Any, ...]]]:
    """Ways of calling each op, by its name."""
    x, w = normal(1, 6, 6, 4), normal(8, 3, 3, 4)
    y = normal(1, 4, 4, 8)
    a, b = normal(5, 7), normal(7, 6)
    return {
        "gemm": {
            "product": (tw.gemm, (a, b), {}),
            "into out": (tw.gemm, (a, b), {"out": np.empty((5, 6), np.float32), "alpha": 2}),
            "with c": (tw.gemm, (a, b, normal(5, 6)), {"beta": 0.5}),
            "with ds": (tw.gemm, (a, b), {"ds": (normal(6),), "epilogue": "relu"}),
            "matmul": (tw.matmul, (a, b), {}),
        },
        "conv": {
            "forward": (tw.conv, (x, w), {}),
            "fused": (tw.conv, (x, w, normal(8)), {"epilogue": "relu", "out": np.empty((1, 4, 4, 8), np.float32)}),
            "backward data": (tw.conv_backward_data, (y, w, x.shape), {}),
            "backward weight": (tw.conv_backward_weight, (x, y, w.shape), {}),
        },
        "attention": attention_forms(),
        "attention_backward": backward_forms(),
        "rowscale": {"call": (tw.rowscale, (a, normal(5)), {"alpha": 2})},
        "regionstats": {
            "call": (tw.regionstats, (x, int32(5)), {}),
            "with all": (tw.regionstats, (x, int32(5)), {"weight": normal(4), "shift": normal(4), "dilation": (1, 2)}),
        },
    }


def converted(value: Any, convert: Callable[[Array], Any]) -> Any:
    """The same with each array as another library's."""
    if isinstance(value, np.ndarray):
        return convert(value)
    if isinstance(value, (tuple, list)):
        return tuple(converted(one, convert) for one in value)
    if isinstance(value, dict):
        return {key: converted(one, convert) for key, one in value.items()}
    return value


def all_equal(first: Any, second: Any) -> bool:
    if isinstance(first, tuple):
        return len(first) == len(second) and all(map(all_equal, first, second))
    return type(first) is type(second) and np.array_equal(np.asarray(first), np.asarray(second), equal_nan=True)


def served_by_c(call: Call, operands: Any, keywords: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise where a call made before is not C's alone, or C's answer is another."""
    expected = converted(call(*operands, **keywords, copy="allow"), lambda one: one.copy())
    call(*operands, **keywords)

    def long_way(*_arguments: Any) -> Any:
        raise AssertionError("Python made the call")

    with monkeypatch.context() as patch:
        patch.setattr(calls.Caller, "run_slow", long_way)
        assert all_equal(call(*operands, **keywords), expected)


def test_each_op_is_tried() -> None:
    assert set(forms()) == set(ops.op_names())


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("op", ["gemm", "conv", "attention", "attention_backward", "rowscale", "regionstats"])
def test_a_call_made_before_is_served_by_c(op: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    convert: Callable[[Array], Any] = np.copy
    if library == "torch":
        torch = pytest.importorskip("torch")
        if not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
            pytest.skip("this PyTorch does not let C read its tensors")
        convert = torch.from_numpy
    wrong = []
    for name, (call, operands, keywords) in forms()[op].items():
        try:
            served_by_c(call, converted(operands, convert), converted(keywords, convert), monkeypatch)
        except AssertionError as error:
            wrong.append(f"{name}: {error}")
    assert not wrong


def test_every_op_fits_the_limits_of_c() -> None:
    """With room for the operands that attention's backward adds: dout, dq, dk, dv and the sums of rows, twice over."""
    for name in ops.op_names():
        one = binding(name)
        assert fast_path.form(one.slots, len(one.scalars)) is not None, name
    assert len(binding("attention").slots) + 10 <= fast_path.MOST_OPERANDS


def test_the_largest_form_is_read_and_a_larger_one_is_refused_aloud() -> None:
    slots = [
        Slot(f"x{index}", written=index == fast_path.MOST_OPERANDS - 1) for index in range(fast_path.MOST_OPERANDS)
    ]
    largest = fast_path.form(slots, fast_path.MOST_SCALARS)
    assert largest is not None
    operands = [np.zeros((index + 1, 1, 1, 1, 1, 1)) for index in range(fast_path.MOST_OPERANDS)]
    key = largest.key((), *operands)
    assert key is not None
    operands[-1] = operands[-1][:-1]
    assert largest.key((), *operands) not in (key, None)
    with events.recorded() as heard:
        assert fast_path.form([*slots, Slot("more")], 0) is None
        assert fast_path.form(slots, fast_path.MOST_SCALARS + 1) is None
    warned = [one for one in heard if isinstance(one, events.Warned)]
    assert [one.rule for one in warned] == ["fast-path"] * 2
    assert f"C takes {fast_path.MOST_OPERANDS} operands" in warned[0].message


def test_limits_are_defined_once() -> None:
    """C has no number of its own for what Python checks before it hands a call on."""
    headers = resources.files("tilewright").joinpath("include", "tilewright")
    text = fast_path.source() + "".join(
        headers.joinpath(name).read_text(encoding="utf-8") for name in ("call_key.h", "stages.h")
    )
    for name in fast_path._LIMITS:
        assert text.count(f"#define TW_{name} ") == 1
        assert text.count(f"= TW_{name}") == 1


def test_who_interrupts_a_call_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that is raised in the middle of C's part, as the handler of a signal does, is the call's; one of our own
    questions is asked again by the slow path."""
    if fast_path.library() is None:
        pytest.skip("this Python has no fast path")
    raised: list[BaseException] = []
    empty = lines.empty

    def interrupted(*given: Any) -> Any:
        if raised:
            raise raised.pop()
        return empty(*given)

    monkeypatch.setattr(lines, "empty", interrupted)
    a, b = np.ones((1024, 4), np.float32), np.ones((4, lines.LARGE // 4096), np.float32)
    registry = Registry()
    for call in (tw.gemm, lambda *given: registry.run("gemm", *given)):
        for _ in range(3):
            call(a, b)
        for error in (TimeoutError("too late"), KeyboardInterrupt()):
            raised.append(error)
            with pytest.raises(type(error)):
                call(a, b)
        raised.append(MemoryError())
        assert (call(a, b) == 4).all()
        assert not raised


def test_a_library_that_is_interrupted_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def late() -> Any:
        raise TimeoutError("too late")

    monkeypatch.setattr(fast_path, "_loaded", None)
    monkeypatch.setattr(fast_path, "_build", late)
    failed = list(fast_path._failed)
    with pytest.raises(TimeoutError):
        fast_path.library()
    assert fast_path._failed == failed
