"""The library behind PyTorch's ops: a call made before goes from PyTorch's dispatcher to the launch without Python.

It is built once through the kernel store (its text is `native/torch_ops.cpp`) and calls PyTorch through its stable C
interface, so it needs no headers of PyTorch's and serves every release from 2.11 on.  It knows no op: `serve` gives it
the kinds of an op's arguments, and `Served.run` makes the calls it does not know yet.
"""

from __future__ import annotations

import ctypes
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright import notices, settings
from tilewright.dataclass import NamedTuple
from tilewright.errors import LoadError
from tilewright.runtime import fast_path
from tilewright.runtime.calls import Note, watched
from tilewright.runtime.devices import HOST
from tilewright.runtime.plans import MOST_PLANS, Plan
from tilewright.runtime.streams import SCOPED
from tilewright.runtime.torch_arrays import questions
from tilewright.runtime.torch_reader import autograd_at, reader

if TYPE_CHECKING:
    from tilewright.backends.base import Source

VERSION = 2
_MOST_DIMENSIONS = 8
_MOST_KEY_BYTES = 8192
_SERVED = (HOST.kind, "cuda")  # kinds of devices whose streams PyTorch's C interface has
_int, _pointer, _object = ctypes.c_int64, ctypes.c_void_p, ctypes.py_object

# How the library writes what an argument is, by its type in a schema.
KINDS = {
    "Tensor": "t", "Optional[Tensor]": "T", "float": "f", "Optional[float]": "F", "str": "s",
    "Optional[ScalarType]": "D", "int": "i", "SymInt": "i", "bool": "b", "List[int]": "l", "List[SymInt]": "l",
    "Optional[List[int]]": "L",
}  # fmt: skip


class _Result(ctypes.Structure):
    _fields_ = (
        *((name, _int) for name in ("slot", "dtype", "device_type", "device_index", "rank")),
        ("sizes", _int * _MOST_DIMENSIONS),
        ("strides", _int * _MOST_DIMENSIONS),
    )


class _Plan(ctypes.Structure):
    _fields_ = (
        *((name, _pointer) for name in ("stage", "span", "argument", "scalar", "made")),
        *((name, _int) for name in ("stages", "slots", "scalars", "mades", "scratch_bytes", "clear_bytes", "between")),
        *((name, _int) for name in ("device_type", "device_index")),
        ("written", ctypes.c_uint64),
        *((name, _pointer) for name in ("team", "current")),
        ("expected", ctypes.c_uint64),
    )


_FUNCTIONS = (
    "PyGILState_Ensure", "PyGILState_Release", "PyContextVar_Get", "PyObject_GetAttr", "PyObject_Str",
    "PyObject_Vectorcall", "PyTuple_New", "PyTuple_SetItem", "PyTuple_GetItem", "PyTuple_Size", "PyLong_FromLongLong",
    "PyLong_FromVoidPtr", "PyLong_AsLong", "PyBool_FromLong", "PyFloat_FromDouble", "PyUnicode_FromStringAndSize",
    "PyUnicode_AsUTF8AndSize", "PyCapsule_New", "PyCapsule_GetPointer", "PyErr_Fetch", "PyErr_NormalizeException",
    "PyErr_Restore", "PyErr_Clear", "Py_IncRef", "Py_DecRef",
)  # fmt: skip


class _Python(ctypes.Structure):
    _fields_ = (
        *((name, _pointer) for name in (*_FUNCTIONS, "call", "none")),
        ("variables", _pointer * 2),
        ("forward", _pointer),
        ("level", _pointer),
    )


class _Dispatch(ctypes.Structure):
    _fields_ = (
        ("keys_at", _int),
        ("meta_at", _int),
        ("autograd_keys", ctypes.c_uint64),
        ("library", _pointer),
        ("state", ctypes.c_char_p),
    )


class Served(NamedTuple):
    """An op at a dispatch key, as Python makes its calls."""

    op: str
    run: Callable[..., Any]
    operands: int  # so many arguments are given by place, all others by these names
    names: tuple[str, ...]
    tensors: tuple[int, ...]  # which arguments are tensors, and which types of elements
    dtypes: tuple[int, ...]
    writes: bool = False  # some of the tensors
    autograd: bool = False  # it is served where autograd begins, and a tensor may be anything


class Described(NamedTuple):
    """A plan as C has it, and what keeps that alive."""

    plan: _Plan
    keep: tuple[Any, ...]

    def stages(self) -> list[Any]:
        array = ctypes.cast(self.plan.stage, ctypes.POINTER(fast_path._Stage))
        return [array[index] for index in range(self.plan.stages)]


Recorder = Callable[[str, bytes, "Plan | None", "Described | None"], None]


class Sizes(NamedTuple):
    """Bytes of the structs a plan is made of."""

    span: int
    result: int
    stage: int
    pointer: int
    scalar: int


SIZES = Sizes(*map(ctypes.sizeof, (fast_path._Span, _Result, fast_path._Stage, fast_path._Pointer, fast_path._Scalar)))


def _part(objects: list[Any], tensors: Sequence[int]) -> None:
    """Let a tensor that is given twice be two objects: what is remembered says which argument every operand is."""
    seen: set[int] = set()
    for at in tensors:
        if objects[at] is not None and id(objects[at]) in seen:
            objects[at] = objects[at].detach()
        seen.add(id(objects[at]))


class Counts(NamedTuple):
    """Of calls through the library: those it made alone, those Python made, and how many it knows."""

    alone: int
    by_python: int
    known: int


def library_source() -> Source:
    from tilewright.backends.base import Source

    return Source("tilewright_torch_ops.cpp", fast_path.source("torch_ops.cpp"), "c++", cxx_library=True)


def build() -> Path:
    """Through the kernel store, for the plainest arch of the host."""
    from tilewright.arch import runnable_host_archs
    from tilewright.build import build_source

    return build_source(library_source(), runnable_host_archs()[-1].name).path


class Library:
    """The loaded library, as long as the process lives; PyTorch must be imported."""

    def __init__(self, path: Path, torch: Any) -> None:
        self.path, self._torch = path, torch
        try:
            self._native = ctypes.CDLL(str(path))
            self._functions = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        except OSError as error:
            raise LoadError(f"{path.name}: {error}", rule="torch-library", value=str(path)) from error
        self._declare()
        structs = (_Result, _Plan, _Python, _Dispatch, fast_path._Stage, fast_path._Span)
        sizes = [self._native.tw_torch_sizes(_int(index)) for index in range(len(structs))]
        if self._native.tw_torch_abi_version() != VERSION or sizes != [ctypes.sizeof(struct) for struct in structs]:
            raise LoadError(f"{path.name} is of another version", rule="torch-library", value=str(path))
        if self._native.tw_torch_start():
            raise self._error()
        self._steal = torch._C._aoti.alloc_tensors_by_stealing_from_void_ptrs
        self._lend = torch._C._aoti.unsafe_alloc_void_ptrs_from_tensors
        self._served: dict[int, Served] = {}
        self._recorder: Recorder | None = None
        self._libraries: dict[str, ctypes.c_void_p] = {}
        self._dtypes = self._all_dtypes()
        self._keep = self._python()
        self._native.tw_torch_most(_int(MOST_PLANS))
        self._native.tw_torch_python(ctypes.byref(self._keep[0]), self._keep[1] and ctypes.byref(self._keep[1]))
        notices.changed.append(self.forget)
        notices.scoped.append(self._native.tw_torch_scopes)

    @property
    def serves_autograd(self) -> bool:
        """Whether it can distinguish plain tensors from others where autograd begins."""
        return self._keep[1] is not None

    def serve(self, key: str, kinds: str, results: int, served: Served) -> None:
        """Handle the calls of an op at a dispatch key here; those it does not know, `served` makes."""
        place = self._libraries.setdefault(key, ctypes.c_void_p())
        texts = (text.encode() for text in ("tilewright", key, served.op, kinds))
        switches = _int(served.autograd), _int(served.writes)
        number = self._native.tw_torch_serve(*texts, _int(results), *switches, ctypes.byref(place))
        if number < 0:
            raise self._error()
        self._served[number] = served

    def forget(self) -> None:
        """What calls depend on has changed: all are planned anew."""
        self._native.tw_torch_forget()

    def close(self) -> None:
        """Python ends: calls from now on are made without it, or refused."""
        self._native.tw_torch_python(None, None)

    def counts(self) -> Counts:
        counts = (_int * 3)()
        self._native.tw_torch_counts(counts)
        return Counts(*counts)

    def keep_at_most(self, calls: int) -> None:
        """For tests."""
        self._native.tw_torch_most(_int(calls))

    # -- the way from C to Python ----------------------------------------------------------------

    def _declare(self) -> None:
        native = self._native
        native.tw_torch_abi_version.restype = native.tw_torch_sizes.restype = native.tw_torch_serve.restype = _int
        native.tw_torch_key.restype = _int
        native.tw_torch_problem.restype = ctypes.c_char_p
        native.tw_torch_python.restype = native.tw_torch_forget.restype = native.tw_torch_scopes.restype = None
        native.tw_torch_counts.restype = native.tw_torch_most.restype = None

    def _python(self) -> tuple[_Python, _Dispatch | None, tuple[Any, ...]]:
        forward, level, call = self._torch.autograd.forward_ad, sys.intern("_current_level"), self._call
        python = _Python(call=id(call), none=id(None), forward=id(forward), level=id(level))
        for name in _FUNCTIONS:
            setattr(python, name, ctypes.cast(getattr(ctypes.pythonapi, name), _pointer))
        python.variables[0], python.variables[1] = id(settings.SCOPED), id(SCOPED)
        read = reader(self._torch)
        dispatch = None
        if read is not None:
            dispatch = _Dispatch(read.keys_at, autograd_at(self._torch), read.autograd_keys, read.library, read.state)
        return python, dispatch, (forward, level, call, read)

    def _call(self, op: int, pending: int, *values: Any) -> tuple[Any, ...]:
        """A call that C does not know; tensors come and go as capsules of handles."""
        served, objects = self._served[op], list(values)
        tensors = [(at, values[at]) for at in served.tensors if values[at] is not None]
        for (at, _), tensor in zip(tensors, self._steal([capsule for _, capsule in tensors]), strict=True):
            objects[at] = tensor
        if pending and served.autograd and self._unusual():
            pending = 0
        if pending:
            _part(objects, served.tensors)
        for at in served.dtypes:
            objects[at] = None if values[at] is None else self._dtypes[values[at]]
        options = dict(zip(served.names, objects[served.operands :], strict=True))
        notes: list[Note] = []
        if pending:
            with watched() as notes:
                answer = served.run(*objects[: served.operands], **options)
        else:
            answer = served.run(*objects[: served.operands], **options)
        answers = list(answer) if isinstance(answer, (tuple, list)) else [] if answer is None else [answer]
        if pending:
            self._remember(served, pending, notes, objects, answers)
        return tuple(self._lend(answers))

    def _unusual(self) -> bool:
        """Whether PyTorch does more than to run calls in this thread: modes, tracing, transforms, autocast."""
        return any(question() for question in questions(self._torch).unusual)

    # -- remembering -----------------------------------------------------------------------------

    def _remember(
        self, served: Served, pending: int, notes: Sequence[Note], values: Sequence[Any], answers: Sequence[Any]
    ) -> None:
        """Tell C how to make such a call, or that it is Python's."""
        described = self._describe(notes[0], values, answers) if len(notes) == 1 else None
        self._native.tw_torch_remember(_pointer(pending), None if described is None else ctypes.byref(described.plan))
        if self._recorder is not None:
            key = ctypes.create_string_buffer(_MOST_KEY_BYTES)
            length = self._native.tw_torch_key(_pointer(pending), key, _int(_MOST_KEY_BYTES))
            self._recorder(served.op, key.raw[:length], notes[0].plan if len(notes) == 1 else None, described)

    @contextmanager
    def recorded(self, recorder: Recorder) -> Iterator[None]:
        """Tell of every call in the body by its op, its key, its plan and how C makes it; None where it cannot."""
        self._recorder = recorder
        self.forget()
        try:
            yield
        finally:
            self._recorder = None

    def names(self) -> set[str]:
        """The ops that are served."""
        return {served.op for served in self._served.values()}

    def _describe(self, note: Note, values: Sequence[Any], answers: Sequence[Any]) -> Described | None:
        """A call as C makes it, and what that needs; None where it cannot: there every operand is an argument, and
        every result that is no operand is an answer."""
        plan = note.plan
        if note.counter is not None or note.looked_at or plan.in_copies or plan.place.kind not in _SERVED:
            return None
        objects = {id(value): index for index, value in enumerate(values) if value is not None}
        slots = [-1 if operand is None else objects.get(id(operand), -2) for operand in note.operands]
        example, *others = [operand for operand in note.operands if operand is not None]
        if any(other.device != example.device for other in others):
            return None  # pinned memory of the host, whose facts are those of memory that a device does not read
        made_at = {id(result): slot for slot, (result, _) in note.results.items()}
        if -2 in slots or len(made_at) != len(answers) or any(id(answer) not in made_at for answer in answers):
            return None
        if any(answer.dim() > _MOST_DIMENSIONS or answer.storage_offset() for answer in answers):
            return None
        prepared = fast_path.prepare(plan, (), ())
        if prepared is None:
            return None
        mades = (_Result * len(answers))(*[self._result(made_at[id(answer)], answer) for answer in answers])
        arguments, scalars = (_int * len(slots))(*slots), (ctypes.c_double * len(note.scalars))(*note.scalars)
        native = prepared.call
        described = _Plan(
            stage=native.stage, span=native.span, argument=ctypes.addressof(arguments),
            scalar=ctypes.addressof(scalars), made=ctypes.addressof(mades), stages=native.stages, slots=len(slots),
            scalars=len(scalars), mades=len(mades), scratch_bytes=native.scratch_bytes,
            clear_bytes=native.clear_bytes, between=native.between, device_type=self._number("device_type", example),
            device_index=self._number("device_index", example), team=native.team,
            written=sum(1 << slot for slot in note.written), current=native.current, expected=native.expected,
        )  # fmt: skip
        return Described(described, (prepared, mades, arguments, scalars))

    def _result(self, slot: int, tensor: Any) -> _Result:
        result = _Result(slot=slot, rank=tensor.dim(), dtype=self._number("dtype", tensor))
        result.device_type = self._number("device_type", tensor)
        result.device_index = self._number("device_index", tensor)
        for index, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
            result.sizes[index], result.strides[index] = size, stride
        return result

    def _number(self, what: str, tensor: Any) -> int:
        """A number that PyTorch's C interface has of a tensor."""
        impl, answer = _pointer(tensor._cdata), ctypes.c_int32()
        getattr(self._functions, f"aoti_torch_get_{what}")(ctypes.byref(impl), ctypes.byref(answer))
        return answer.value

    def _all_dtypes(self) -> dict[int, Any]:
        """PyTorch's types by the numbers its C interface has for them."""
        torch = self._torch
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of some types PyTorch says that they are experimental, or old
            kinds = {kind for kind in vars(torch).values() if isinstance(kind, torch.dtype)}
            return {self._number("dtype", torch.empty(0, dtype=kind, device="meta")): kind for kind in kinds}

    def _error(self) -> LoadError:
        text = self._native.tw_torch_problem().decode()
        return LoadError(f"PyTorch's ops stay Python's: {text}", rule="torch-library", value=text)
