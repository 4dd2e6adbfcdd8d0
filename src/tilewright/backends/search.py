"""What searches for compilers have in common: words of a setting, questions to a program, the first that answers."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from tilewright import remembered, settings
from tilewright.errors import ToolchainError

ANSWER_SECONDS = 60.0  # a compiler on a cold network disk is slow; something else may never answer

Candidate = TypeVar("Candidate")
Found = TypeVar("Found")


def numbers(path: Path) -> list[int]:
    """For sorting folders by the version in their names."""
    return [int(digits) for digits in re.findall(r"\d+", path.name)]


def which(name: str, path: str | None = None) -> str | None:
    """As `shutil` has it, which takes longer to import (it knows archives) than a compiler to be found."""
    if os.name == "nt":  # endings of names
        import shutil

        return shutil.which(name, path=path)
    if os.path.dirname(name):  # noqa: PTH120
        return name if _runs(name) else None
    folders = settings.child_path() if path is None else path
    places = (os.path.join(folder, name) for folder in folders.split(os.pathsep)) if folders else ()  # noqa: PTH118
    return next(filter(_runs, places), None)


def _runs(place: str) -> bool:
    return os.access(place, os.F_OK | os.X_OK) and not os.path.isdir(place)  # noqa: PTH112


def given_words(text: str, setting: str, what: str, *, rule: str, remedy: str) -> tuple[str, ...]:
    """The words of a program a setting names, its first one found on this machine or refused."""
    import shlex  # most name none

    words = tuple(shlex.split(text))
    path = which(words[0]) if words else None
    if path is None:
        raise ToolchainError(
            f"{what} {text!r} of the setting {setting} is not on this machine",
            rule=rule,
            value=text,
            remedy=f"unset {settings.PREFIX}{setting.upper()} to search for one; else {remedy}",
        )
    return (path, *words[1:])


Broken = Callable[[str], ToolchainError]


def query(driver: Sequence[str], *words: str, broken: Broken, expect: str = "") -> str:
    """What a program says; one that does not answer, fails or leaves out `expect` is `broken`."""
    answer = query_together(driver, [words], broken=broken, expect=expect)[0]
    if isinstance(answer, ToolchainError):
        raise answer
    return answer


def query_together(
    driver: Sequence[str], questions: Sequence[Sequence[str]], *, broken: Broken, expect: str = ""
) -> list[str | ToolchainError]:
    """What a program says to each question, or what is wrong with that answer.

    Every process that meets a store asks its compiler who it is: asked at once, all answers take the time of one.
    Those of a compiler that says the same as long as it is the same file are remembered.
    """
    kept = _Kept(driver, questions)
    if kept.answers is not None:
        return list(kept.answers)
    from tilewright.backends.asking import outputs

    answers: list[str | ToolchainError] = []
    for words, answer in zip(
        questions, outputs([[*driver, *words] for words in questions], ANSWER_SECONDS), strict=True
    ):
        question = " ".join(words) or "its question for a version"
        if isinstance(answer, Exception):
            answers.append(broken(f"{question} failed: {answer}"))
        elif answer.code != 0 or expect not in answer.output:
            text = (answer.complaint or answer.output).strip()[:200]
            answers.append(broken(f"{question} exited with {answer.code}: {text or 'no answer'}"))
        else:
            answers.append(answer.output)
    kept.keep(answers)
    return answers


class _Kept:
    """What a compiler said to questions when it was last asked, if it is the same file still."""

    def __init__(self, driver: Sequence[str], questions: Sequence[Sequence[str]]) -> None:
        self._program = driver[0]
        self._key = "\n".join([*driver, *(" ".join(words) for words in questions)])
        self._stamp = remembered.stamp_of(self._program)
        known = remembered.table("compilers").get(self._key, self._stamp) if self._stamp is not None else None
        self.answers = known if known is not None and len(known) == len(questions) else None

    def keep(self, answers: Sequence[str | ToolchainError]) -> None:
        texts = [answer for answer in answers if isinstance(answer, str)]
        if self._stamp is not None and len(texts) == len(answers) and answers_by_itself(self._program, texts):
            table = remembered.table("compilers")
            table.put(self._key, self._stamp, texts)
            table.save()


def answers_by_itself(program: str, answers: Sequence[str]) -> bool:
    """Whether what a compiler says of itself is written in its one file: of gcc's programs and nvcc.

    A script may call another compiler tomorrow, and so may what a link's name stands for (ccache); the version of a
    clang may be written in a library.
    """
    real = os.path.realpath(program)
    name = os.path.basename(real)  # noqa: PTH119
    if re.fullmatch(r"(.*-)?(gcc|g\+\+|nvcc)(-[\d.]+)?", name) is None or any("clang" in text for text in answers):
        return False
    try:
        with open(real, "rb") as file:  # noqa: PTH123
            return file.read(4) == b"\x7fELF"
    except OSError:
        return False


def first_usable(
    candidates: Iterable[Candidate], identify: Callable[[Candidate], Found], none: Callable[[], ToolchainError]
) -> Found:
    """The first candidate that can be identified; else why the first one cannot, or that there is none."""
    errors: list[ToolchainError] = []
    for candidate in candidates:
        try:
            return identify(candidate)
        except ToolchainError as error:
            errors.append(error)
    raise errors[0] if errors else none()


def portable(driver: tuple[str, ...]) -> tuple[str, ...]:
    """For build files: the name alone where the path leads to it, so that the file suits other machines too."""
    name = Path(driver[0]).name
    return (name if which(name) == driver[0] else driver[0], *driver[1:])
