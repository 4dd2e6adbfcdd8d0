"""Specs to loaded kernels: each is built and loaded once a process, however many threads ask."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from tilewright import events, settings
from tilewright.build import Artifact, Builder, bundled
from tilewright.dispatch import built
from tilewright.events import Event
from tilewright.ops.base import KernelSpec
from tilewright.runtime.loader import Kernel, load_kernel, load_kernel_from

OnEvent = Callable[[Event], None]

_Key = tuple[str, tuple[object, ...]]


class _Loading:
    """A kernel that one thread builds and loads, and that others wait for."""

    __slots__ = ("_done", "_error", "_kernel")

    def __init__(self) -> None:
        self._done = threading.Event()
        self._kernel: Kernel | None = None
        self._error: BaseException | None = None

    def loaded(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._done.set()

    def failed(self, error: BaseException) -> None:
        self._error = error
        self._done.set()

    def result(self) -> Kernel:
        self._done.wait()
        if self._kernel is None:
            assert self._error is not None
            raise self._error
        return self._kernel


_lock = threading.Lock()
_kernels: dict[_Key, _Loading] = {}
_adopted: dict[str, Kernel] = {}  # by digest: from libraries a person built; asked before the store
MOST_TAKEN = 4096
# The settings last seen and the kernels that were taken under them, by the identity of their specs, which the entries
# keep; read and replaced as one.
_taken: tuple[settings.Settings | None, dict[int, tuple[KernelSpec, Kernel]]] = (None, {})


def _key(spec: KernelSpec) -> _Key:
    """A spec under the settings that change what is built from it."""
    return spec.digest, settings.builds()


def adopt(kernels: Iterable[Kernel]) -> None:
    """Use these kernels for their specs from now on, whatever the store holds; the last one of a spec stays."""
    adopted = {kernel.spec.digest: kernel for kernel in kernels}
    global _taken
    with _lock:
        _adopted.update(adopted)
        _taken = (None, {})
    built.adopt(adopted)


def kernel(spec: KernelSpec) -> Kernel:
    """The loaded kernel of a spec, built now if the store does not have it."""
    global _taken
    now, (seen, taken) = settings.current(), _taken
    known = taken.get(id(spec)) if seen is now else None
    if known is not None:
        return known[1]
    loaded = _kernel(spec)
    if seen is not now or len(taken) >= MOST_TAKEN:
        taken = {}
        _taken = (now, taken)
    taken[id(spec)] = spec, loaded
    return loaded


def _kernel(spec: KernelSpec) -> Kernel:
    adopted = _adopted.get(spec.digest)
    if adopted is not None:
        return adopted
    key = _key(spec)
    mine = False
    with _lock:
        loading = _kernels.get(key)
        if loading is None:
            loading = _kernels[key] = _Loading()
            mine = True
    if mine:
        try:
            loading.loaded(_bundled(spec) or load_kernel(_stored(spec).path, spec))
        except BaseException as error:
            # The next caller tries again: a full disk or a missing compiler may be mended by then.
            with _lock:
                _kernels.pop(key, None)
            loading.failed(error)
            raise
        built.note([spec])
    return loading.result()


def _stored(spec: KernelSpec) -> Artifact:
    """From the store, built now if it is not there; who listens to builds hears of it."""
    artifact = None if events.active() else built.just_seen(spec)
    return artifact or Builder().build_one(spec)


def _bundled(spec: KernelSpec) -> Kernel | None:
    """The kernel that a bundle in force has."""
    library = bundled.library(spec)
    return None if library is None else load_kernel_from(*library, spec)


def forget_loaded() -> None:
    """Other bundles are in force: whoever asks for a kernel from now on gets theirs."""
    global _taken
    with _lock:
        _kernels.clear()
        _taken = (None, {})


def together(specs: Sequence[KernelSpec]) -> list[Kernel]:
    """The kernels of a plan's stages.  Where several have to be compiled, that is done at once."""
    if len(specs) > 1:
        with _lock:
            unknown = [spec for spec in specs if spec.digest not in _adopted and _key(spec) not in _kernels]
        if len(unknown) > 1:
            kernels(unknown)
    return [kernel(spec) for spec in specs]


def kernels(
    specs: Iterable[KernelSpec], *, max_workers: int | None = None, on_event: OnEvent | None = None
) -> list[Kernel]:
    """Build many in parallel, then load each."""
    wanted = list(specs)
    artifacts = build(wanted, max_workers=max_workers, on_event=on_event)
    loaded = []
    for spec in wanted:
        if spec.digest not in artifacts:  # of a library that someone built, or of a bundle
            loaded.append(kernel(spec))
            continue
        key = _key(spec)
        with _lock:
            loading = _kernels.get(key)
        if loading is None:
            loading = _Loading()
            loading.loaded(load_kernel(artifacts[spec.digest].path, spec))
            with _lock:
                loading = _kernels.setdefault(key, loading)
        loaded.append(loading.result())
    return loaded


def build(
    specs: Iterable[KernelSpec], *, max_workers: int | None = None, on_event: OnEvent | None = None
) -> dict[str, Artifact]:
    """Build many without loading: what a target this machine cannot run needs.  Adopted and bundled ones are built."""
    wanted = [spec for spec in specs if spec.digest not in _adopted and not bundled.holds(spec.digest)]
    if not wanted:
        return {}
    artifacts = Builder().build_many(wanted, max_workers=max_workers, on_event=on_event)
    built.note(wanted)
    return artifacts
