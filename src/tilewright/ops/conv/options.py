"""What describes a convolution on a command line, and back.

Sizes are written as 56x56, one number for all dimensions where it is the same; padding as 1, 1x1, or 0:1x0:1 where what
comes before differs from what comes after.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.dtypes import dtype
from tilewright.errors import ProblemError
from tilewright.ops.base import Option
from tilewright.ops.conv.problem import ConvProblem, Sizes, channels_first
from tilewright.ops.conv.spec import default_output, normal_variant
from tilewright.ops.encodings import element_type
from tilewright.ops.fused import normal_epilogue

OPTIONS = (
    Option("batch", "Number of images."),
    Option("channels", "Number of channels of the input, over all groups."),
    Option("filters", "Number of filters: channels of the output, over all groups."),
    Option("size", "Size of the input: 224x224, or one to three numbers.", kind=str),
    Option("window", "Size of a filter: 3x3, or 3 where it is the same along every dimension.", kind=str),
    Option("groups", "Number of groups of channels that are convolved apart.", 1),
    Option("stride", "Stride of the filter in pixels, written as its size is.", "1", str),
    Option("padding", "Pixels of zeros around the input: 1, 1x1, or 0:1x0:1 for before:after.", "0", str),
    Option("dilation", "Dilation of the filter in pixels, written as its size is.", "1", str),
    Option(
        "variant",
        "Direction: forward, backward_data (dgrad) or backward_weight (wgrad).",
        "forward",
        str,
        normal=normal_variant,
    ),
    Option("datatype", "Element type of the operands: fp32, fp16, bf16 or int8.", "fp32", str, normal=element_type),
    Option("output", "Element type of the result; by default that of the operands.", "", str, normal=element_type),
    Option("epilogue", "Fused work: PassThrough, MultiDAdd, Relu, Gelu, ...", "PassThrough", str),
    Option("num_d", "Number of D tensors the epilogue takes: 0, 1 or 2.", 0),
    Option("full_d", "Number of D tensors as large as the output; the others are one value a channel.", 0),
    Option("d_datatype", "Element type of the D tensors; by default the output's.", "", str, normal=element_type),
    Option("deterministic", "Require the same bits in every run.", False, bool),
    Option("layout", "Memory format: nhwc (channels-last) or nchw.", "nhwc", str),
    Option("x_strides", "Element strides of the input as image, spatial, channel: 9408x336x3x1; by layout.", "", str),
    Option("w_strides", "Element strides of the weights as filter, spatial, channel; by layout.", "", str),
    Option("y_strides", "Element strides of the output as image, spatial, channel; by layout.", "", str),
)
LAYOUTS = ("nhwc", "nchw")


def _wrong(name: str, value: object, remedy: str) -> ProblemError:
    return ProblemError(f"{name} is {value!r:.60}", rule="option-value", value=value, remedy=remedy)


def _sizes(name: str, text: object, count: int = 0) -> Sizes:
    """56x56 as numbers; one number stands for `count` of them."""
    try:
        sizes = tuple(int(extent) for extent in str(text).lower().split("x"))
    except ValueError:
        raise _wrong(name, text, "write whole numbers with an x between, such as 3x3") from None
    if count and len(sizes) == 1:
        return sizes * count
    if count and len(sizes) != count:
        raise _wrong(name, text, f"give one number, or {count} with an x between")
    return sizes


def _padding(text: object, count: int) -> tuple[Sizes, Sizes]:
    """Before and after."""
    parts = [part.split(":") for part in str(text).lower().split("x")]
    try:
        pairs = [(int(part[0]), int(part[-1])) for part in parts if len(part) <= 2]
    except ValueError:
        pairs = []
    if len(pairs) != len(parts):
        raise _wrong("padding", text, "write 1, 1x1, or 0:1x0:1 for before:after")
    if len(pairs) not in (1, count):
        raise _wrong("padding", text, f"give one number or before:after, or {count} with an x between")
    before, after = zip(*pairs * (count if len(pairs) == 1 else 1), strict=True)
    return before, after


def problem(values: Mapping[str, Any]) -> ConvProblem:
    options = {option.name: values.get(option.name, option.default) for option in OPTIONS}
    for name in ("datatype", "output", "d_datatype"):
        if options[name]:
            dtype(options[name])
    if options["layout"] not in LAYOUTS:
        raise _wrong("layout", options["layout"], "use nhwc or nchw")
    size = _sizes("size", options["size"])
    count = len(size)
    before, after = _padding(options["padding"], count)
    dense = ConvProblem(
        **{
            name: options[name]
            for name in ("batch", "channels", "filters", "groups", "num_d", "full_d", "deterministic")
        },
        size=size,
        window=_sizes("window", options["window"], count),
        stride=_sizes("stride", options["stride"], count),
        dilation=_sizes("dilation", options["dilation"], count),
        before=before,
        after=after,
        variant=normal_variant(options["variant"]),
        dtype=options["datatype"],
        dtype_out=options["output"],
        dtype_d=options["d_datatype"],
        epilogue=normal_epilogue(options["epilogue"]),
    )
    strides = {}
    for name in ("x_strides", "w_strides", "y_strides"):
        if options[name]:
            strides[name] = _sizes(name, options[name])
        elif options["layout"] == "nchw":
            strides[name] = channels_first(getattr(dense, name.replace("strides", "shape")))
    return dense.laid(**strides)


def _text(sizes: Sequence[int]) -> str:
    return str(sizes[0]) if len(set(sizes)) == 1 else "x".join(map(str, sizes))


def words(problem: ConvProblem) -> list[str]:
    """What `tilewright run conv` needs to meet this problem again."""
    p = problem
    flags = ["--batch", str(p.batch), "--channels", str(p.channels), "--filters", str(p.filters)]
    flags += ["--size", "x".join(map(str, p.size)), "--window", _text(p.window)]
    pairs = [f"{before}:{after}" for before, after in zip(p.before, p.after, strict=True)]
    first = p.laid(**{f"{operand}_strides": channels_first(getattr(p, f"{operand}_shape")) for operand in "xwy"})
    usual = first if p == first else p.dense()
    for flag, value, plain in (
        ("--groups", p.groups, 1),
        ("--stride", _text(p.stride), "1"),
        ("--padding", _text(p.before) if p.before == p.after else "x".join(pairs), "0"),
        ("--dilation", _text(p.dilation), "1"),
        ("--variant", p.variant, "forward"),
        ("--datatype", p.dtype, "fp32"),
        ("--output", p.dtype_out, default_output(p.dtype)),
        ("--epilogue", p.epilogue, "PassThrough"),
        ("--num-d", p.num_d, 0),
        ("--full-d", p.full_d, 0),
        ("--d-datatype", p.dtype_d, p.dtype_out),
        ("--layout", "nchw" if usual is first and p != p.dense() else "nhwc", "nhwc"),
        *(
            (f"--{operand}-strides", getattr(p, f"{operand}_strides"), getattr(usual, f"{operand}_strides"))
            for operand in "xwy"
        ),
    ):
        if value != plain:
            flags += [flag, "x".join(map(str, value)) if isinstance(value, tuple) else str(value)]
    return flags + (["--deterministic"] if p.deterministic else [])
