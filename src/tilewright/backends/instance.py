"""Specs to instance files.  Pure: the same spec gives the same bytes anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tilewright import packaged, plugins
from tilewright.backends import plain_templates
from tilewright.errors import TilewrightError
from tilewright.ops.base import KernelSpec

if TYPE_CHECKING:
    import jinja2


@lru_cache(maxsize=64)
def _text(package: str, path: str) -> str:
    try:
        return packaged.read_text(package, path)
    except (OSError, ModuleNotFoundError):
        raise plugins.fault(
            package, f"there is no template {path!r} in {package!r}", rule="template", value=path, remedy=plugins.REMEDY
        ) from None
    except UnicodeError as error:
        raise _unreadable(package, path, error) from error


def _unreadable(package: str, path: str, error: Exception) -> TilewrightError:
    message = f"the template {path!r} in {package!r} cannot be read: {plugins.error_text(error)}"
    return plugins.fault(package, message, rule="template", value=path, remedy=plugins.REMEDY)


@lru_cache(maxsize=64)
def _plain(package: str, path: str) -> plain_templates.Template | None:
    """The template where it can be filled without Jinja."""
    try:
        return plain_templates.Template(_text(package, path))
    except plain_templates.Unfilled:
        return None


@lru_cache(maxsize=64)
def _template(package: str, path: str) -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True, trim_blocks=True, autoescape=False
    )
    try:
        return environment.from_string(_text(package, path))
    except jinja2.TemplateError as error:
        raise _unreadable(package, path, error) from error


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
    values = usual | dict(context)
    plain = _plain(package, path)
    if plain is not None:
        with suppress(plain_templates.Unfilled):
            return plain.render(values)
    loaded = _template(package, path)
    try:
        return loaded.render(values)
    except Exception as error:
        message = f"the template {path!r} in {package!r} cannot be filled for {spec.name}: {plugins.error_text(error)}"
        raise plugins.fault(package, message, rule="template", value=path, remedy=plugins.REMEDY) from error
