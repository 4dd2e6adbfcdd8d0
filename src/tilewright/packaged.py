"""Files in packages, read without `importlib.resources`.

That one answers the same and brings along what reads zip files and makes temporary ones, which takes longer to import
than a first call has; it is asked where a package has no plain loader.
"""

from __future__ import annotations

import os
from importlib import import_module


def read_bytes(package: str, path: str) -> bytes:
    """A file by its package and its path there, with `/` on every system.

    An OSError where there is none, a ModuleNotFoundError where there is no such package.
    """
    module = import_module(package)
    loader, places = getattr(module.__spec__, "loader", None), list(getattr(module, "__path__", ()))
    get_data = getattr(loader, "get_data", None)
    if get_data is not None and len(places) == 1:
        data: bytes = get_data(os.path.join(places[0], *path.split("/")))  # noqa: PTH118
        return data
    from importlib import resources

    return resources.files(package).joinpath(path).read_bytes()


def read_text(package: str, path: str) -> str:
    """The same as text, its lines ended as they are everywhere."""
    return read_bytes(package, path).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")


def names(package: str, folder: str) -> list[str]:
    """What is in a folder of a package; nothing where there is no such folder."""
    places = list(getattr(import_module(package), "__path__", ()))
    if len(places) == 1:
        try:
            return os.listdir(os.path.join(places[0], folder))  # noqa: PTH118, PTH208
        except OSError:
            pass  # in no plain folder, or not there
    from importlib import resources

    place = resources.files(package).joinpath(folder)
    return [file.name for file in place.iterdir()] if place.is_dir() else []
