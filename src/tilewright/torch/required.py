"""PyTorch itself: there, and new enough for ops with fakes, gradients and batching rules; else one clear error."""

from __future__ import annotations

from typing import Any

from tilewright.errors import MachineError

OLDEST = (2, 11)  # older releases were never tried


class PyTorchError(MachineError, ImportError):
    """PyTorch is missing, or too old: an ImportError too, for whoever tries the import."""

    owner = "torch"


def release(version: str) -> tuple[int, ...]:
    """The numbers a version begins with: (2, 13) of 2.13.0a0+cpu."""
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def demand_release(version: str) -> None:
    if release(version) < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        raise PyTorchError(
            f"PyTorch is {version}, and tilewright.torch needs {wanted}",
            rule="torch-release",
            value=version,
            remedy=f"pip install 'torch>={wanted}'; calls on tensors without gradients work with this one",
        )


def pytorch() -> Any:
    """The module `torch`."""
    try:
        import torch
    except ImportError as error:
        raise PyTorchError(
            f"PyTorch cannot be imported: {error}",
            rule="torch-missing",
            value="torch",
            remedy="pip install torch; everything but tilewright.torch works without it",
        ) from error
    demand_release(str(torch.__version__))
    return torch


torch = pytorch()
