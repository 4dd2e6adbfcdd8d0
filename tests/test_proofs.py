"""Which cases of a test are long proofs, which `make test` leaves out."""

from __future__ import annotations

import pytest

from tests.proofs import spread

pytest_plugins = ["pytester"]

MODULE = """
import pytest

pytestmark = pytest.mark.sampled(0)

@pytest.mark.parametrize("n", range(10))
def test_all_are_proofs(n): ...

@pytest.mark.sampled(3)
@pytest.mark.parametrize("n", range(10))
def test_most_are(n): ...

@pytest.mark.sampled(4)
@pytest.mark.parametrize("n", range(2))
def test_none_is(n): ...

@pytest.mark.sampled(1)
@pytest.mark.part(4)
@pytest.mark.parametrize("n", range(8))
def test_half_is_whole(n): ...

class TestInside:
    @pytest.mark.sampled(1)
    @pytest.mark.parametrize("n", range(3))
    def test_most_are(self, n): ...
"""
PLAIN = """
import pytest

def test_plain(): ...

@pytest.mark.proof
def test_long(): ...
"""
CONFTEST = """
import pytest
from tests.proofs import mark_proofs

def pytest_configure(config):
    for line in ("proof: long", "whole: longer", "sampled(quick): mostly long", "part(count): of it"):
        config.addinivalue_line("markers", line)

@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    mark_proofs(items)
"""


def chosen(pytester: pytest.Pytester, *arguments: str) -> list[str]:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(test_sampled=MODULE, test_plain=PLAIN)
    done = pytester.runpytest_inprocess("-p", "no:cacheprovider", "--collect-only", "-q", *arguments)
    return [line.partition("::")[2] for line in done.outlines if "::" in line]


def test_the_nearest_mark_counts(pytester: pytest.Pytester) -> None:
    quick = chosen(pytester, "-m", "not proof")
    assert quick == [
        "test_plain",
        *(f"test_most_are[{n}]" for n in (0, 3, 6)),
        *(f"test_none_is[{n}]" for n in (0, 1)),
        "test_half_is_whole[0]",
        "TestInside::test_most_are[0]",
    ]
    every = chosen(pytester)
    assert len(every) == 35
    assert set(chosen(pytester, "-m", "proof")) == set(every) - set(quick)


def test_a_part_of_the_proofs_and_the_whole(pytester: pytest.Pytester) -> None:
    part = chosen(pytester, "-m", "proof and not whole", "-k", "half_is_whole")
    assert part == [f"test_half_is_whole[{n}]" for n in (2, 4, 6)]
    assert chosen(pytester, "-m", "whole") == [f"test_half_is_whole[{n}]" for n in (1, 3, 5, 7)]


def test_no_case_is_taken_twice() -> None:
    cases = list(range(7))
    for count in range(9):
        few = spread(cases, count)
        assert len(set(few)) == len(few) == min(count, 7)
