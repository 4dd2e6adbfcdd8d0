"""Calls made before: taken by the short path, and right there too.

PyTorch's tensors of the host pose as tensors of a fake GPU: the table through which C reads tensors is replaced by
one that tells another device and stream.  The kernel is host code, so results are numbers that can be compared.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextvars import copy_context
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tests.runtime import fakes
from tests.runtime.fakes import FakeHip
from tilewright import api, ops, settings
from tilewright.errors import DeviceError, LoadError, ProblemError
from tilewright.runtime import calls, fast_path, gpu, hip, torch_arrays
from tilewright.runtime.device_arrays import DeviceArray
from tilewright.runtime.devices import Place
from tilewright.runtime.loader import load_library
from tilewright.runtime.requests import Slot

torch: Any = pytest.importorskip("torch")

ROCM = 10  # kDLROCM
ADD = "MultiDAdd"


class DlTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint32),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
    )


READ = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DlTensor))
STREAM = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))


class Exchange(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("unused", ctypes.c_void_p * 4),
        ("read", READ),
        ("stream", STREAM),
    )


def table_of(capsule: Any) -> Exchange:
    unwrap = ctypes.pythonapi.PyCapsule_GetPointer
    unwrap.restype, unwrap.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return Exchange.from_address(unwrap(capsule, b"dlpack_exchange_api"))


def capsule_of(table: Exchange) -> Any:
    wrap = ctypes.pythonapi.PyCapsule_New
    wrap.restype, wrap.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return wrap(ctypes.addressof(table), b"dlpack_exchange_api", None)


class Pose:
    """Tensors of the host as tensors of a device: of device 0, or the one in `on`."""

    def __init__(self, table: Exchange) -> None:
        self._real = table
        self.on: dict[int, int] = {}
        self.stream = 0
        self.long = 0  # calls that were not C's alone
        self.planned = 0  # plans that were made
        self.table = Exchange(1, 3)
        self.table.read, self.table.stream = READ(self._read), STREAM(self._stream)

    def device_of(self, tensor: Any) -> int:
        return self.on.get(tensor.data_ptr(), 0)

    def _read(self, tensor: Any, found: Any) -> int:
        status = int(self._real.read(tensor, found))
        if status == 0:
            found[0].device_type, found[0].device_id = ROCM, self.device_of(tensor)
        return status

    def _stream(self, _kind: int, _index: int, answer: Any) -> int:
        answer[0] = self.stream
        return 0


def make_pose(fake_hip: FakeHip, monkeypatch: pytest.MonkeyPatch, library: Path) -> Iterator[Pose]:
    original = getattr(torch.Tensor, "__dlpack_c_exchange_api__", None)
    if original is None:
        pytest.skip("this PyTorch does not let C read its tensors")
    pose = Pose(table_of(original))
    monkeypatch.setattr(torch.Tensor, "__dlpack_c_exchange_api__", capsule_of(pose.table))
    monkeypatch.setattr(torch_arrays, "place_of", lambda one, kind="cpu": Place("hip", pose.device_of(one)))
    monkeypatch.setattr(gpu, "torch_stream", lambda place: pose.stream)
    monkeypatch.setattr(torch_arrays, "allocator", lambda place: torch._C._dynamo.guards._empty_strided_cpu)
    monkeypatch.setattr(torch_arrays, "torch_device", lambda place: "cpu")
    planner = calls.OneKernel(load_library(library)[0])
    monkeypatch.setattr(api, "arch_of", lambda place: "fake")
    monkeypatch.setitem(api._registries, "fake", planner)
    monkeypatch.setattr(api, "_targets", {})  # tensors of the host were met before, perhaps
    fast_path.forget()
    long, plan = calls.Caller.run_slow, calls.OneKernel.plan

    def counted_slow(*given: Any) -> Any:
        pose.long += 1
        return long(*given)

    def counted_plan(*given: Any) -> Any:
        pose.planned += 1
        return plan(*given)

    monkeypatch.setattr(calls.Caller, "run_slow", counted_slow)
    monkeypatch.setattr(calls.OneKernel, "plan", counted_plan)
    yield pose
    monkeypatch.undo()
    fast_path.forget()
    native = fast_path.library()
    if native is not None:  # C reads through PyTorch's own table again
        native.use_tensors(torch_arrays.kinds(), *torch_arrays.watched())


@pytest.fixture
def pose(fake_hip: FakeHip, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pose]:
    yield from make_pose(fake_hip, monkeypatch, fake_hip.kernel())


@pytest.fixture
def hungry(fake_hip: FakeHip, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pose]:
    """The same with a kernel that wants a workspace."""
    yield from make_pose(fake_hip, monkeypatch, fake_hip.kernel(workspace=True, clear=192))


@pytest.fixture
def adding(fake_hip: FakeHip, monkeypatch: pytest.MonkeyPatch, library_of: Callable[[str], Path]) -> Iterator[Pose]:
    """The same with a kernel that adds two D tensors."""
    op, problem = ops.op("gemm"), fakes.problem(epilogue="MultiDAdd", num_d=2)
    spec = next(one for one in op.candidates(problem.signature, "gfx942") if not op.supports(one, problem))
    yield from make_pose(fake_hip, monkeypatch, library_of(fakes.kernel_text(spec)))


def matrix(rows: int, columns: int) -> Any:
    return torch.randint(-9, 9, (rows, columns), dtype=torch.int8)


def exact(a: Any, b: Any) -> Any:
    return a.int() @ b.int()


def warm(*given: Any, **named: Any) -> None:
    """The first call plans, the next ones are C's alone."""
    tw.gemm(*given, **named)


# -- reading ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def key() -> Callable[..., bytes | None]:
    """The facts of operands as C reads them."""
    native = fast_path.library()
    if native is None or not native.use_tensors(torch_arrays.kinds(), *torch_arrays.watched()):
        pytest.skip("this PyTorch does not let C read its tensors")
    native.hold(DeviceArray)
    forms = [fast_path.form([Slot("x")] * count, 0) for count in range(1, 4)]

    def read(*operands: Any) -> bytes | None:
        form = forms[len(operands) - 1]
        assert form is not None
        found: Any = form.key((), *operands)
        return None if found is None else found[1]

    return read


def test_a_key_says_everything_but_the_address(key: Callable[..., bytes | None]) -> None:
    whole = torch.zeros(64, 64)
    base = whole[:8, :16]
    same = torch.zeros(64, 64)[:8, :16]
    assert key(base, whole) == key(same, whole) != None  # noqa: E711
    others = [
        whole[:9, :16],  # another shape
        torch.zeros(8, 16),  # other strides
        whole.T[:8, :16],
        whole.view(torch.int32)[:8, :16],  # another type
        whole.bfloat16()[:8, :16],
        whole[None, :8, :16],  # another rank
        whole[0, :16],
        whole.numpy()[:8, :16],  # another library
    ]
    keys = {key(base, whole), *(key(one, whole) for one in others)}
    assert len(keys) == 1 + len(others)
    assert None not in keys
    assert key(whole, base) != key(base, whole)


def test_keys_of_arrays_say_what_plans_depend_on(key: Callable[..., bytes | None]) -> None:
    base = np.zeros((8, 16), np.float32)
    assert key(base) == key(np.ones((8, 16), np.float32)) != None  # noqa: E711
    fixed = base.copy()
    fixed.flags.writeable = False
    assert key(fixed) == key(base)  # it is only read
    others = [base[:, ::-1], base[::2], base.T, base.view(np.int32), base[None], base.astype(">f4"), base[:0]]
    found = {key(base), *map(key, others), key(base.astype(ml_dtypes.bfloat16)), key(np.zeros(()))}
    assert len(found) == len(others) + 3
    assert None not in found
    written = fast_path.form([Slot("out", written=True)], 0)
    assert written is not None
    assert written.key((), fixed) != written.key((), base)
    for strange in (np.zeros((1,) * 7), np.ma.masked_array(base), base.tolist(), np.float32(1), "x"):
        assert key(strange) is None


def test_options_are_known_by_value_and_type() -> None:
    """1, 1.0 and True are equal, and not the same option."""
    form = fast_path.form([Slot("x")], 0)
    assert form is not None
    same: list[Any] = [
        None,
        True,
        False,
        1,
        1.0,
        0,
        0.0,
        -1,
        "1",
        "",
        "é",
        (),
        (1,),
        (1, 1),
        ((1,), 1),
        10**30,
    ]
    same += [np.dtype("f4"), np.float32, np.int64(1), np.float64(1), (None, (None, ("a", 2.5)))]
    keys = [form.key((one,), None) for one in same]
    assert None not in keys
    assert len(set(keys)) == len(same)
    assert keys == [form.key((one,), None) for one in same]
    assert form.key(([1, [1]],), None) == form.key(((1, (1,)),), None)  # a list is read each time, as a tuple
    assert form.key(("a" * 600,), None) == form.key(("a" * 599 + "a",), None) != None  # noqa: E711
    for strange in (("a" * 2000,), tuple(map(np.int64, range(9)))):  # more than C has room for
        assert form.key(strange, None) is None
    assert form.key((1,), None, None) is None  # more operands than the form has
    assert form.key((1,)) == form.key((1,), None)  # those at the end may be left out
    assert form.key([1], None) is None


def test_what_needs_a_longer_look_has_no_key(key: Callable[..., bytes | None]) -> None:
    class Other(torch.Tensor):  # type: ignore[misc]
        pass

    plain = torch.zeros(4, 4)
    assert key(plain) is not None
    assert key(torch.nn.Parameter(torch.zeros(4, 4), requires_grad=False)) is not None
    gone, shrunk = torch.zeros(4, 4), torch.zeros(4, 4)
    gone.untyped_storage().resize_(0)
    shrunk.untyped_storage().resize_(32)
    for one in (
        torch.zeros(4, 4, requires_grad=True),
        torch._neg_view(plain),
        torch._efficientzerotensor((4, 4)),
        gone,
        shrunk,
        plain.to_sparse(),
        plain.as_subclass(Other),
        7,
    ):
        assert key(one) is None
        assert key(plain, one) is None
    with torch.no_grad():
        assert key(torch.zeros(4, 4, requires_grad=True)) is not None


def test_a_lazily_negated_tensor_is_refused_with_its_remedy() -> None:
    for b in (torch.eye(3), torch._neg_view(torch.eye(3))):
        with pytest.raises(ProblemError) as caught:
            tw.gemm(torch._neg_view(torch.ones(3, 3)), b)
        assert "resolve_neg" in caught.value.remedy


# -- calls -----------------------------------------------------------------------------------------------------------


def test_a_call_made_before_stays_in_c(pose: Pose, fake_hip: FakeHip) -> None:
    a, b, out = matrix(33, 40), matrix(17, 40), torch.empty(33, 17, dtype=torch.int32)
    for named in ({}, {"out": out}):
        warm(a, b.T, **named)
        before = pose.long, pose.planned
        for _ in range(20):
            a.copy_(matrix(33, 40))
            out.fill_(-1)
            result = tw.gemm(a, b.T, **named)
            assert torch.equal(result, exact(a, b.T))
            assert (result is out) == bool(named)
        assert (pose.long, pose.planned) == before
    warm(a, b.T, alpha=2, out=out)
    before = pose.long, pose.planned
    for alpha in (2, 3.5):
        assert tw.gemm(a, b.T, alpha=alpha, out=out) is out
        assert torch.equal(out, (alpha * exact(a, b.T)).int())
    assert (pose.long, pose.planned) == before


def test_calls_with_c_stay_in_c_too(pose: Pose) -> None:
    a, b, c = matrix(33, 40), matrix(17, 40), torch.ones(33, 17, dtype=torch.int32)
    out = torch.empty_like(c)
    for named in ({"out": out, "beta": 3}, {"out": c, "beta": 3}, {"beta": 2}, {"out_dtype": "int32"}, {"out": out}):
        old = c if "beta" in named else None
        warm(a, b.T, old, **named)
        before = pose.long, pose.planned
        for _ in range(5):
            expected = exact(a, b.T) + named.get("beta", 0) * c
            assert torch.equal(tw.gemm(a, b.T, old, **named), expected)
        assert (pose.long, pose.planned) == before
    warm(a, b.T, c, out=out, beta=0)  # not read then
    assert torch.equal(tw.gemm(a, b.T, c, out=out, beta=0), exact(a, b.T))
    assert torch.equal(tw.gemm(a, b.T, c, out=out), exact(a, b.T) + c)  # and counted once where nothing is said
    memory = torch.zeros(34, 17, dtype=torch.int32)
    with pytest.raises(ProblemError, match="shares memory with c"):
        tw.gemm(a, b.T, memory[:33], out=memory[1:], beta=3)
    with pytest.raises(ProblemError, match="no c to scale"):
        tw.gemm(a, b.T, out=out, beta=3)


def test_calls_with_ds_stay_in_c_too(adding: Pose) -> None:
    a, b, out = matrix(33, 40), matrix(17, 40), torch.empty(33, 17, dtype=torch.int32)
    row, whole = torch.arange(17, dtype=torch.int32), torch.ones(33, 17, dtype=torch.int32)
    for ds in ((row, whole), [whole, row], (row, row)):
        for named in ({}, {"out": out}):
            warm(a, b.T, ds=ds, epilogue=ADD, **named)
            before = adding.long, adding.planned
            for _ in range(3):
                row += 1
                assert torch.equal(tw.gemm(a, b.T, ds=ds, epilogue=ADD, **named), exact(a, b.T) + ds[0] + ds[1])
            assert (adding.long, adding.planned) == before
    with pytest.raises(ProblemError, match=r"shares memory with ds\[1\]"):
        tw.gemm(a, b.T, ds=(row, out), epilogue=ADD, out=out)
    with pytest.raises(ProblemError):
        tw.gemm(a, b.T, ds=row, epilogue=ADD, out=out)
    with pytest.raises(ProblemError, match="not a name"):
        tw.gemm(a, b.T, ds=(row, whole), epilogue=["relu"], out=out)  # type: ignore[arg-type]


def test_every_fact_that_changes_is_seen(pose: Pose) -> None:
    whole, b = matrix(64, 64), matrix(17, 40)
    out = torch.empty(64, 32, dtype=torch.int32)
    warm(whole[:33, :40], b.T)
    warm(whole[:33, :40], b.T, out=out[:33, :17])
    cases = [
        (whole[:33, :40], b.T),
        (whole[:20, :40], b.T),
        (whole[:33, 3:43], b.T),  # another alignment
        (whole[:33, :40].contiguous(), b.T),
        (whole[:33, :40], matrix(5, 40).T),
        (whole[:33, :40], matrix(17, 80)[:, ::1][:, :40].T),
    ]
    for x, y in cases * 3:
        assert torch.equal(tw.gemm(x, y), exact(x, y))
        into = out[: x.shape[0], : y.shape[1]]
        out.fill_(-(10**6))
        tw.gemm(x, y, out=into)
        assert torch.equal(into, exact(x, y))
        assert int((out == -(10**6)).sum()) == out.numel() - into.numel()
    for wrong in (whole[:33, :40].float(), whole[:33, :39], whole[0, :40]):
        with pytest.raises(ProblemError):
            tw.gemm(wrong, b.T)
    with pytest.raises(ProblemError):
        tw.gemm(whole[:33, :40], b.T, out=torch.empty(33, 18, dtype=torch.int32))
    with pytest.raises(ProblemError):
        tw.gemm(whole[:33, :40], b.T, out=torch.empty(33, 17))


def test_addresses_that_are_used_again_are_no_memory_of_old_calls(pose: Pose) -> None:
    warm(matrix(8, 16), matrix(8, 16).T)
    before = pose.long
    for _ in range(200):  # freed tensors, whose addresses come back as other operands
        a, b = matrix(8, 16), matrix(8, 16)
        assert torch.equal(tw.gemm(a, b.T), exact(a, b.T))
    assert pose.long == before


def test_overlap_is_looked_at_in_every_call(pose: Pose) -> None:
    memory = torch.zeros(64, 64, dtype=torch.int32)
    a, b, out = memory.view(torch.int8)[:32, :32], matrix(32, 32), memory[:32, 32:]
    warm(a, b.T, out=out)
    before = pose.planned
    assert torch.equal(tw.gemm(a, b.T, out=memory[32:, 32:]), exact(a, b.T))
    assert pose.planned == before
    with pytest.raises(ProblemError, match="shares memory with a"):
        tw.gemm(a, b.T, out=memory[:32, :32])
    # Ranges that meet while no byte is shared: the long path finds out, and runs it.
    assert torch.equal(tw.gemm(a, b.T, out=memory[:32, 16:48]), exact(a, b.T))
    with pytest.raises(ProblemError, match="not a real number"):
        tw.gemm(a, b.T, out=out, alpha="much")


def test_the_stream_of_the_moment_is_used(pose: Pose, fake_hip: FakeHip) -> None:
    a, b, out = matrix(8, 16), matrix(8, 16), torch.empty(8, 8, dtype=torch.int32)
    warm(a, b.T, out=out)
    for stream in (0x1000, 0x2000, 0):
        pose.stream = stream
        before = pose.planned
        tw.gemm(a, b.T, out=out)
        assert (fake_hip.last_stream, pose.planned) == (stream, before)
        tw.gemm(a, b.T, out, beta=1, out=out)
        assert fake_hip.last_stream == stream
    with hip.device().new_stream() as mine:
        tw.gemm(a, b.T, out=out)
    assert fake_hip.last_stream == mine.handle


def test_another_device_is_made_current_and_left_again(pose: Pose, fake_hip: FakeHip) -> None:
    fake_hip.has(2)
    a, b, out = matrix(8, 16), matrix(8, 16), torch.empty(8, 8, dtype=torch.int32)
    warm(a, b.T, out=out)
    there = [one.clone() for one in (a, b, out)]
    pose.on = {one.data_ptr(): 1 for one in there}
    x, y, z = there
    for _ in range(3):
        seen = fake_hip.calls("hipSetDevice")
        z.zero_()
        tw.gemm(x, y.T, out=z)
        assert torch.equal(z, exact(x, y.T))
        assert (fake_hip.calls("hipSetDevice"), fake_hip.current_device) == (seen + 2, 0)
    with pytest.raises(ProblemError, match="hip:0 and b on hip:1"):
        tw.gemm(a, y.T)
    assert torch.equal(tw.gemm(a, b.T, out=out), exact(a, b.T))


def test_a_launch_that_fails_is_told_and_the_next_one_works(pose: Pose, fake_hip: FakeHip) -> None:
    a, b, out = matrix(8, 16), matrix(8, 16), torch.empty(8, 8, dtype=torch.int32)
    for named in ({}, {"out": out}, {"out": out, "alpha": 2, "out_dtype": "int32"}):
        warm(a, b.T, **named)
        long = pose.long
        fake_hip.fail("hipLaunchKernel", 98)
        with pytest.raises(DeviceError, match="98"):
            tw.gemm(a, b.T, **named)
        assert torch.equal(tw.gemm(a, b.T, **named), named.get("alpha", 1) * exact(a, b.T))
        assert pose.long == long


def test_settings_and_their_end_are_seen(pose: Pose) -> None:
    a, b = matrix(8, 16), matrix(8, 16)
    warm(a, b.T)
    before = pose.long
    with settings.override(threads=3):
        warm(a, b.T)
        assert pose.long > before
    before = pose.long
    tw.gemm(a, b.T)
    assert pose.long == before


def test_threads_do_not_mix_their_calls(pose: Pose) -> None:
    warm(matrix(8, 16), matrix(8, 16).T)
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(150):
            a, b = matrix(8, 16), matrix(8, 16)
            if not torch.equal(tw.gemm(a, b.T), exact(a, b.T)):
                wrong.append((a, b))

    threads = [threading.Thread(target=copy_context().run, args=(work,)) for _ in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not wrong


def test_workspaces_are_those_of_the_stream(hungry: Pose, fake_hip: FakeHip) -> None:
    a, b, out = matrix(33, 40), matrix(17, 40), torch.empty(33, 17, dtype=torch.int32)
    for named in ({}, {"out": out}):
        warm(a, b.T, **named)
        for stream in (0x1000, 0x2000):
            hungry.stream = stream
            assert torch.equal(tw.gemm(a, b.T, **named), exact(a, b.T))  # allocates on a stream never seen
            before = hungry.long, hungry.planned, fake_hip.calls("hipMalloc")
            assert torch.equal(tw.gemm(a, b.T, **named), exact(a, b.T))
            assert (hungry.long, hungry.planned, fake_hip.calls("hipMalloc")) == before
    hip.device().drop_workspaces()
    assert torch.equal(tw.gemm(a, b.T), exact(a, b.T))
    # A graph keeps the address: such a call is not C's alone.
    fake_hip.capture(hungry.stream)
    seen = hungry.long
    tw.gemm(a, b.T, out=out)
    fake_hip.capture(hungry.stream, on=False)
    assert hungry.long == seen + 1
    assert hip.device()._pinned
    hip.device().drop_workspaces()


def test_nobody_comes_between_the_kernels_of_a_call(hungry: Pose) -> None:
    """A plan's kernels hand on parts in the stream's workspace; a call of another thread waits until all are queued."""
    a, b, device = matrix(33, 40), matrix(17, 40), hip.device()
    warm(a, b.T)
    came = threading.Event()

    def call() -> None:
        tw.gemm(a, b.T)
        came.set()

    other = threading.Thread(target=copy_context().run, args=(call,))
    with device.scratch(1024, 192) as (_, stream):
        assert stream == hungry.stream
        other.start()
        assert not came.wait(0.2)
    other.join()
    assert came.is_set()
    seen = hungry.long
    assert torch.equal(tw.gemm(a, b.T), exact(a, b.T))
    assert hungry.long == seen  # it is C's alone again
    device.drop_workspaces()


def test_our_own_arrays_have_the_short_path_too(pose: Pose) -> None:
    a, b, out = matrix(33, 40), matrix(17, 40), torch.zeros(33, 17, dtype=torch.int32)
    held = [DeviceArray.of(hip.device(), one.numpy()) for one in (a, b, out)]
    x, y, z = held
    warm(x, y.T, out=z)
    before = pose.long
    for _ in range(3):
        tw.gemm(x, y.T, out=z)
        assert (z.numpy() == exact(a, b.T).numpy()).all()
        assert (tw.gemm(x, y.T, alpha=2).numpy() == 2 * exact(a, b.T).numpy()).all()
    assert pose.long == before + 1  # of the first without out
    late = DeviceArray(z.device, z._memory, (30, 17), z.strides, "int32")
    late.address = z.address + 2
    for _ in range(2):
        with pytest.raises(ProblemError, match="not a multiple of its 4-byte elements"):
            tw.gemm(DeviceArray(x.device, x._memory, (30, 40), x.strides, "int8"), y.T, out=late)


def test_without_the_library_python_does_the_same(pose: Pose, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> Any:
        raise LoadError("no compiler here", rule="toolchain")

    monkeypatch.setattr(fast_path, "_loaded", None)
    monkeypatch.setattr(fast_path, "_failed", [])
    monkeypatch.setattr(fast_path, "_build", refuse)
    monkeypatch.setattr(calls.caller("gemm"), "fast", calls._nothing)
    a, b, out = matrix(33, 40), matrix(17, 40), torch.empty(33, 17, dtype=torch.int32)
    warm(a, b.T)
    warm(a, b.T, out=out)
    before = pose.planned
    for _ in range(3):
        a.copy_(matrix(33, 40))
        assert torch.equal(tw.gemm(a, b.T), exact(a, b.T))
        assert torch.equal(tw.gemm(a, b.T, out=out), exact(a, b.T))
    assert pose.planned == before
    assert pose.long >= 8
    memory = torch.zeros(64, 64, dtype=torch.int32)
    a = memory.view(torch.int8)[:33, :40]
    with pytest.raises(ProblemError, match="shares memory"):
        tw.gemm(a, b.T, out=memory[:33, :17])
