"""Specs to CUDA instance files.  Pure: the same spec gives the same bytes anywhere."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources

import jinja2

from tilewright.backends.base import Source
from tilewright.errors import InternalError
from tilewright.ops.base import KernelSpec


@lru_cache(maxsize=8)
def _template(op: str) -> jinja2.Template:
    place = resources.files("tilewright.backends.cuda").joinpath(f"templates/{op}.cu.jinja")
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False)
    try:
        return environment.from_string(place.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InternalError(f"the cuda backend has no template for op {op!r}", rule="template") from None


def render(spec: KernelSpec) -> Source:
    text = _template(spec.op).render(name=spec.name, s=spec.signature, h=spec.schedule, manifest=spec.to_json())
    return Source(f"{spec.name}.cu", text, "cuda")
