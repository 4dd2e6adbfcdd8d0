"""tw.gemm on arrays of every kind, judged by the float64 reference."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright as tw
from tilewright import events, ops, settings
from tilewright.ops.fused import EPILOGUES
from tilewright.ops.gemm.reference import verify
from tilewright.runtime import arrays, dlpack, plans

Array = np.ndarray[Any, Any]
KINDS: dict[str, Any] = {
    "fp32": np.float32,
    "fp16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "fp8_e4m3": ml_dtypes.float8_e4m3fn,
    "fp8_e5m2": ml_dtypes.float8_e5m2,
    "int8": np.int8,
    "int32": np.int32,
}


def make(rng: np.random.Generator, shape: tuple[int, ...], dtype: str = "fp32") -> Array:
    if dtype.startswith("int"):
        return rng.integers(-100, 100, shape).astype(KINDS[dtype])
    return rng.standard_normal(shape).astype(KINDS[dtype])


def poisoned(shape: tuple[int, ...], dtype: str = "fp32") -> Array:
    out = np.empty(shape, KINDS[dtype])
    out.view(np.uint8)[...] = 0xFF
    return out


def judge(
    e: Array,
    a: Array,
    b: Array,
    c: Array | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    ds: tuple[Array, ...] = (),
    epilogue: str = "PassThrough",
) -> None:
    """The result is what the reference says, within its bound."""
    m, k = a.shape[-2:]
    n = b.shape[-1]
    names = {np.dtype(kind): name for name, kind in KINDS.items()}
    problem = tw.GemmProblem(
        m=m,
        n=n,
        k=k,
        dtype_a=names[a.dtype],
        dtype_b=names[b.dtype],
        dtype_c=names[e.dtype],
        epilogue=epilogue,
        num_d=len(ds),
        beta=beta != 0,
    )
    check = verify(problem, {"a": a, "b": b, "c": c, "ds": ds, "alpha": alpha, "beta": beta}, e)
    assert check.ok, check.detail


def test_importing_is_light() -> None:
    code = (
        "import sys, tilewright; heavy = {'numpy', 'jinja2', 'rich', 'typer', 'ml_dtypes'} & set(sys.modules);"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_there() -> None:
    for name in tw.__all__:
        assert getattr(tw, name) is not None
    assert set(tw.__all__) <= set(dir(tw))
    assert not {"Any", "TYPE_CHECKING", "annotations"} & set(dir(tw))  # what editors would offer
    with pytest.raises(AttributeError, match="no attribute 'gemmm'"):
        tw.gemmm  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("dtype", "output"),
    [
        ("fp32", "fp32"),
        ("fp16", "fp16"),
        ("bf16", "bf16"),
        ("bf16", "fp32"),
        ("fp8_e4m3", "fp32"),
        ("fp8_e5m2", "fp32"),
        ("int8", "int32"),
        ("int8", "int8"),
    ],
)
def test_every_input_type(dtype: str, output: str) -> None:
    rng = np.random.default_rng(1)
    for m, n, k in ((37, 29, 53), (1, 64, 100), (3, 1, 17), (64, 48, 0)):
        a, b = make(rng, (m, k), dtype), make(rng, (k, n), dtype)
        e = tw.gemm(a, b, out_dtype=output)
        assert e.dtype == np.dtype(KINDS[output])
        judge(e, a, b)


def test_the_default_output_type() -> None:
    rng = np.random.default_rng(1)

    def result(dtype_a: str, dtype_b: str = "") -> Any:
        return tw.gemm(make(rng, (3, 4), dtype_a), make(rng, (4, 2), dtype_b or dtype_a)).dtype

    assert result("fp32") == np.float32
    assert result("bf16") == ml_dtypes.bfloat16
    assert result("int8") == np.int32
    assert result("fp8_e4m3") == np.float32
    c = np.zeros((3, 2), np.float16)
    assert tw.gemm(make(rng, (3, 4)), make(rng, (4, 2)), c, beta=1).dtype == np.float16


@pytest.mark.parametrize("spelling", ["fp16", "float16", np.float16, np.dtype(np.float16)])
def test_the_output_type_may_be_spelled_in_many_ways(spelling: Any) -> None:
    assert tw.gemm(np.ones((2, 2), np.float32), np.ones((2, 2), np.float32), out_dtype=spelling).dtype == np.float16


@pytest.mark.parametrize(("by_columns_a", "by_columns_b"), [(False, False), (False, True), (True, False), (True, True)])
def test_layouts_are_read_from_the_strides(by_columns_a: bool, by_columns_b: bool) -> None:
    rng = np.random.default_rng(2)
    a = make(rng, (17, 40)).T[:33] if by_columns_a else make(rng, (33, 40))[:, :17]
    b = make(rng, (21, 17)).T if by_columns_b else make(rng, (17, 21))
    with events.recorded() as heard:
        judge(tw.gemm(a, b), a, b)
        settled = [one for one in heard if isinstance(one, events.Selected)]
    letters = ("c" if by_columns_a else "r") + ("c" if by_columns_b else "r") + "r"
    assert all(f"fp32_{letters}" in one.problem for one in settled)


def test_no_operand_is_copied_and_none_is_written() -> None:
    rng = np.random.default_rng(3)
    a, b, c = make(rng, (20, 30)), make(rng, (25, 30)).T, make(rng, (20, 25))
    for one in (a, b, c):
        one.flags.writeable = False
    before = [one.tobytes() for one in (a, b, c)]
    tw.gemm(a, b, c, beta=0.5)
    assert [one.tobytes() for one in (a, b, c)] == before


sizes = st.sampled_from([0, 1, 2, 3, 5, 8, 17])


@given(
    st.tuples(sizes, sizes, sizes),
    st.tuples(st.sampled_from([None, 1, 3]), st.sampled_from([None, 1, 3])),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)),
    st.sampled_from([(1.0, 0.0), (0.5, 2.0), (-1.0, 1.0), (0.0, 1.0)]),
    st.booleans(),
    st.integers(0, 1000),
)
def test_any_shape_stride_and_batch(
    size: tuple[int, int, int],
    batch: tuple[int | None, int | None],
    columns: tuple[bool, bool, bool],
    pad: tuple[int, int, int],
    scalars: tuple[float, float],
    with_out: bool,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    m, n, k = size
    alpha, beta = scalars

    def matrix(count: int | None, rows: int, cols: int, by_columns: bool, extra: int) -> Array:
        lead = () if count is None else (count,)
        if by_columns:
            return make(rng, (*lead, cols, rows + extra))[..., :rows].swapaxes(-1, -2)
        return make(rng, (*lead, rows, cols + extra))[..., :cols]

    a = matrix(batch[0], m, k, columns[0], pad[0])
    b = matrix(batch[1], k, n, columns[1], pad[1])
    counts = [one for one in batch if one is not None]
    count = max(counts) if counts else None
    shape = (m, n) if count is None else (count, m, n)
    c = matrix(count, m, n, columns[2], pad[2])
    out = None
    if with_out:
        out = matrix(count, m, n, columns[2], pad[2])
        out[...] = np.nan
    e = tw.gemm(a, b, c if beta else None, alpha=alpha, beta=beta, out=out)
    assert e.shape == shape
    assert out is None or e is out
    judge(e, a, b, c, alpha=alpha, beta=beta)


def test_memory_beside_the_result_is_left_alone() -> None:
    rng = np.random.default_rng(4)
    a, b = make(rng, (19, 23)), make(rng, (23, 31))
    memory = np.full((21, 40), 7, np.float32)
    tw.gemm(a, b, out=memory[1:20, 4:35])
    judge(memory[1:20, 4:35], a, b)
    inside = np.zeros_like(memory, bool)
    inside[1:20, 4:35] = True
    np.testing.assert_array_equal(memory[~inside], 7)


def test_a_shared_matrix_makes_the_batch_more_rows() -> None:
    rng = np.random.default_rng(5)
    b = make(rng, (16, 12))
    for shape in ((6, 5, 16), (6, 1, 16)):
        a = make(rng, shape)
        bias = make(rng, (12,))
        with events.recorded() as heard, settings.override():
            e = tw.gemm(a, b, ds=(bias,), epilogue="add")
        judge(e, a, b, ds=(bias,), epilogue="MultiDAdd")
        chosen = [one.problem for one in heard if isinstance(one, events.Selected)]
        assert chosen == [f"gemm m={shape[0] * shape[1]} n=12 k=16 fp32_rrr_MultiDAdd_d1"]


def test_a_batch_that_cannot_be_folded_is_right_too() -> None:
    rng = np.random.default_rng(6)
    a, b = make(rng, (4, 6, 16))[::2, :5], make(rng, (16, 12))
    d = make(rng, (5, 12))
    e = tw.gemm(a, b, ds=(d,), epilogue="add")
    judge(e, a, b, ds=(d,), epilogue="MultiDAdd")


@pytest.mark.parametrize("epilogue", EPILOGUES[1:])
def test_every_epilogue(epilogue: str) -> None:
    rng = np.random.default_rng(7)
    a, b, c = make(rng, (21, 40)), make(rng, (33, 40)).T, make(rng, (21, 33))
    ds = (make(rng, (21, 33)), make(rng, (33,)))[: 2 if epilogue.startswith("MultiD") else 1]
    out = poisoned((21, 33))
    tw.gemm(a, b, c, alpha=0.25, beta=0.5, ds=ds, epilogue=epilogue.lower(), out=out)
    judge(out, a, b, c, alpha=0.25, beta=0.5, ds=ds, epilogue=epilogue)


def test_a_column_of_d_is_added_to_every_column() -> None:
    rng = np.random.default_rng(8)
    a, b, d = make(rng, (21, 40)), make(rng, (33, 40)).T, make(rng, (21, 1))
    judge(tw.gemm(a, b, ds=(d,), epilogue="relu"), a, b, ds=(d,), epilogue="Relu")


def test_k_of_zero_gives_beta_c_through_the_epilogue() -> None:
    rng = np.random.default_rng(9)
    a, b, c, d = np.ones((5, 0), np.float32), np.ones((0, 4), np.float32), make(rng, (5, 4)), make(rng, (4,))
    np.testing.assert_array_equal(tw.gemm(a, b), 0)
    np.testing.assert_allclose(tw.gemm(a, b, c, beta=2), 2 * c)
    e = tw.gemm(a, b, c, beta=2, ds=(d,), epilogue="relu")
    np.testing.assert_allclose(e, np.maximum(2 * c + d, 0), rtol=1e-6)


def test_beta_of_zero_never_reads_c() -> None:
    c = np.full((3, 3), np.nan, np.float32)
    np.testing.assert_array_equal(tw.gemm(np.eye(3, dtype=np.float32), np.ones((3, 3), np.float32), c, beta=0), 1)


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("size", [4, 40])
def test_nan_and_infinity_go_through_as_ieee_says(dtype: str, size: int) -> None:
    rng = np.random.default_rng(10)
    a, b = make(rng, (size, size), dtype), make(rng, (size, size), dtype)
    a[0, 1], a[1, 2], a[2, 0] = np.nan, np.inf, -np.inf
    b[2, 3], b[1, 1] = 0.0, np.nan  # inf * 0 is NaN
    e = tw.gemm(a, b)
    judge(e, a, b)
    assert np.isnan(e[0].astype(np.float32)).all()
    assert np.isnan(e[1, 3].astype(np.float32))
    assert np.isinf(e[1, 0].astype(np.float32))


@pytest.mark.parametrize("epilogue", ["Relu", "Silu", "Gelu", "FastGelu"])
def test_activations_of_nan_and_infinity(epilogue: str) -> None:
    a = np.array([[np.nan], [np.inf], [-np.inf], [1.0]], np.float32)
    b = np.ones((1, 33), np.float32)
    d = np.zeros(33, np.float32)
    e = tw.gemm(a, b.T.copy().T, ds=(d,), epilogue=epilogue)
    judge(e, a, b, ds=(d,), epilogue=epilogue)
    assert np.isnan(e[0]).all()
    assert (e[2] == 0).all()


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "int8"])
def test_packed_b_serves_many_a(dtype: str) -> None:
    rng = np.random.default_rng(11)
    b = make(rng, (31, 45), dtype).T
    packed = tw.pack(b)
    assert repr(packed).startswith(f"<PackedB 45x31 {dtype}")
    for m in (1, 7, 60):
        a = make(rng, (m, 45), dtype)
        judge(tw.gemm(a, packed), a, b)
    a = make(rng, (2, 7, 45), dtype)
    judge(tw.gemm(a, packed), a, b)


def test_a_batch_of_packed_b_and_a_fused_epilogue() -> None:
    rng = np.random.default_rng(12)
    a, b, d = make(rng, (3, 9, 20)), make(rng, (3, 20, 14)), make(rng, (14,))
    packed = tw.pack(b, m=9)
    judge(tw.gemm(a, packed), a, b)
    judge(tw.gemm(a, packed, ds=(d,), epilogue="relu"), a, b, ds=(d,), epilogue="Relu")
    one = tw.pack(b[:1])
    assert tw.gemm(a[0], one).shape == (1, 9, 14)


def test_a_preshuffle_kernel_called_by_itself() -> None:
    rng = np.random.default_rng(15)
    a, b = make(rng, (9, 20)), make(rng, (20, 14))
    packed = tw.pack(b)
    kernel = tw.Registry().kernel(packed.spec)
    judge(kernel(a, packed), a, b)
    with pytest.raises(tw.TilewrightError, match="ask for"):
        kernel(a, b)


@pytest.mark.parametrize(("of_a", "of_b"), [("fp16", "bf16"), ("fp8_e4m3", "fp8_e5m2"), ("fp32", "bf16")])
def test_inputs_of_two_types(of_a: str, of_b: str) -> None:
    rng = np.random.default_rng(16)
    a, b = make(rng, (19, 33), of_a), make(rng, (33, 35), of_b)
    e = tw.gemm(a, b)
    assert e.dtype == np.float32
    judge(e, a, b)


def test_d_tensors_may_be_wider_than_the_result() -> None:
    rng = np.random.default_rng(17)
    a, b, d = make(rng, (19, 33), "bf16"), make(rng, (33, 35), "bf16"), make(rng, (35,))
    e = tw.gemm(a, b, ds=(d,), epilogue="add")
    assert e.dtype == ml_dtypes.bfloat16
    judge(e, a, b, ds=(d,), epilogue="MultiDAdd")


def test_sizes_that_never_repeat_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "MOST_PLANS", 10)
    registry = tw.Registry(
        "generic", specs=[ops.op("gemm").fallback_spec(tw.GemmProblem(1, 1, 1).signature, "generic")]
    )
    for size in range(1, 40):
        registry.run("gemm", np.ones((size, 2), np.float32), np.ones((2, 2), np.float32))
    assert len(registry.plans()) <= 11
    assert sum(map(len, registry.plans().fast.values())) <= 11


def test_packing_does_not_keep_b() -> None:
    b = np.ones((8, 8), np.float32)
    packed = tw.pack(b)
    b[...] = 5
    np.testing.assert_array_equal(tw.gemm(np.eye(8, dtype=np.float32), packed), 1)


def test_offsets_over_two_to_the_31() -> None:
    memory = np.empty((1 << 31) + 4096, np.int8)  # pages never touched take no memory
    rng = np.random.default_rng(13)
    a = np.lib.stride_tricks.as_strided(memory, (2, 64), (1 << 31, 1))
    a[...] = make(rng, (2, 64), "int8")
    b = make(rng, (64, 5), "int8")
    judge(tw.gemm(a, b), a, b)
    out = np.lib.stride_tricks.as_strided(memory[128:], (2, 5), (1 << 31, 1))
    c = tw.gemm(a, b, out=out)
    judge(c, a, b)


def test_dlpack_producers_go_in_and_results_come_out() -> None:
    rng = np.random.default_rng(14)
    a, b = make(rng, (6, 9), "bf16"), make(rng, (9, 4), "bf16")

    def export(array: Array, dtype: str) -> dlpack.Exporter:
        strides = tuple(one // array.itemsize for one in array.strides)
        return dlpack.Exporter(array, arrays.address_of(array), array.shape, strides, dtype)

    for _ in range(2):
        judge(tw.gemm(export(a, "bf16"), export(b, "bf16")), a, b)
    out = poisoned((6, 4), "bf16")
    tw.gemm(export(a, "bf16"), b, out=export(out, "bf16"))
    judge(out, a, b)


def test_torch_in_torch_out() -> None:
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(0)
    for kind in (torch.float32, torch.bfloat16):
        a = torch.randn(7, 12, generator=generator).to(kind)
        b = torch.randn(5, 12, generator=generator).to(kind)
        expected = a.double() @ b.T.double()
        for _ in range(2):
            e = tw.gemm(a, b.T)
            assert isinstance(e, torch.Tensor)
            assert e.dtype == kind
            torch.testing.assert_close(e.double(), expected, rtol=1e-2, atol=1e-2)
        out = torch.full((7, 5), float("nan"), dtype=kind)
        assert tw.gemm(a, b.T, out=out) is out
        torch.testing.assert_close(out.double(), expected, rtol=1e-2, atol=1e-2)
    mixed = tw.gemm(a.float().numpy(), b.float().T)
    assert isinstance(mixed, np.ndarray)
    packed = tw.pack(b.T)
    for _ in range(2):
        torch.testing.assert_close(tw.gemm(a, packed).double(), expected, rtol=1e-2, atol=1e-2)


def test_a_known_call_does_not_hide_a_wrong_tensor() -> None:
    torch = pytest.importorskip("torch")
    a, b = torch.ones(4, 6), torch.ones(6, 5)
    for _ in range(2):
        assert tw.gemm(a, b).shape == (4, 5)
    assert tw.gemm(torch.ones(4, 6, requires_grad=True), b).requires_grad
    with pytest.raises(tw.TilewrightError, match="meta"):
        tw.gemm(a, torch.ones(6, 5, device="meta"))
    memory = torch.zeros(4 * 6 * 4 + 4, dtype=torch.int8)
    crooked = torch.frombuffer(memory.numpy(), dtype=torch.float32, count=24, offset=1).reshape(4, 6)
    with pytest.raises(tw.TilewrightError, match="not a multiple"):
        tw.gemm(crooked, b)


def test_a_known_call_is_not_selected_again() -> None:
    a, b = np.ones((11, 13), np.float32), np.ones((13, 7), np.float32)
    tw.gemm(a, b)
    with events.recorded() as heard:
        tw.gemm(a.copy(), b.copy())
        tw.gemm(a, b, alpha=3)
    assert heard == []


def test_the_result_of_a_known_call_is_new_each_time() -> None:
    a, b = np.ones((3, 3), np.float32), np.ones((3, 3), np.float32)
    first = tw.gemm(a, b)
    second = tw.gemm(a, b, alpha=2)
    np.testing.assert_array_equal(first, 3)
    np.testing.assert_array_equal(second, 6)


def test_settings_in_a_scope_reach_known_calls() -> None:
    a, b = np.ones((4, 4), np.float32), np.ones((4, 4), np.float32)
    tw.gemm(a, b)
    registry_threads = []
    for threads in (1, 2):
        with settings.override(threads=threads):
            tw.gemm(a, b)
            from tilewright.dispatch import default_registry

            plan, _ = next(iter(default_registry().plans().known.values()))
            registry_threads.append(plan.threads)
    assert registry_threads == [1, 2]


def test_a_target_of_the_host_runs() -> None:
    a, b = np.ones((4, 4), np.float32), np.ones((4, 4), np.float32)
    for target in ("cpu", "generic"):
        np.testing.assert_array_equal(tw.gemm(a, b, target=target), 4)


def test_explain_says_what_runs() -> None:
    text = str(tw.explain(tw.GemmProblem(m=64, n=64, k=64)))
    for word in ("problem", "chosen", "tier", "why", "replay    tilewright explain gemm --m 64 --n 64 --k 64"):
        assert word in text
