"""A model with our ops as a package of AOTInductor's: loaded in Python, and by a program in C++."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")
pytest.importorskip("tilewright.torch")

import tilewright as tw  # noqa: E402
from tests.built import why_no_compiler  # noqa: E402
from tests.torch.programs import compiled, run  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore::FutureWarning"), pytest.mark.filterwarnings("ignore::UserWarning")]
ROWS = 8


class Model(torch.nn.Module):  # type: ignore[misc]
    """A product with an activation, a convolution, a cache that is appended to, and attention over it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(32, 16))
        self.filters = torch.nn.Parameter(torch.randn(2, 3, 3, 2))

    def forward(self, x: Any) -> Any:
        hidden = tw.gemm(x, self.weight.T, epilogue="relu")
        image = tw.conv(hidden.reshape(1, ROWS, 16, 2), self.filters, padding=1)
        q = image.reshape(2, 4, 2, 16)
        cache, lengths = torch.zeros(2, 2, 9, 2, 16), torch.full((2,), 3, dtype=torch.int32)
        kept = tw.append_kv(cache[0], cache[1], q, q, cache_seqlens=lengths)
        return tw.attention(q, kept.cache_k, kept.cache_v, seqlens_k=lengths + 4).reshape(hidden.shape)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any, Any]:
    """The package, an input, and what the model makes of it."""
    if why_no_compiler():
        pytest.skip("AOTInductor needs a C++ compiler")
    torch.manual_seed(23)
    model = Model().eval().requires_grad_(False)
    x = torch.randn(ROWS, 16)
    place = tmp_path_factory.mktemp("package") / "model.pt2"
    torch._inductor.aoti_compile_and_package(torch.export.export(model, (x,)), package_path=str(place))
    return place, x, model(x)


def test_a_package_computes_the_same(package: tuple[Path, Any, Any]) -> None:
    place, x, expected = package
    loaded = torch._inductor.aoti_load_package(str(place))
    for _ in range(3):
        assert torch.equal(loaded(x), expected)
    assert not torch.equal(loaded(-x), expected)


def _libpython() -> Path | None:
    """Pythons are built with a shared library or without; the system's may have one beside."""
    name = f"libpython{sys.version_info[0]}.{sys.version_info[1]}.so"
    for folder in (sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("LIBPL")):
        if folder and Path(folder, name).exists():
            return Path(folder, name)
    return None


def test_a_program_in_cpp_runs_the_package(package: tuple[Path, Any, Any], tmp_path: Path) -> None:
    place, x, expected = package
    python = _libpython()
    if python is None:
        pytest.skip("this Python has no shared library to start in a program")
    program = compiled("package", tmp_path)
    given, made = tmp_path / "x", tmp_path / "y"
    given.write_bytes(x.numpy().tobytes())
    ran = run(program, place, python, sys.executable, given, made)
    assert not ran.returncode, ran.stderr[-2000:]
    result = np.frombuffer(made.read_bytes(), np.float32).reshape(expected.shape)
    assert np.array_equal(result, expected.numpy())


def test_a_program_without_python_runs_the_package(package: tuple[Path, Any, Any], tmp_path: Path) -> None:
    import tilewright.torch

    place, x, expected = package
    folder, given, made = tmp_path / "folder", tmp_path / "x", tmp_path / "y"
    loaded = torch._inductor.aoti_load_package(str(place))
    with tilewright.torch.plans(folder) as written:
        assert torch.equal(loaded(x), expected)
    assert {op for op, _ in written.calls} == {"gemm", "conv", "append_kv", "attention"}
    assert not written.left_out
    program = compiled("plans", tmp_path)
    given.write_bytes(x.numpy().tobytes())
    ran = run(program, place, folder, given, made, 16, "cpu")
    assert not ran.returncode, ran.stderr[-2000:]
    result = np.frombuffer(made.read_bytes(), np.float32).reshape(expected.shape)
    assert np.array_equal(result, expected.numpy())
    _refused(program, place, folder, given, made)


def _refused(program: Path, place: Path, folder: Path, given: Path, made: Path) -> None:
    """Folders that are not for this process, and plans that are not there, have one clear error."""

    def again() -> Any:
        return run(program, place, folder, given, made, 16, "cpu")

    plans = folder / "plans.bin"
    whole = plans.read_bytes()
    plans.write_bytes(whole[: len(whole) // 2])
    assert "cut off or damaged" in again().stderr
    plans.write_bytes(whole[:8] + b"\x63" + whole[9:])
    assert "another version" in again().stderr
    length = int.from_bytes(whole[16:24], "little")
    plans.write_bytes(whole[:16] + (7).to_bytes(8, "little") + b"no_such" + whole[24 + length :])
    assert "this CPU has no no_such" in again().stderr
    key = whole.index(b"relu")
    plans.write_bytes(whole[:key] + b"reLU" + whole[key + 4 :])  # no plan for the call any more
    ran = again()
    assert ran.returncode == 4
    assert "no stored plan is for" in ran.stderr


def test_plans_that_need_python_are_an_error(tmp_path: Path) -> None:
    import tilewright.torch

    a, b = torch.randn(4, 32)[:, ::4], torch.randn(8, 4)
    with (
        pytest.raises(tw.TilewrightError, match="cannot be made without Python: gemm"),
        tilewright.torch.plans(tmp_path / "plans"),
    ):
        torch.ops.tilewright.gemm(a, b)
    with pytest.raises(tw.TilewrightError, match="no call of"), tilewright.torch.plans(tmp_path / "plans"):
        pass
    assert not (tmp_path / "plans").exists()
