"""What goes wrong around PyTorch: right, or one clear error."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tilewright.errors import ProblemError

torch: Any = pytest.importorskip("torch")
tilewright_torch: Any = pytest.importorskip("tilewright.torch", exc_type=ImportError)


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_pytorch_the_module_says_so_and_the_rest_works() -> None:
    code = """
import sys
sys.modules["torch"] = None
import numpy as np
import tilewright as tw
assert tw.gemm(np.ones((2, 3), np.float32), np.ones((3, 4), np.float32))[0, 0] == 3
try:
    import tilewright.torch
except ImportError as error:
    sys.stdout.write(str(error))
"""
    said = run(code)
    assert "torch-missing" in said
    assert "pip install torch" in said


def test_plain_calls_import_the_ops_only_when_they_need_them() -> None:
    code = """
import sys, torch
import tilewright as tw
a = torch.ones(4, 6)
tw.gemm(a, a.T)
assert "tilewright.torch" not in sys.modules
assert "torch._dynamo" not in sys.modules
tw.gemm(a.requires_grad_(), a.T)
assert "tilewright.torch" in sys.modules
assert "torch._dynamo" not in sys.modules  # half a second of imports that eager calls do without
"""
    run(code)


@pytest.mark.parametrize(("version", "enough"), [("2.10.1", False), ("1.13.0", False), ("2.11.0", True), ("3.0", True),
                                                 ("2.13.0a0+git1", True)])  # fmt: skip
def test_a_release_that_is_too_old_is_one_error(version: str, enough: bool) -> None:
    from tilewright.torch.required import PyTorchError, demand_release

    if enough:
        demand_release(version)
        return
    with pytest.raises(PyTorchError) as caught:
        demand_release(version)
    assert caught.value.rule == "torch-release"
    assert "pip install" in caught.value.remedy


def test_a_second_copy_of_the_package_is_one_error() -> None:
    from tilewright.torch import library
    from tilewright.torch.required import PyTorchError

    with pytest.raises(PyTorchError) as caught:
        library._library()
    assert caught.value.rule == "torch-ops-twice"
    assert "one copy" in caught.value.remedy


def test_another_version_of_the_package_is_one_error(tmp_path: Path) -> None:
    """Imported beside the first, from another folder, as an old installation under another path would be."""
    code = f"""
import shutil, sys
from pathlib import Path
import torch, tilewright.torch
first = Path(tilewright.__file__).parent
shutil.copytree(first, Path({str(tmp_path)!r}) / "tilewright", ignore=shutil.ignore_patterns("__pycache__"))
for name in [name for name in sys.modules if name.partition(".")[0] == "tilewright"]:
    del sys.modules[name]
sys.path.insert(0, {str(tmp_path)!r})
import tilewright
assert Path(tilewright.__file__).parent != first
a = torch.ones(4, 6)
assert float(tilewright.gemm(a, a.T)[0, 0]) == 6  # plain calls need no ops
try:
    import tilewright.torch
except Exception as error:
    sys.stdout.write(str(error))
assert torch.ops.tilewright.gemm(a, a.T).shape == (4, 4)  # the first copy's go on
"""
    said = run(code)
    assert "torch-ops-twice" in said
    assert "one copy" in said


class Computing(torch.Tensor):  # type: ignore[misc]
    """A tensor that computes in its own way, and counts how often."""

    calls = 0
    inner: Any

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.calls += 1
        return func(*[one.inner if isinstance(one, cls) else one for one in args], **(kwargs or {}))


def test_subclasses_are_refused_or_computed_by_their_own_rule() -> None:
    odd = torch.Tensor._make_wrapper_subclass(Computing, (4, 6))
    odd.inner = torch.ones(4, 6)
    with pytest.raises(ProblemError) as caught:
        tw.gemm(odd, torch.ones(6, 5))
    assert caught.value.rule == "array-type"
    assert torch.equal(torch.ops.tilewright.gemm(odd, torch.ones(6, 5)), torch.full((4, 5), 6.0))
    assert Computing.calls == 1


def test_wrong_operands_of_ops_are_the_errors_of_plain_calls() -> None:
    a, b = torch.ones(4, 6), torch.ones(6, 5)
    ops = torch.ops.tilewright
    fake = a.to("meta")
    wrong: list[tuple[str, Any]] = [
        ("shape-k", lambda: ops.gemm(a, a)),
        ("shape-k", lambda: ops.gemm(fake, fake)),
        ("array-rank", lambda: ops.gemm(fake[0], b.to("meta"))),
        ("epilogue-name", lambda: ops.gemm(a, b, epilogue="swish")),
        ("epilogue-name", lambda: ops.gemm(fake, b.to("meta"), epilogue="swish")),
        ("epilogue-d-count", lambda: ops.gemm(fake, b.to("meta"), None, fake)),
        ("array-dtype", lambda: ops.matmul(fake.double(), b.to("meta").double())),
        ("shape-channels", lambda: ops.conv(fake[None, None], fake[None, None, :, :3])),
        ("array-rank", lambda: ops.attention(fake, fake, fake)),
    ]
    for rule, call in wrong:
        with pytest.raises(tw.TilewrightError) as caught:
            call()
        assert caught.value.rule == rule
        assert caught.value.remedy


def test_fake_tensors_outside_of_tracing_have_shapes_and_no_values() -> None:
    """A result is fake as they are, through every road; beside tensors with values they are one error, of PyTorch's."""
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    with FakeTensorMode():
        a, b, q, out = torch.ones(4, 6), torch.ones(6, 5), torch.ones(1, 5, 2, 16), torch.zeros(4, 5)
    results = [
        tw.gemm(a, b),
        torch.ops.tilewright.gemm(a, b),
        tw.attention(q, q, q),
        torch.ops.tilewright.attention(q, q, q),
    ]
    assert all(isinstance(result, FakeTensor) for result in results)
    assert [tuple(result.shape) for result in results] == [(4, 5), (4, 5), (1, 5, 2, 16), (1, 5, 2, 16)]
    assert tw.gemm(a, b, out=out) is out
    torch.ops.tilewright.gemm.out(a, b, out=out)
    for call in (tw.gemm, torch.ops.tilewright.gemm):
        with pytest.raises(Exception, match=r"[Ff]ake"):
            call(a, torch.ones(6, 5))


def test_meta_tensors_have_shapes_and_no_values() -> None:
    a, b = torch.ones(4, 6, device="meta"), torch.ones(6, 5, device="meta")
    assert torch.ops.tilewright.gemm(a, b).shape == (4, 5)
    with pytest.raises(tw.TilewrightError):
        tw.gemm(a, b, target="cpu")


def test_gradients_through_bytes_are_one_error() -> None:
    a = torch.ones(4, 16).to(torch.float8_e4m3fn).requires_grad_()
    made = tw.gemm(a, torch.ones(16, 8).to(torch.float8_e4m3fn))
    with pytest.raises(ProblemError) as caught:
        made.sum().backward()
    assert caught.value.rule == "array-grad"


def _step(queue: Any) -> None:
    a = torch.ones(4, 6, requires_grad=True)
    recorded = tw.gemm(a, torch.ones(6, 5))
    queue.put(float(recorded.detach().sum()) if recorded.requires_grad else -1.0)


_TRANSFORMED: dict[str, Any] = {
    "linear": lambda x: tilewright_torch.nn.linear(x, torch.eye(8)),
    "gemm": lambda x: tw.gemm(x, torch.eye(8), torch.ones(8, 8), beta=0.5),
    "relu": lambda x: tw.gemm(x, torch.eye(8), epilogue="relu"),
    "matmul": lambda x: tw.matmul(x, torch.eye(8)),
    "conv": lambda x: tw.conv(x[None, None], torch.ones(1, 1, 3, 3), layout="nchw", epilogue="relu"),
    "attention": lambda x: tw.attention(*(x[None, :, None],) * 3),
    "op": lambda x: torch.ops.tilewright.gemm(x, torch.eye(8)),
}


@pytest.mark.parametrize("call", _TRANSFORMED)
def test_forward_mode_of_what_requires_grad_is_one_error(call: str) -> None:
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(torch.ones(8, 8, requires_grad=True), torch.ones(8, 8))
        with pytest.raises(ProblemError, match="forward-mode tangent"):
            _TRANSFORMED[call](dual)


@pytest.mark.parametrize("call", _TRANSFORMED)
def test_gradients_batched_the_older_way_are_one_error(call: str) -> None:
    x = torch.ones(8, 8, requires_grad=True)
    y = _TRANSFORMED[call](x)
    with pytest.raises(ProblemError, match="is_grads_batched"):
        torch.autograd.grad(y, x, torch.ones(3, *y.shape), is_grads_batched=True)


def test_parts_that_the_guide_names_are_there() -> None:
    """`tilewright.torch.huggingface.register()` after `import tilewright.torch` alone; neither part comes with it."""
    code = """
import sys
import tilewright.torch
assert not {"tilewright.torch.huggingface", "tilewright.torch.inductor", "transformers"} & set(sys.modules)
assert "inductor" in dir(tilewright.torch) and tilewright.torch.huggingface.NAME == "tilewright"
tilewright.torch.inductor.options, tilewright.torch.sdpa.why_not
assert not hasattr(tilewright.torch, "nothing")
"""
    run(code)


def test_a_forked_child_computes_on() -> None:
    """Forward: a backward in a child is PyTorch's error where the parent ran one ("Autograd and Fork")."""
    a = torch.ones(4, 6, requires_grad=True)
    tw.gemm(a, torch.ones(6, 5))
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_step, args=(queue,))
    child.start()
    assert queue.get(timeout=120) == 4 * 6 * 5
    child.join()
    assert child.exitcode == 0


def _op(queue: Any) -> None:
    queue.put(float(torch.ops.tilewright.matmul(torch.ones(4, 6), torch.ones(6, 5)).sum()))


def test_a_forked_child_makes_the_calls_of_ops_that_its_parent_made() -> None:
    """The table of calls is behind a lock that glibc does not unlock in a child."""
    for _ in range(2):
        torch.ops.tilewright.matmul(torch.ones(4, 6), torch.ones(6, 5))
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_op, args=(queue,), daemon=True)
    child.start()
    assert queue.get(timeout=60) == 4 * 6 * 5
    child.join()
    assert child.exitcode == 0


@pytest.mark.parametrize("way", ["plain", "gradient", "compiled"])
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"mask": torch.ones(8, 8, dtype=torch.bool), "attn_mask": torch.ones(8, 8, dtype=torch.bool)},
            "attn_mask is a mask",
        ),
        ({"bias": torch.ones(8, 8), "attn_mask": torch.ones(8, 8)}, "attn_mask is a bias"),
        ({"window": (1, 2, 3)}, "its third element says how it is aligned"),
        ({"window": (1, 2, 3, 4)}, "give \\(left, right\\)"),
        ({"window": 5}, "give \\(left, right\\)"),
    ],
    ids=["mask", "bias", "third", "four", "number"],
)
def test_masks_given_twice_and_odd_windows_are_one_error_everywhere(
    options: dict[str, Any], said: str, way: str
) -> None:
    q = torch.randn(2, 8, 2, 16, requires_grad=way == "gradient")

    def call() -> Any:
        return tw.attention(q, q, q, **options)

    with pytest.raises(ProblemError, match=said):
        (torch.compile(call, backend="eager") if way == "compiled" else call)()
