"""Specs to instance files.  Pure: the same spec gives the same bytes anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from tilewright.errors import InternalError
from tilewright.ops.base import KernelSpec

if TYPE_CHECKING:
    import jinja2


@lru_cache(maxsize=64)
def _template(package: str, path: str) -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True, trim_blocks=True, autoescape=False
    )
    try:
        return environment.from_string(resources.files(package).joinpath(path).read_text(encoding="utf-8"))
    except (FileNotFoundError, ModuleNotFoundError):
        raise InternalError(
            f"there is no template {path!r} in the package {package!r}",
            rule="template",
            value=path,
            remedy="install the package that brings the op's kernels again",
        ) from None


def text_of(spec: KernelSpec, template: tuple[str, str], context: Mapping[str, Any]) -> str:
    """A template filled with a spec and what an op's kernels say of it; what they say wins over the usual names."""
    usual: dict[str, Any] = {
        "name": spec.name,
        "manifest": spec.to_json(),
        "space": f"tw_{spec.digest[:16]}",
        "s": spec.signature,
        "h": spec.schedule,
    }
    return _template(*template).render(usual | dict(context))
