"""What describes a GEMM on a command line, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.dtypes import dtype
from tilewright.ops.base import Option
from tilewright.ops.encodings import element_type, element_types
from tilewright.ops.fused import normal_epilogue
from tilewright.ops.gemm.layouts import normal_layout
from tilewright.ops.gemm.problem import GemmProblem, default_output

OPTIONS = (
    Option("m", "Rows of A and of the result."),
    Option("n", "Columns of B and of the result."),
    Option("k", "Columns of A, rows of B."),
    Option("batch", "Matrices in the batch.", 1),
    Option("datatype", "Element type of A and B, or a:b for different ones.", "fp32", str, normal=element_types),
    Option("layout", "Layouts of A, B and C: rcr, rrr, crr or ccr.", "rrr", str, normal=normal_layout),
    Option(
        "epilogue",
        "Fused work: PassThrough, MultiDAdd, Relu, Gelu, SiluAndMul (of two B, or with a D), ...",
        "PassThrough",
        str,
    ),
    Option("num_d", "D tensors the epilogue takes: 0 to 4.", 0),
    Option("output", "Element type of C and the result; by default that of the inputs.", "", str, normal=element_type),
    Option("d_datatype", "Element type of the D tensors; by default the output's.", "", str, normal=element_type),
    Option("alpha", "Factor of A.B.", 1.0, float, scalar=True),
    Option("beta", "Factor of C; 0 leaves C out.", 0.0, float, scalar=True),
    Option("a_stride", "Leading stride of A in elements; 0 is dense.", 0),
    Option("b_stride", "Leading stride of B in elements; 0 is dense.", 0),
    Option("c_stride", "Leading stride of C and the result; 0 is dense.", 0),
    Option("preshuffle", "Pack B beforehand.", False, bool),
    Option("broadcast_a", "One A for the whole batch.", False, bool),
    Option("broadcast_b", "One B for the whole batch.", False, bool),
)


def problem(values: Mapping[str, Any]) -> GemmProblem:
    options = {option.name: values.get(option.name, option.default) for option in OPTIONS}
    a, _, b = options["datatype"].partition(":")
    for name in (a, b, options["output"], options["d_datatype"]):
        if name:
            dtype(name)
    same = ("m", "n", "k", "batch", "layout", "num_d", "a_stride", "b_stride", "c_stride", "broadcast_a", "broadcast_b")
    return GemmProblem(
        **{name: options[name] for name in same},
        dtype_a=a,
        dtype_b=b,
        dtype_c=options["output"],
        dtype_d=options["d_datatype"],
        epilogue=normal_epilogue(options["epilogue"]),
        beta=options["beta"] != 0,
        preshuffled=options["preshuffle"],
    )


def words(problem: GemmProblem) -> list[str]:
    """What `tilewright run gemm` needs to meet this problem again."""
    p = problem
    flags = ["--m", str(p.m), "--n", str(p.n), "--k", str(p.k)]
    datatype = p.dtype_a if p.dtype_a == p.dtype_b else f"{p.dtype_a}:{p.dtype_b}"
    dense = p.dense()
    for flag, value, usual in (
        ("--batch", p.batch, 1),
        ("--datatype", datatype, "fp32"),
        ("--layout", p.layout, "rrr"),
        ("--output", p.dtype_c, default_output(p.dtype_a, p.dtype_b)),
        ("--epilogue", p.epilogue, "PassThrough"),
        ("--num-d", p.num_d, 0),
        ("--d-datatype", p.dtype_d, p.dtype_c),
        ("--beta", 1 if p.beta else 0, 0),
        ("--a-stride", p.a_stride, dense.a_stride),
        ("--b-stride", p.b_stride, dense.b_stride),
        ("--c-stride", p.c_stride, dense.c_stride),
    ):
        if value != usual:
            flags += [flag, str(value)]
    for flag, on in (
        ("--preshuffle", p.preshuffled),
        ("--broadcast-a", p.broadcast_a),
        ("--broadcast-b", p.broadcast_b),
    ):
        if on:
            flags.append(flag)
    return flags
