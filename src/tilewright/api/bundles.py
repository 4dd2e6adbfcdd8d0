"""`tilewright.use_bundle`: kernels from one file, on machines without a compiler, a network or a place to write."""

from __future__ import annotations

from pathlib import Path

from tilewright import api
from tilewright.build import bundled
from tilewright.dispatch import kernels, looks, registry
from tilewright.errors import RequestError, shown


class UsedBundle:
    """A bundle in force; in a `with` statement, until its end.  It counts for the whole process, all threads alike."""

    def __init__(self, path: Path | str) -> None:
        if not isinstance(path, (str, Path)):
            raise RequestError(
                f"a bundle is {shown(path)}", rule="bundle-path", value=shown(path), remedy="give the path of a file"
            )
        self._bundle = bundled.use(path)
        _changed()

    @property
    def path(self) -> Path:
        return self._bundle.path

    @property
    def targets(self) -> tuple[str, ...]:
        """The archs it has kernels for."""
        return self._bundle.targets

    def __len__(self) -> int:
        """How many kernels it has."""
        return len(self._bundle.libraries)

    def __repr__(self) -> str:
        return f"<bundle {self.path}: {len(self)} kernels for {', '.join(self.targets)}>"

    def close(self) -> None:
        """Put it out of force; twice is once."""
        bundled.drop(self._bundle)
        _changed()

    def __enter__(self) -> UsedBundle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _changed() -> None:
    kernels.forget_loaded()
    api.forget_targets()
    registry.forget_defaults()
    looks.changed()


def use_bundle(path: Path | str) -> UsedBundle:
    """Take kernels from a bundle (`tilewright bundle build`) from now on, before the store and any compiler.

    For a signature that the bundle has kernels of, these are the ones that selection chooses among; everything else is
    as without it.  The file is checked as far as it is read, and nothing is written.  `close()`, or the end of a `with`
    block, puts it out of force.
    """
    return UsedBundle(path)
