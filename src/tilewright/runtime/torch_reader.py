"""How C asks PyTorch without a call of Python: functions of its C interface, and where a tensor has what they take.

A tensor's object holds the address of its implementation, which is the handle those functions take, and the
implementation holds the tensor's dispatch keys.  Where, is found by looking for the values that PyTorch itself gives
(`_cdata`, `_dispatch_keys`) in tensors of several kinds, and used only where all of them agree.  What a thread is doing
(modes, transforms, autocast, inference mode) is in two words of it, found by the name PyTorch's headers declare.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

_WORD = ctypes.sizeof(ctypes.c_uint64)
_PAGE = 4096  # no address is less
_OBJECT_WORDS, _IMPL_WORDS = 4, 24  # how far is looked: less than either has
_STATE = b"_ZN3c104impl26raw_local_dispatch_key_setE"
_FUNCTIONS = ("aoti_torch_get_storage_size", "aoti_torch_get_storage_offset", "aoti_torch_grad_mode_is_enabled")

_int, _pointer = ctypes.c_int64, ctypes.c_void_p


class Reader(ctypes.Structure):
    """What `call_key.h` has under this name."""

    _fields_ = (
        ("storage_size", _pointer),
        ("storage_offset", _pointer),
        ("records", _pointer),
        ("impl_at", _int),
        ("keys_at", _int),
        ("autograd_keys", ctypes.c_uint64),
        ("library", _pointer),
        ("state", ctypes.c_char_p),
    )


@lru_cache(maxsize=4)
def reader(torch: Any) -> Reader | None:
    """None where this PyTorch does not have all of it, or not where it is looked for: then Python is asked."""
    try:
        return _reader_of(torch)
    except (AttributeError, OSError, RuntimeError, TypeError, ValueError):
        return None


def _reader_of(torch: Any) -> Reader | None:
    folder = Path(torch.__file__).parent / "lib"
    core = ctypes.CDLL(str(folder / "libc10.so"))
    functions = ctypes.CDLL(str(folder / "libtorch_cpu.so"))
    samples = _samples(torch)
    keys = [int(torch._C._dispatch_keys(tensor).raw_repr()) for tensor in samples]
    impl_at = _place([id(tensor) for tensor in samples], [int(tensor._cdata) for tensor in samples], _OBJECT_WORDS)
    keys_at = _place([int(tensor._cdata) for tensor in samples], keys, _IMPL_WORDS)
    if impl_at is None or keys_at is None or not _state_is_there(torch, core):
        return None
    size, offset, records = (ctypes.cast(getattr(functions, name), _pointer).value for name in _FUNCTIONS)
    reader = Reader(size, offset, records, impl_at, keys_at, keys[0] & ~keys[1], core._handle, _STATE)
    return reader if reader.autograd_keys and _agrees(functions, samples) else None


def _samples(torch: Any) -> list[Any]:
    """A plain tensor, one of inference mode, and others whose keys, offsets or storages differ."""
    with torch.inference_mode(False), torch.no_grad():
        plain = torch.zeros(3, 5, device="cpu")
        others = [plain[1:, 2:], torch._neg_view(plain), torch.nn.Parameter(plain[2]), torch.zeros(2, device="meta")]
    with torch.inference_mode():
        return [plain, torch.zeros(4, device="cpu"), *others]


def _place(starts: list[int], values: list[int], words: int) -> int | None:
    """The one distance from all starts at which the value of each is; None where there is none, or more."""
    places = [
        at * _WORD
        for at in range(words)
        if all(
            ctypes.c_uint64.from_address(start + at * _WORD).value == value
            for start, value in zip(starts, values, strict=True)
        )
    ]
    return places[0] if len(places) == 1 else None


def autograd_at(torch: Any) -> int:
    """Where an implementation has the address of what autograd knows of a tensor, null where that is nothing; -1 where
    no place is known to be it."""
    with torch.inference_mode(False), torch.enable_grad():
        plain = [torch.zeros(3, 5, device="cpu"), torch.ones(2, device="cpu"), torch.zeros(0, device="meta")]
        known = [torch.zeros(2, device="cpu", requires_grad=True), torch.nn.Parameter(torch.zeros(3)), plain[0][1:]]
        known.append(known[0] * 2)
    with torch.inference_mode():
        plain.append(torch.zeros(4, device="cpu"))
    places = [
        at * _WORD
        for at in range(_IMPL_WORDS)
        if not any(ctypes.c_uint64.from_address(int(tensor._cdata) + at * _WORD).value for tensor in plain)
        and all(ctypes.c_uint64.from_address(int(tensor._cdata) + at * _WORD).value > _PAGE for tensor in known)
    ]
    return places[0] if len(places) == 1 else -1


def _agrees(functions: Any, samples: list[Any]) -> bool:
    """Whether the functions say of storages what PyTorch's methods do."""
    size, offset = getattr(functions, _FUNCTIONS[0]), getattr(functions, _FUNCTIONS[1])
    for tensor in samples:
        impl, answer = _pointer(tensor._cdata), ctypes.c_int64()
        if size(ctypes.byref(impl), ctypes.byref(answer)) or answer.value != tensor.untyped_storage().nbytes():
            return False
        if offset(ctypes.byref(impl), ctypes.byref(answer)) or answer.value != tensor.storage_offset():
            return False
    return True


def _state_is_there(torch: Any, core: Any) -> bool:
    """Whether the two words of this thread follow what PyTorch says of included and excluded dispatch keys."""
    c = torch._C
    words = (ctypes.c_uint64 * 2).in_dll(core, _STATE.decode())
    differences = set()
    for mode in (contextlib.nullcontext(), torch.inference_mode(), torch.inference_mode(False), _without_autograd(c)):
        with mode:
            sets = c._dispatch_tls_local_include_set().raw_repr(), c._dispatch_tls_local_exclude_set().raw_repr()
            differences.add(tuple(word ^ int(now) for word, now in zip(words, sets, strict=True)))
    return len(differences) == 1


@contextlib.contextmanager
def _without_autograd(c: Any) -> Iterator[None]:
    with c._AutoDispatchBelowAutograd():
        yield
