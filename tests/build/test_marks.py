"""Marks: which kernels a store holds, by one listing."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from tests.build.stubs import Stub, tiny_specs
from tilewright.build import Builder, Store, marks, upkeep

UseStub = Callable[..., Stub]


@pytest.fixture
def filled(store: Store, use_stub: UseStub) -> Store:
    use_stub()
    Builder(store).build_many(tiny_specs(2))
    return store


def test_every_kernel_has_one(filled: Store) -> None:
    assert marks.digests(filled) == {one.digest for one in tiny_specs(2)}


def test_a_support_library_has_none(store: Store, use_stub: UseStub) -> None:
    from tilewright.backends.base import Source

    use_stub()
    Builder(store).build_source(Source("support.cpp", "int x;\n", "c++"), "generic")
    assert len(list(store.all_keys())) == 1
    assert marks.digests(store) == set()


def test_an_entry_that_goes_takes_its_mark_along(filled: Store) -> None:
    upkeep.trim(filled, 0, in_use_seconds=0)
    assert not list(filled.all_keys())
    assert marks.digests(filled) == set()


def test_a_store_that_was_filled_before_there_were_marks(filled: Store) -> None:
    known = marks.digests(filled)
    shutil.rmtree(filled.marks)
    assert marks.stamp(filled) == 0
    assert marks.digests(filled) == known  # by its manifests
    Store(filled.root.parent).prepare()
    assert filled.marks.is_dir()
    assert marks.digests(filled) == known


def test_what_others_put_there_is_none(filled: Store) -> None:
    (filled.marks / "README").write_text("x")
    (filled.marks / ("f" * 200)).write_text("x")
    assert marks.digests(filled) == {one.digest for one in tiny_specs(2)}


def test_a_reset_removes_them(filled: Store) -> None:
    assert upkeep.reset(filled).foreign == ()
    assert not filled.root.exists()


def test_looking_makes_nothing(store: Store) -> None:
    assert marks.digests(store) == set()
    assert not store.root.exists()
