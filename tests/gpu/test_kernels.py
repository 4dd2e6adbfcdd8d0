"""Every pipeline, dtype, layout, epilogue and awkward size against the float64 reference."""

from __future__ import annotations

import pytest

from tests.gpu.cases import GEMM, SIZES, judge, pipelines, problem
from tilewright.dispatch import kernels
from tilewright.ops.gemm.pools import signatures
from tilewright.ops.gemm.spec import EPILOGUES, LAYOUTS, GemmSignature, epilogue_d_counts

DATATYPES = (
    ("bf16", "bf16"),
    ("fp16", "fp16"),
    ("bf16", "fp32"),
    ("fp16", "bf16"),
    ("fp8_e4m3", "fp32"),
    ("fp8_e4m3", "bf16"),
    ("fp8_e5m2", "fp16"),
    ("fp32", "fp32"),
    ("int8", "int32"),
    ("int8", "int8"),
    ("fp8_e4m3:fp8_e5m2", "fp32"),
    ("bf16:fp16", "fp32"),
)


def signature(datatype: str, output: str, layout: str = "rcr", epilogue: str = "", count: int = 0) -> GemmSignature:
    variant = "multi_d" if epilogue else "standard"
    made = signatures([datatype], [layout], [variant], [epilogue] if epilogue else (), [output], [count])
    return next(iter(made))


def wrong(one: GemmSignature, arch: str, **more: object) -> list[str]:
    specs = list(pipelines(one, arch))
    kernels.build(specs)
    found = []
    for spec in specs:
        for m, n, k in SIZES:
            # Rows of E a little longer than they must be, so that writing past their end shows.
            stride = -(-n // 8) * 8 + 8
            asked = problem(one, m, n, k, c_stride=stride, **more)
            if GEMM.supports(spec, asked):
                asked = problem(one, m, n, k, **more)
            if not GEMM.supports(spec, asked):
                found.append(judge(spec, asked))
    assert found, "no kernel served any size"
    return [text for text in found if text]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("datatype", "output"), DATATYPES)
def test_every_dtype_and_layout(arch: str, datatype: str, output: str, layout: str) -> None:
    assert wrong(signature(datatype, output, layout), arch) == []


@pytest.mark.parametrize("output", ["bf16", "fp32"])
@pytest.mark.parametrize(
    ("epilogue", "count"),
    [(name, count) for name in EPILOGUES if name != "PassThrough" for count in epilogue_d_counts(name)],
)
def test_every_epilogue(arch: str, epilogue: str, count: int, output: str) -> None:
    assert wrong(signature("bf16", output, "rcr", epilogue, count), arch) == []


@pytest.mark.parametrize("datatype", ["bf16", "int8"])
def test_beta_and_batches(arch: str, datatype: str) -> None:
    output = "bf16" if datatype == "bf16" else "int32"
    one = signature(datatype, output)
    assert wrong(one, arch, beta=True) == []
    assert wrong(one, arch, batch=3) == []
    assert wrong(one, arch, batch=2, broadcast_b=True, beta=True) == []
    assert wrong(one, arch, batch=2, broadcast_a=True) == []


@pytest.mark.parametrize("layout", ["rcr", "rrr"])
def test_every_default_candidate(arch: str, layout: str) -> None:
    """The kernels that selection can choose, on a size that gives each several tiles and an edge."""
    one = signature("bf16", "bf16", layout)
    specs = list(GEMM.candidates(one, arch))
    kernels.build(specs)
    found = []
    for spec in specs:
        for size in ((1000, 1032, 520), (4096, 520, 1032), (16, 4104, 520), (4104, 16, 520), (1, 2112, 7168)):
            asked = problem(one, *size)
            if not GEMM.supports(spec, asked):
                found.append(judge(spec, asked))
    assert [text for text in found if text] == []
