"""Which element types go together, where a family of kernels converts whatever it reads, and how many B."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tilewright.arch import Arch
from tilewright.ops.base import Violation
from tilewright.ops.gemm.spec import GemmSignature


def dtype_rules(
    signature: GemmSignature,
    floats: Sequence[str],
    float_outputs: tuple[str, ...],
    int_outputs: tuple[str, ...],
    refused: Mapping[str, tuple[str, str]] | None = None,
) -> Iterator[Violation]:
    """int8 goes with int8, any float with any; `refused` has the reason and remedy of types there is more to say of."""
    a, b, c, d = signature.dtype_a, signature.dtype_b, signature.dtype_c, signature.dtype_d
    outputs = float_outputs
    if a == "int8" or b == "int8":
        if a != b:
            yield Violation("dtype-mix", f"{a} times {b} is not supported", "int8 goes with int8 only")
        outputs = int_outputs
    else:
        for field, value in (("dtype_a", a), ("dtype_b", b)):
            if refused and value in refused:
                why, remedy = refused[value]
                yield Violation("dtype-mix", f"{field} {value}: {why}", remedy)
            elif value not in floats:
                remedy = f"use {', '.join(floats)} or int8"
                yield Violation("dtype-mix", f"{field} {value} is not an input type", remedy)
    if c not in outputs:
        yield Violation("dtype-output", f"{a} times {b} cannot give {c}", f"use {', '.join(outputs)}")
    allowed = (c,) if c in ("int32", "int8", "fp32") else (c, "fp32")
    if signature.num_d and d not in allowed:
        yield Violation("dtype-d", f"D tensors of {d} do not go with an output of {c}", f"use {' or '.join(allowed)}")


def one_b(signature: GemmSignature, arch: Arch) -> Iterator[Violation]:
    """Of targets without kernels that multiply by two B."""
    if signature.dual:
        yield Violation(
            "dual-target",
            f"{signature.epilogue} of two products: {arch.name} has no kernel with two B",
            "use tilewright.gated_gemm, which runs two kernels, or give the second product as a D tensor",
        )
