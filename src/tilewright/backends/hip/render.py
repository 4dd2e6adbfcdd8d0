"""Specs to HIP instance headers over CK Tile.  Pure: the same spec gives the same bytes anywhere.

Everything a kernel needs to know is worked out here and filled into a Config; the C++ asserts that
the templates come to the same widths and LDS sizes.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import resources

import jinja2

from tilewright.backends.base import Source
from tilewright.backends.hip.profiles import Profile, profile
from tilewright.errors import InternalError
from tilewright.ops.base import KernelSpec
from tilewright.ops.gemm import amd_shape as shape

_ELEMENTS = ("a", "b", "acc", "c", "d")


@lru_cache(maxsize=8)
def _template(op: str) -> jinja2.Template:
    place = resources.files("tilewright.backends.hip").joinpath(f"templates/{op}.hpp.jinja")
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, keep_trailing_newline=True, trim_blocks=True, autoescape=False
    )
    try:
        return environment.from_string(place.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InternalError(f"the hip backend has no template for op {op!r}", rule="template") from None


def _named(table: str, names: Profile, value: str) -> object:
    known = getattr(names, table)
    if value not in known:
        raise InternalError(
            f"profile {names.name} has no {table} {value!r}, though legality let it pass",
            rule="header-profile",
            value=value,
        )
    return known[value]


def render(spec: KernelSpec) -> Source:
    return Source(f"{spec.name}.hpp", _text(spec), "hip")


def shared(spec: KernelSpec) -> str:
    """A header for precompiling: the includes of every pipeline, and a kernel as an example, which exports nothing."""
    return _text(spec, shared=True)


def _text(spec: KernelSpec, *, shared: bool = False) -> str:
    names, s, h = profile(), spec.signature, spec.schedule
    pipeline = _named("pipelines", names, h.pipeline)
    of = names.pipelines.values() if shared else (names.pipelines[h.pipeline],)
    return _template(spec.op).render(
        shared=shared,
        includes=list(dict.fromkeys(one for each in of for one in each["includes"])),
        name=spec.name,
        # An example must not meet the kernel of the same spec.
        space="tw_shared" if shared else f"tw_{spec.digest[:16]}",
        manifest=spec.to_json(),
        glue=names.glue,
        s=s,
        h=h,
        types={one: _named("types", names, getattr(s, f"dtype_{one}")) for one in _ELEMENTS},
        bytes={one: shape.bytes_of(getattr(s, f"dtype_{one}")) for one in _ELEMENTS},
        pipeline=pipeline,
        store=_named("stores", names, h.store),
        scheduler=_named("schedulers", names, h.scheduler),
        width_a=shape.width_a(s, h),
        width_b=shape.width_b(s, h),
        width_c=shape.width_c(s, h),
        width_d=shape.width_d(s, h),
        lds_bytes=shape.lds_bytes(s, h),
        threads=shape.threads(h),
        stages=shape.prefetch_stages(s, h),
    )
