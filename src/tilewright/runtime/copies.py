"""The error for an operand that kernels cannot read in place, but could read a copy of."""

from __future__ import annotations

from tilewright.errors import ProblemError, an

ALLOW = 'copy="allow"'


class CopyNeeded(ProblemError):
    """An operand that kernels cannot read in place; a copy of it would do."""

    what = ""  # its name
    how = ""  # how to copy it by hand

    def refused(self, remedy: str) -> ProblemError:
        """The same where no copy will be made."""
        return ProblemError(self.message, rule=self.rule, value=self.value, remedy=remedy)

    def written(self) -> ProblemError:
        """The same of an operand that is written: nobody would see what a copy holds."""
        remedy = f"give {an(self.what)} that kernels can write (the result would stay in a copy): {self.how}"
        return self.refused(remedy)


def copy_needed(what: str, message: str, *, rule: str, value: object, how: str = "") -> CopyNeeded:
    """The error for an operand, which names how to copy it."""
    how = how or f"{what}.copy() in NumPy, {what}.clone(memory_format=torch.contiguous_format) in PyTorch"
    remedy = f"let it be copied ({ALLOW}), or give a copy made once: {how}"
    error = CopyNeeded(message, rule=rule, value=value, remedy=remedy)
    error.what, error.how = what, how
    return error
