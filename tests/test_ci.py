"""Continuous integration runs what README tells people to type, in that order and before anything else."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
SETUP = ("set ", "cd ")


def commands() -> list[str]:
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith(("#", *SETUP))]


def of_readme() -> list[str]:
    """What README has people type that calls make, in its order."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```(?:console|sh|bash)\n(.*?)```", text, re.DOTALL)
    lines = [line.removeprefix("$ ").partition("#")[0].strip() for one in blocks for line in one.splitlines()]
    return [line for line in lines if line.startswith("make ")]


def recipe(target: str) -> str:
    make = (ROOT / "Makefile").read_text(encoding="utf-8")
    found = re.search(rf"^{target}:.*\n(?:\t.*\n|\n(?=\t))*", make, re.MULTILINE)
    assert found is not None, f"the Makefile has no {target}"
    return found[0]


def test_it_begins_with_the_commands_of_readme() -> None:
    assert of_readme()[:2] == ["make demo", "make test"]
    assert commands()[:2] == ["make demo", "make test"]


def test_what_it_calls_is_there_and_proofs_are_run() -> None:
    called = [line.removeprefix("make ") for line in commands() if line.startswith("make ")]
    for target in called:
        recipe(target)
    assert {"test-proofs", "test-machines", "test-older-cpu", "test-amd", "cuda-compilers"} <= set(called)
    assert called.index("test-machines") < called.index("cuda-compilers") < called.index("test-proofs")


def test_all_is_what_make_test_leaves_out_and_the_rest() -> None:
    assert recipe("test-all").splitlines()[0] == "test-all: test test-proofs"
    make = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert '\nQUICK := -m "not proof"\n' in make
    assert "$(QUICK)" in recipe("test")
    part = "$(if $(WHOLE),, and not whole)"  # of proofs that draw thousands, unless all of them are asked for
    assert f'-m "(proof or tools) and not amd{part}"' in recipe("test-proofs")


def test_its_long_steps_use_every_core_and_keep_compiled_python() -> None:
    for target in ("test", "test-proofs", "test-older-cpu", "test-amd"):
        assert "$(PYTEST) " in recipe(target)
    make = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "\nPYTEST := $(BIN)/python -m pytest -n auto " in make
    assert "\nunexport PYTHONDONTWRITEBYTECODE\n" in make
