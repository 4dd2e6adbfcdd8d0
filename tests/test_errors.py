from __future__ import annotations

import pickle

import pytest

from tilewright import errors
from tilewright.errors import CompileError, RequestError, TilewrightError, an, counted, either, nearest


def all_classes() -> list[type[TilewrightError]]:
    found, waiting = [], [TilewrightError]
    while waiting:
        one = waiting.pop()
        found.append(one)
        waiting.extend(one.__subclasses__())
    return found


def test_an_error_shows_rule_message_remedy_and_reproduction() -> None:
    error = RequestError(
        "m is -1", rule="size", value=-1, remedy="use 0 or more", reproduce="tilewright run gemm --m -1"
    )
    assert str(error) == "[size] m is -1\n  remedy: use 0 or more\n  reproduce: tilewright run gemm --m -1"


def test_an_error_without_parts_is_its_message() -> None:
    assert str(TilewrightError("broken")) == "broken"


@pytest.mark.parametrize("kind", all_classes(), ids=lambda one: one.__name__)
def test_errors_cross_process_borders_whole(kind: type[TilewrightError]) -> None:
    error = kind("what happened", rule="some-rule", value=[1, 2], remedy="do this", reproduce="run that")
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is kind
    assert str(back) == str(error)
    assert (back.rule, back.value, back.remedy, back.reproduce) == ("some-rule", [1, 2], "do this", "run that")
    assert back.args == ("what happened",)


def test_a_compile_error_keeps_its_log_over_the_border() -> None:
    back = pickle.loads(pickle.dumps(CompileError("no", log_path="somewhere/log.txt", rule="compile")))
    assert back.log_path == "somewhere/log.txt"


@pytest.mark.parametrize("kind", all_classes(), ids=lambda one: one.__name__)
def test_every_error_has_one_of_three_owners(kind: type[TilewrightError]) -> None:
    assert kind.owner in ("request", "machine", "tilewright")


def test_owners_follow_the_hierarchy() -> None:
    assert issubclass(errors.FilterError, errors.RequestError)
    assert errors.FilterError.owner == "request"
    assert errors.StoreError.owner == "machine"
    assert errors.InternalError.owner == "tilewright"


def test_nearest_names_the_closest_and_then_all() -> None:
    assert nearest("fp23", ["bf16", "fp32"]) == "did you mean 'fp32'? Known: bf16, fp32"
    assert nearest("zzzz", ["bf16", "fp32"]) == "known: bf16, fp32"


def test_articles_and_choices_read_as_people_write_them() -> None:
    words = ("gemm", "attention", "int", "ndarray", "fp16", "uint8", "split", "append", "list", "conv")
    assert [an(one) for one in words] == [
        "a gemm", "an attention", "an int", "an ndarray", "an fp16", "a uint8", "a split", "an append", "a list",
        "a conv",
    ]  # fmt: skip
    assert [either(one) for one in (("x",), ("x", "x"), ("x", "y"), ("x", "y", "x", "z"))] == [
        "x", "x", "x or y", "x, y or z",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [(0, "kernel", "0 kernels"), (1, "entry", "1 entry"), (2, "entry", "2 entries"), (2, "process", "2 processes")],
)
def test_things_are_counted_as_one_says_it(count: int, noun: str, text: str) -> None:
    assert counted(count, noun) == text
