"""Every pipeline, dtype, layout, epilogue and awkward size against the float64 reference."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.gpu.cases import (
    SEVERAL_TILES,
    Case,
    Operands,
    candidates,
    everything,
    launcher,
    multistage_candidates,
    signature,
    sizes,
    some,
    wrong,
)
from tests.gpu.reference import outside
from tests.gpu.torch_here import torch
from tilewright.ops.base import KernelSpec
from tilewright.ops.fused import EPILOGUES, epilogue_d_counts
from tilewright.ops.gemm.spec import LAYOUTS

DATATYPES = (
    ("bf16", "bf16"),
    ("fp16", "fp16"),
    ("bf16", "fp32"),
    ("fp16", "bf16"),
    ("fp8_e4m3", "fp32"),
    ("fp8_e4m3", "bf16"),
    ("fp8_e5m2", "fp16"),
    ("fp32", "fp32"),
    ("fp32", "bf16"),
    ("tf32", "fp32"),
    ("int8", "int32"),
    ("int8", "int8"),
    ("int8", "fp32"),
    ("fp8_e4m3:fp8_e5m2", "fp32"),
    ("bf16:fp16", "fp32"),
)
# Long k, cut among the blocks that multiprocessors hold, with fewer tiles than half of these and with more.
FEW_ROWS = ((16, 8200, 1032), (72, 1400, 4104), (1, 260, 8196), (264, 40, 200), (37, 41, 1043))
FUSED = [(name, count) for name in EPILOGUES if name != "PassThrough" for count in epilogue_d_counts(name)]


def cases() -> list[Case]:
    """What the suite asks of the kernels."""
    made = [Case(f"everything-{layout}", signature("bf16", "bf16", layout), everything) for layout in LAYOUTS]
    made += [
        Case(f"everything-{datatype}-{output}", signature(datatype, output), everything, sizes(0, 2))
        for datatype, output in (("fp8_e4m3", "bf16"), ("fp32", "fp32"), ("tf32", "fp32"), ("int8", "int32"))
    ]
    turn = 0
    for datatype, output in DATATYPES:
        for layout in LAYOUTS:
            one = signature(datatype, output, layout)
            made.append(Case(f"types-{one.label()}", one, some(turn), sizes(turn, 2)))
            turn += 1
    for turn, (epilogue, count) in enumerate(FUSED):
        one = signature("bf16", ("bf16", "fp32")[turn % 2], "rcr", epilogue, count)
        made.append(Case(f"fused-{one.label()}", one, some(turn), sizes(turn, 3)))
    made += [Case(f"fused-{one.label()}", one, some(turn), sizes(0, 4)) for turn, one in enumerate((
        signature("fp16", "fp16", "rrr", "Relu", 1),
        signature("fp8_e4m3", "bf16", "rcr", "MultiDMultiply", 2),
        signature("int8", "int32", "rcr", "MultiDAdd", 1),
        signature("fp32", "fp32", "ccr", "Gelu", 0),
        signature("bf16", "bf16", "crr", "MultiDAdd", 2),
        signature("bf16", "bf16", "rcr", "MultiDAdd", 4),
        signature("fp16", "fp16", "rrr", "Gelu", 3),
    ))]  # fmt: skip
    for name, more in (
        ("beta", {"beta": True}),
        ("batch", {"batch": 3}),
        ("batch-beta-one-b", {"batch": 2, "broadcast_b": True, "beta": True}),
        ("batch-one-a", {"batch": 2, "broadcast_a": True}),
        ("batch-one-of-both", {"batch": 2, "broadcast_a": True, "broadcast_b": True}),
    ):
        made.append(Case(f"{name}-bf16", signature("bf16", "bf16"), everything, sizes(0, 3), more))
        made.append(Case(f"{name}-int8", signature("int8", "int32"), everything, sizes(1, 4), more))
        made.append(Case(f"{name}-fused", signature("bf16", "bf16", "rcr", "Relu", 1), some(1), sizes(2, 4), more))
    for turn, (datatype, output, layout, epilogue) in enumerate((
        ("bf16", "bf16", "rcr", ""), ("fp16", "fp16", "rrr", ""), ("bf16", "fp32", "crr", "Relu"),
        ("fp8_e4m3", "bf16", "rrr", ""), ("int8", "int32", "rcr", ""),
    )):  # fmt: skip
        one = signature(datatype, output, layout, epilogue, 1 if epilogue else 0, packed=True)
        which = everything if turn < 2 else some(turn)
        made.append(Case(f"packed-{one.label()}", one, which, sizes(turn, 4), {"preshuffled": True}))
    packed = signature("bf16", "bf16", packed=True)
    for name, more in (("batch", {"batch": 3}), ("batch-one-b", {"batch": 2, "broadcast_b": True, "beta": True})):
        made.append(Case(f"packed-{name}", packed, some(0), sizes(2, 4), {**more, "preshuffled": True}))
    made += [
        Case(f"default-{layout}", signature("bf16", "bf16", layout), candidates, SEVERAL_TILES)
        for layout in ("rcr", "rrr")
    ]
    made += [
        Case(f"wide-tf32-{layout}", signature("tf32", "fp32", layout), multistage_candidates, FEW_ROWS)
        for layout in LAYOUTS
    ]
    return made


@pytest.mark.parametrize("case", cases(), ids=lambda one: one.name)
def test_right_everywhere_and_nowhere_else(specs: Sequence[KernelSpec], case: Case) -> None:
    """Fresh random data, poisoned memory between and around the rows, three runs of the same bits."""
    assert wrong(case, specs) == []


# Few rows, few columns, and what all others take.
GRAPHED = Case("graphs", signature("bf16", "bf16"), everything, ((136, 272, 200), (16, 528, 1032), (4104, 8, 264)))


@pytest.mark.parametrize("case", [GRAPHED], ids=["bf16"])
def test_every_kernel_in_a_graph_on_a_stream_of_its_own(specs: Sequence[KernelSpec], case: Case) -> None:
    """Launches that are only recorded: replayed with other values in the same places, they give other results."""
    found = []
    for spec in specs:
        p = next(case.problems(spec))
        run, operands = launcher(spec, p), Operands.of(p, "cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            run(operands)  # code is loaded, a workspace is made
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin()
            run(operands)
            graph.capture_end()
            for _ in range(2):
                operands.refill()
                graph.replay()
                count = int(outside(p, operands.e.data, operands.expected(p, False)).sum())
                if count or bool(operands.e.touched_outside()):
                    found.append(f"{spec.name} on {p.describe()}: {count} elements are wrong")
    assert found == []
