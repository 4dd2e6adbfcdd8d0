"""What several ops can fuse behind their accumulators: activations, and tensors added or multiplied."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilewright.errors import ProblemError, UnknownNameError, nearest, shown
from tilewright.ops.base import Violation

ACTIVATIONS = ("Relu", "Gelu", "FastGelu", "Silu", "Sigmoid", "Tanh")
EPILOGUES = ("PassThrough", "MultiDAdd", "MultiDMultiply", *ACTIVATIONS)
# An activation of the sum, times D0; without one, times a second sum (gated layers of transformers).  Of which op a
# kernel has them, that op says.
GATES = {"SiluAndMul": "Silu", "GeluAndMul": "Gelu", "FastGeluAndMul": "FastGelu"}
GATES_BY_ACTIVATION = {activation.lower(): gate for gate, activation in GATES.items()}


USUAL_D = 2  # D tensors that pools have kernels for where nobody says how many


def epilogue_d_counts(epilogue: str, most: int = USUAL_D) -> tuple[int, ...]:
    """How many D tensors an epilogue takes, `most` of an op's.  An activation with D tensors adds them first."""
    if epilogue == "PassThrough":
        return (0,)
    if epilogue in GATES:
        return (0, 1)
    return tuple(range(1 if epilogue.startswith("MultiD") else 0, most + 1))


# By their lower-case names, the MultiD ones without that word too.  No cache: torch.compile warns of any in its way.
_SPELLED = {name.lower().removeprefix("multid"): name for name in reversed(EPILOGUES)} | {
    name.lower(): name for name in (*EPILOGUES, *GATES)
}


def normal_epilogue(name: str) -> str:
    """The proper spelling of an epilogue, whatever its case; unknown names are an error."""
    known = _SPELLED.get(str(name).replace("_", "").lower())
    if known is not None:
        return known
    raise UnknownNameError(
        f"{shown(name)} is not an epilogue",
        rule="epilogue-name",
        value=name,
        remedy=nearest(str(name), list(EPILOGUES)),
    )


def unknown_gate(activation: Any) -> UnknownNameError:
    known = list(GATES_BY_ACTIVATION)
    return UnknownNameError(
        f"{shown(activation)} is not an activation of a gate",
        rule="gate-activation",
        value=shown(activation),
        remedy=nearest(activation, known) if isinstance(activation, str) else f"use one of {', '.join(known)}",
    )


def with_added(epilogue: Any, ds: Any, **added: Any) -> tuple[Any, Any]:
    """Epilogue and D tensors of a call that names what it adds: `bias=` and `residual=` come before `ds`.

    What is wrong with the epilogue or with `ds` themselves, whoever reads them says.
    """
    named = {name: array for name, array in added.items() if array is not None}
    if not named or not isinstance(ds, (tuple, list)):
        return epilogue, ds
    kind = normal_epilogue(epilogue) if isinstance(epilogue, str) else epilogue
    if kind == "MultiDMultiply":
        name = next(iter(named))
        raise ProblemError(
            f"{name} is added, and MultiDMultiply multiplies by every tensor it is given",
            rule="epilogue-bias",
            value=kind,
            remedy=f"leave {name} out, or give it as one of ds to multiply by",
        )
    if kind in GATES:
        name = next(iter(named))
        raise ProblemError(
            f"{name} is added, and {kind} multiplies by the tensor it is given",
            rule="epilogue-bias",
            value=kind,
            remedy=f"leave {name} out, or give what is multiplied by as ds",
        )
    return "MultiDAdd" if kind == "PassThrough" else epilogue, (*named.values(), *ds)


def called_as_given(error: ProblemError, **added: Any) -> ProblemError:
    """The error of a call, in which `bias=` and `residual=` have their names and not their places before `ds`."""
    names = [name for name, array in added.items() if array is not None]
    for place in range(len(names) + 1):
        name = names[place] if place < len(names) else f"ds[{place - len(names)}]"
        error.message = error.message.replace(f"ds[{place}]", name)
        error.remedy = error.remedy.replace(f"ds[{place}]", name)
    if names and error.rule == "dtype-d":
        error.message = error.message.replace("D tensors of", f"D tensors ({', '.join(names)}) of")
    error.args = (error.message,)
    return error


def _either(counts: tuple[int, ...]) -> str:
    return " or ".join(map(str, counts)) if len(counts) < 4 else f"{counts[0]} to {counts[-1]}"


def epilogue_violations(epilogue: str, num_d: int, gates: bool = False, most: int = USUAL_D) -> Iterator[Violation]:
    """Whether there is such an epilogue, and whether it takes so many D tensors; `gates`: the op has those too, `most`:
    D tensors that its kernels take."""
    if epilogue not in EPILOGUES and not (gates and epilogue in GATES):
        yield Violation("epilogue-name", f"epilogue {shown(epilogue)} is not known", nearest(epilogue, list(EPILOGUES)))
        return
    counts = epilogue_d_counts(epilogue, most)
    if num_d not in counts:
        yield Violation(
            "epilogue-d-count",
            f"{epilogue} with {num_d} D tensors is not defined",
            f"give {_either(counts)} D tensors"
            + ("; to add tensors use MultiDAdd" if epilogue == "PassThrough" else ""),
        )
