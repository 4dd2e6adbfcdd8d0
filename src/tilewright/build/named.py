"""Kernels by name: a name is never read back, so pools are searched, and only where the name can lead.

A name ends with its arch and the beginning of its digest and begins with its op and the label of its signature: that
leaves one arch and a handful of signatures, and of those the proposals whose label is the rest of the name.  The digest
decides: a name that an older version gave a kernel still means it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from tilewright.arch import all_archs
from tilewright.errors import TilewrightError
from tilewright.ops import all_ops, op_names
from tilewright.ops import op as op_by_name
from tilewright.ops.base import KernelSpec, Op
from tilewright.ops.fields import old_names, old_words
from tilewright.ops.pooling import SMALL

DIGEST_LETTERS = 8  # of a digest, at the end of a name
SHORTEST_PREFIX = 6


def is_digest(word: str) -> bool:
    return len(word) >= SHORTEST_PREFIX and all(digit in "0123456789abcdef" for digit in word)


def means(word: str, name: str, *digests: str) -> bool:
    """Whether a word is a kernel's name or digest, or the beginning of one."""
    if word == name:
        return True
    return len(word) >= SHORTEST_PREFIX and (
        name.startswith(word) or any(digest.startswith(word) for digest in digests)
    )


def pool_specs(word: str, target: str = "") -> Iterator[KernelSpec]:
    """The kernels of pools and named sets a word means; of a whole name, the one.  `target` narrows the archs."""
    archs = [target] if target else list(all_archs())
    for name in op_names():
        if word.startswith(f"{name}_"):
            yield from _by_name(op_by_name(name), word, archs)
    if is_digest(word):
        for op in all_ops().values():
            yield from _by_digest(op, word, archs)


def _by_name(op: Op, word: str, archs: list[str]) -> Iterator[KernelSpec]:
    body, _, digest = word.rpartition("_")
    whole = [arch for arch in archs if body.endswith(f"_{arch}")] if len(digest) == DIGEST_LETTERS else []
    # The longest label first: that of a fused kernel begins with that of the plain one.
    signatures = sorted(op.signatures_of(word[len(op.name) + 1 :]), key=lambda signature: -len(signature.label()))
    if not whole:
        for signature in signatures:
            yield from (spec for arch in archs for spec in _small(op, signature, arch) if spec.name.startswith(word))
        return
    kinds: dict[tuple[Any, str], set[str]] = {}  # with what labels of schedules begin
    for signature in signatures:
        for arch in whole:
            begins = kinds.setdefault((signature, arch), set())
            for spec in _small(op, signature, arch):
                begins.add(spec.schedule.label().partition("_")[0])
                if spec.digest.startswith(digest):
                    yield spec
                    return
    for (signature, arch), begins in kinds.items():
        label = _schedule_label(op, signature, arch, word)
        # A swept pool has more kernels than the small ones, not other kinds of them.
        for spec in _of_pools(op, arch, op.axes_of(signature), swept=True) if label.partition("_")[0] in begins else ():
            if spec.schedule.label() == label and spec.digest.startswith(digest):
                yield spec
                return
    for (signature, arch), label in {key: _schedule_label(op, *key, word) for key in kinds}.items():
        if _has_old_words(op, label):
            specs = _of_pools(op, arch, op.axes_of(signature), swept=True)
            yield from islice((spec for spec in specs if spec.digest.startswith(digest)), 1)


def _schedule_label(op: Op, signature: Any, arch: str, word: str) -> str:
    """What of a whole name is between signature and arch."""
    return word[len(op.name) + len(signature.label()) + 2 : -len(arch) - DIGEST_LETTERS - 2]


def _has_old_words(op: Op, label: str) -> bool:
    """Whether a label may be of a version that called a field or a value of it otherwise."""
    return any(old in label for old in (*old_names(op), *old_words(op)))


def _by_digest(op: Op, word: str, archs: list[str]) -> Iterator[KernelSpec]:
    """Nothing but the digest says what it is of: what pools hold when nobody names an axis, and named sets."""
    for arch in archs:
        yield from (pool for pool in _of_pools(op, arch, {}) if pool.digest.startswith(word))
        yield from (spec for spec in _of_sets(op, arch) if spec.digest.startswith(word))


def _small(op: Op, signature: Any, arch: str) -> Iterator[KernelSpec]:
    """What small pools and named sets propose for a signature."""
    yield from _of_pools(op, arch, op.axes_of(signature))
    yield from (spec for spec in _of_sets(op, arch) if spec.signature == signature)


def _of_pools(op: Op, arch: str, axes: dict[str, tuple[Any, ...]], *, swept: bool = False) -> Iterator[KernelSpec]:
    # The largest of the small pools first: it holds most of what the others do.
    names = [name for name in op.pool_names if (name in SMALL) != swept]
    for pool in names if swept else reversed(names):
        try:
            yield from op.proposals(pool, arch, **axes)
        except TilewrightError:
            return  # an op need not serve every arch


def _of_sets(op: Op, arch: str) -> Iterator[KernelSpec]:
    for name in op.preselected_sets:
        try:
            yield from op.preselected(name, arch)
        except TilewrightError:
            continue  # a set is for one family
