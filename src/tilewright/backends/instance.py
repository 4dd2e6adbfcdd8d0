"""Specs to instance files.  Pure: the same spec gives the same bytes anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from tilewright import plugins
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
    except (OSError, ModuleNotFoundError):
        raise plugins.fault(
            package, f"there is no template {path!r} in {package!r}", rule="template", value=path, remedy=plugins.REMEDY
        ) from None
    except (jinja2.TemplateError, UnicodeError) as error:
        message = f"the template {path!r} in {package!r} cannot be read: {plugins.said(error)}"
        raise plugins.fault(package, message, rule="template", value=path, remedy=plugins.REMEDY) from error


def text_of(spec: KernelSpec, template: tuple[str, str], context: Mapping[str, Any]) -> str:
    """A template filled with a spec and what an op's kernels say of it; what they say wins over the usual names."""
    usual: dict[str, Any] = {
        "name": spec.name,
        "manifest": spec.to_json(),
        "space": f"tw_{spec.digest[:16]}",
        "s": spec.signature,
        "h": spec.schedule,
    }
    package, path = template
    loaded = _template(package, path)
    try:
        return loaded.render(usual | dict(context))
    except Exception as error:
        message = f"the template {path!r} in {package!r} cannot be filled for {spec.name}: {plugins.said(error)}"
        raise plugins.fault(package, message, rule="template", value=path, remedy=plugins.REMEDY) from error
