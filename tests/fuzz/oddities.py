"""Everything a call may be given that is not memory with numbers: other element types, strange tensors, no arrays at
all; scalars and names, right and wrong.  Each has a name, so that a recipe can be printed and made again.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from tests.fuzz.capsules import produce
from tests.fuzz.libraries import torch
from tests.fuzz.memory import OURS, Array, Foreign, Junk, Live, Strange, numpy_type


class Refused:
    """Stands for a value that must be refused."""


REFUSED = Refused()


class Either:
    """Stands for a value of which nothing is promised but that it does no harm."""


EITHER = Either()


# -- arrays ------------------------------------------------------------------------------------------------------------


class Subclass(np.ndarray[Any, Any]):
    """An array that says something of its own whenever NumPy lets it."""

    def __array_finalize__(self, other: Any) -> None:
        self.note = getattr(other, "note", "new")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **more: Any) -> Any:
        raise AssertionError("nobody computes with this")


# A tensor with a name of its own and nothing else.
Plain: Any = None if torch is None else type("Plain", (torch.Tensor,), {})


def _numpy_thing(live: Live, one: Array) -> Any:
    view: Any = live.view
    if not one.writeable:
        view = view.view()
        view.flags.writeable = False
    if one.kind == "matrix" and view.ndim == 2:
        return view.view(np.matrix)
    if one.kind == "masked":
        return np.ma.MaskedArray(view, mask=np.zeros(view.shape, bool), copy=False)
    if one.kind == "memmap":
        return view.view(np.memmap)
    return view.view(Subclass) if one.kind == "subclass" else view


def _torch_thing(live: Live, one: Array) -> Any:
    kind = getattr(torch, one.dtype)
    size = one.itemsize
    steps = [stride // size for stride in one.strides]
    last = max(1, 1 + sum(max(0, (n - 1) * step) for n, step in zip(one.shape, steps, strict=True)))
    base: Any = live.base
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inference = torch.inference_mode() if one.kind == "inference" else torch.no_grad()
        with inference:
            whole = torch.frombuffer(base, dtype=kind, count=last, offset=live.start) if one.count else None
            found = torch.empty(0, dtype=kind) if whole is None else whole
            found = found.as_strided(one.shape, steps)
            if one.kind == "neg":
                found = torch._neg_view(found)
    if one.kind == "grad":
        found = found.detach().requires_grad_(True)
    if one.kind == "parameter":
        return torch.nn.Parameter(found, requires_grad=False)
    return found.as_subclass(Plain) if one.kind == "subclass" else found


def thing_of(live: Live) -> Any:
    """The object a call gets for an array."""
    one = live.recipe
    assert isinstance(one, Array)
    if one.library == "dlpack":
        return produce(live)
    return _numpy_thing(live, one) if one.library == "numpy" else _torch_thing(live, one)


# -- element types nobody multiplies -----------------------------------------------------------------------------------

NUMPY_TYPES: dict[str, Any] = {
    **{np.dtype(code).name: np.dtype(code) for code in np.typecodes["All"] if code not in "SUVOMm"},
    "S3": "S3", "U3": "U3", "V5": "V5", "V0": "V0", "S0": "S0", "object": object, "datetime": "M8[s]",
    "timedelta": "m8[ms]", "structured": [("x", "f4"), ("y", "i1")], "one field": [("x", "f4")],
    "record": np.dtype((np.record, [("x", "f4")])), "swapped f8": ">f8",
    "swapped int": ">i4", "long": "longlong", 
    "int with fields": np.dtype((np.int32, {"x": (np.int16, 0), "y": (np.int16, 2)})),
    **{name: getattr(ml_dtypes, name) for name in dir(ml_dtypes) if name[0] in "bfiu" and name[-1].isdigit()},
    **{name: getattr(ml_dtypes, name) for name in dir(ml_dtypes) if name.startswith("float8")},
}  # fmt: skip
if hasattr(np, "dtypes") and hasattr(np.dtypes, "StringDType"):
    NUMPY_TYPES["StringDType"] = np.dtypes.StringDType()
TORCH_TYPES: dict[str, Any] = (
    {} if torch is None else {str(one): one for one in vars(torch).values() if isinstance(one, torch.dtype)}
)


def foreign(one: Foreign) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if one.library == "numpy":
            return np.zeros(one.shape, NUMPY_TYPES[one.dtype])
        kind = TORCH_TYPES[one.dtype]
        try:
            return torch.zeros(one.shape, dtype=kind)
        except (RuntimeError, NotImplementedError):  # some types can be had, but not filled
            return torch.empty(one.shape, dtype=kind)


def foreign_name(one: Foreign) -> str | None:
    """Tilewright's name of the elements, None where it has none; of the values all are 0 then."""
    if one.library == "torch":
        return OURS.get(one.dtype.removeprefix("torch."))
    kind = np.dtype(NUMPY_TYPES[one.dtype])
    return OURS.get(kind.name) if kind.fields is None and kind.isnative else None


# -- strange tensors ---------------------------------------------------------------------------------------------------


def _resized(shape: tuple[int, ...], to: int) -> Any:
    found = torch.ones(shape)
    found.untyped_storage().resize_(to)
    return found


def _fake(shape: tuple[int, ...]) -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        return torch.ones(shape)


def _conjugated(shape: tuple[int, ...]) -> Any:
    return torch.ones(shape, dtype=torch.complex64).conj()


def _imaginary(shape: tuple[int, ...]) -> Any:
    """A view of floats that are negated only when PyTorch reads them."""
    return torch.ones(shape, dtype=torch.complex64).conj().imag


def _nested(shape: tuple[int, ...]) -> Any:
    return torch.nested.nested_tensor([torch.ones(shape), torch.ones(shape)])


_STRANGE: dict[str, Callable[[tuple[int, ...]], Any]] = {
    "meta": lambda shape: torch.empty(shape, device="meta"),
    "sparse": lambda shape: torch.ones(shape).to_sparse(),
    "csr": lambda shape: torch.ones(shape if len(shape) > 1 else (2, 2)).to_sparse_csr(),
    "mkldnn": lambda shape: torch.ones(shape).to_mkldnn(),
    "nested": _nested,
    "quantized": lambda shape: torch.quantize_per_tensor(torch.ones(shape), 0.1, 0, torch.qint8),
    "zero": lambda shape: torch._efficientzerotensor((*shape,)),
    "gone": lambda shape: _resized(shape, 0),
    "shrunk": lambda shape: _resized(shape, 3),
    "fake": _fake,
    "conjugated": _conjugated,
    "imaginary": _imaginary,
    "functional": lambda shape: torch._to_functional_tensor(torch.ones(shape)),
}
STRANGE = {} if torch is None else _STRANGE


def strange(one: Strange) -> Any:
    """None where this PyTorch makes no such tensor of the shape."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return STRANGE[one.name](one.shape)
        except (RuntimeError, NotImplementedError, ValueError, TypeError):
            return None


# -- no arrays ---------------------------------------------------------------------------------------------------------


class Raises:
    """Something that answers every question with an error."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")

    def __repr__(self) -> str:
        raise RuntimeError("no words either")


class HalfDlpack:
    """Something that says where it is, and no more."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


class Shaped:
    shape = (2, 2)
    dtype = np.dtype(np.float32)


class OddShape:
    """Its shape is none."""

    shape = 3
    dtype = "float32"


JUNK: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "int": lambda: 3,
    "float": lambda: 2.5,
    "text": lambda: "a",
    "list": lambda: [[1.0, 2.0], [3.0, 4.0]],
    "empty tuple": tuple,
    "object": object,
    "numpy scalar": lambda: np.float32(3),
    "ndarray type": lambda: np.ndarray,
    "dtype": lambda: np.dtype("f4"),
    "bytes": lambda: b"\0" * 64,
    "memoryview": lambda: memoryview(bytearray(64)),
    "raises": Raises,
    "half of DLPack": HalfDlpack,
    "shaped": Shaped,
    "odd shape": OddShape,
    "generator": lambda: iter(()),
    "arrays": lambda: [np.ones((2, 2), np.float32)],
    **({} if torch is None else {"tensor type": lambda: torch.Tensor}),
}


def junk(one: Junk) -> Any:
    return JUNK[one.name]()


# -- scalars -----------------------------------------------------------------------------------------------------------


class Floats:
    """Not a number, though it can be made one."""

    def __float__(self) -> float:
        return 2.0


class Float(float):
    pass


ABSENT = "absent"
# By name: what is given, and the number it means.
SCALARS: dict[str, tuple[Callable[[], Any], Any]] = {
    "1.0": (lambda: 1.0, 1.0),
    "0.0": (lambda: 0.0, 0.0),
    "2.0": (lambda: 2.0, 2.0),
    "-0.5": (lambda: -0.5, -0.5),
    "0.1": (lambda: 0.1, 0.1),
    "1": (lambda: 1, 1.0),
    "0": (lambda: 0, 0.0),
    "-3": (lambda: -3, -3.0),
    "-0.0": (lambda: -0.0, 0.0),
    "f4": (lambda: np.float32(0.3), float(np.float32(0.3))),
    "f8": (lambda: np.float64(2.5), 2.5),
    "f2": (lambda: np.float16(0.25), 0.25),
    "i8": (lambda: np.int64(2), 2.0),
    "u1": (lambda: np.uint8(2), 2.0),
    "bf16": (lambda: ml_dtypes.bfloat16(2), 2.0),
    "0-d": (lambda: np.array(2.0), 2.0),
    "0-d int": (lambda: np.array(1), 1.0),
    "subclass": (lambda: Float(2.0), 2.0),
    "fraction": (lambda: Fraction(1, 2), 0.5),
    "nan": (lambda: float("nan"), float("nan")),
    "inf": (lambda: float("inf"), float("inf")),
    "-inf": (lambda: float("-inf"), float("-inf")),
    "1e300": (lambda: 1e300, 1e300),
    "1e-300": (lambda: 1e-300, 1e-300),
    "long double": (lambda: np.longdouble(2), 2.0),
    "10**30": (lambda: 10**30, 1e30),
    "True": (lambda: True, REFUSED),
    "np.True_": (lambda: np.True_, REFUSED),
    "0-d bool": (lambda: np.array(True), REFUSED),
    "None": (lambda: None, REFUSED),  # of beta it means what it means not to give it
    "text": (lambda: "1", REFUSED),
    "np.str_": (lambda: np.str_("2"), REFUSED),
    "0-d text": (lambda: np.array("2"), REFUSED),
    "bytes": (lambda: b"1", REFUSED),
    "np.bytes_": (lambda: np.bytes_(b"2"), REFUSED),
    "1j": (lambda: 1j, REFUSED),
    "c8": (lambda: np.complex64(1), REFUSED),
    "array": (lambda: np.ones(3), REFUSED),
    "1-d": (lambda: np.ones(1), REFUSED),
    "list": (lambda: [1.0], REFUSED),
    "date": (lambda: np.datetime64("2000"), REFUSED),
    "span": (lambda: np.timedelta64(2, "s"), REFUSED),
    "0-d span": (lambda: np.array(2, "m8[s]"), REFUSED),
    "void": (lambda: np.void(b"\0\0\0\0"), REFUSED),
    "0-d object": (lambda: np.array(2.0, object), EITHER),
    "0-d None": (lambda: np.array(None, object), REFUSED),
    "0-d True": (lambda: np.array(True, object), REFUSED),
    "decimal": (lambda: Decimal(2), EITHER),
    "10**400": (lambda: 10**400, REFUSED),
    "-10**5000": (lambda: -(10**5000), REFUSED),
    "floats": (Floats, EITHER),
    "odd shape": (OddShape, REFUSED),
    "object": (object, REFUSED),
    "raises": (Raises, REFUSED),
}
TENSOR_SCALARS: dict[str, tuple[Callable[[], Any], Any]] = {
    "tensor": (lambda: torch.tensor(2.0), 2.0),
    "int tensor": (lambda: torch.tensor(1), 1.0),
    "tensor with gradient": (lambda: torch.tensor(2.0, requires_grad=True), EITHER),  # PyTorch may record none
    "true tensor": (lambda: torch.tensor(True), REFUSED),
    "complex tensor": (lambda: torch.tensor(1j), REFUSED),
    "1-d tensor": (lambda: torch.ones(1), REFUSED),
    "meta tensor": (lambda: torch.empty((), device="meta"), REFUSED),
}
if torch is not None:
    SCALARS |= TENSOR_SCALARS

# -- names -------------------------------------------------------------------------------------------------------------

ACTIVATIONS = ("Relu", "Gelu", "FastGelu", "Silu", "Sigmoid", "Tanh")
EPILOGUES: dict[str, tuple[Any, Any]] = {
    **{one: (one, one) for one in ("PassThrough", "MultiDAdd", "MultiDMultiply", *ACTIVATIONS)},
    **{one.lower(): (one.lower(), one) for one in ("PassThrough", *ACTIVATIONS)},
    "add": ("add", "MultiDAdd"),
    "multi_d_multiply": ("multi_d_multiply", "MultiDMultiply"),
    "fast_gelu": ("fast_gelu", "FastGelu"),
    "np.str_": (np.str_("relu"), "Relu"),
    "geluu": ("geluu", REFUSED),
    "empty": ("", REFUSED),
    "None": (None, REFUSED),
    "3": (3, REFUSED),
    "bytes": (b"relu", REFUSED),
    "list": (["relu"], REFUSED),
    "array": (np.array(["relu", "relu"]), REFUSED),
    "nul": ("relu\0", REFUSED),
    "surrogate": ("\udc80", REFUSED),
    "long": ("relu" * 3000, REFUSED),
    "nan": (float("nan"), REFUSED),
    "raises": (Raises(), REFUSED),
}

_F4 = np.dtype("f4")
OUT_DTYPES: dict[str, tuple[Any, Any]] = {
    **{ours: (ours, ours) for ours in OURS.values()},
    **{f"numpy {name}": (numpy_type(name), ours) for name, ours in OURS.items()},
    **{f"type {name}": (numpy_type(name).type, ours) for name, ours in OURS.items()},
    **{f"text {name}": (name, ours) for name, ours in OURS.items()},
    "None": (None, None),
    "f8": (np.float64, REFUSED),
    "float": (float, REFUSED),
    "bool": (bool, REFUSED),
    "int64": ("int64", REFUSED),
    "swapped": (np.dtype(">f4"), EITHER),
    "tf32": ("tf32", REFUSED),
    "fp32?": ("fp-32", REFUSED),
    "empty": ("", REFUSED),
    "3": (3, REFUSED),
    "bytes": (b"fp32", REFUSED),
    "list": ([], REFUSED),
    "dict": ({}, REFUSED),
    "bad dict": ({"names": ["x"]}, REFUSED),
    "tuple": ((np.float32, -1), REFUSED),
    "huge tuple": ((np.float32, 10**30), REFUSED),
    "structured": (np.dtype([("x", "f4")]), REFUSED),
    "object": (object(), REFUSED),
    "array": (np.ones(2, _F4), EITHER),
    "raises": (Raises(), REFUSED),
    "surrogate": ("\udc80", REFUSED),
}
if torch is not None:
    OUT_DTYPES |= {f"torch {name}": (getattr(torch, name), ours) for name, ours in OURS.items()}
    OUT_DTYPES |= {"torch f8": (torch.float64, REFUSED), "tensor": (torch.ones(2), EITHER)}

MATHS: dict[str, tuple[Any, Any]] = {
    "empty": ("", ""),
    "tf32": ("tf32", "tf32"),
    "None": (None, EITHER),
    "TF32": ("TF32", REFUSED),
    "exact": ("exact", REFUSED),
    "3": (3, REFUSED),
    "list": (["tf32"], REFUSED),
    "array": (np.array(["tf32", "tf32"]), REFUSED),
    "raises": (Raises(), REFUSED),
}
COPIES: dict[str, tuple[Any, Any]] = {
    "never": ("never", "never"),
    "allow": ("allow", "allow"),
    "always": ("always", REFUSED),
    "None": (None, REFUSED),
    "True": (True, REFUSED),
    "list": (["allow"], REFUSED),
    "array": (np.array(["never", "never"]), REFUSED),
    "raises": (Raises(), REFUSED),
}
TARGETS: dict[str, tuple[Any, Any]] = {
    "None": (None, ""),
    "empty": ("", ""),
    "best": (None, ""),  # replaced by its name
    "cuda": ("cuda", REFUSED),
    "sm_90a": ("sm_90a", REFUSED),
    "gfx942": ("gfx942", REFUSED),
    "hip": ("hip", REFUSED),
    "x86": ("x86", REFUSED),
    "3": (3, REFUSED),
    "list": (["cpu"], REFUSED),
    "bytes": (b"cpu", REFUSED),
    "array": (np.array(["cpu", "cpu"]), REFUSED),
    "raises": (Raises(), REFUSED),
}
if torch is not None:
    TARGETS["device"] = torch.device("cpu"), REFUSED

DS_KINDS: dict[str, Callable[[tuple[Any, ...]], Any]] = {
    "tuple": tuple,
    "list": list,
    "None": lambda ds: None,
    "first": lambda ds: ds[0] if ds else 3,
    "dict": lambda ds: dict(enumerate(ds)),
    "generator": lambda ds: (one for one in ds),
    "set": lambda ds: set(map(id, ds)),
    "text": lambda ds: "ds",
    "with None": lambda ds: (*ds[:1], None),
    "raises": lambda ds: Raises(),
}
"""How the D tensors are given: the first two are right."""


@lru_cache(maxsize=1)
def best_target() -> str:
    from tilewright.arch import best_host_arch

    return best_host_arch().name


def target(name: str) -> Any:
    return best_target() if name == "best" else TARGETS[name][0]
