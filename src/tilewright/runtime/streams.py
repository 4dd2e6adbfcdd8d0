"""Which stream a `with stream:` around a call names; apart from `gpu`, which most programs never import."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewright.runtime.gpu import Stream

SCOPED: ContextVar[Stream | None] = ContextVar("tilewright_stream", default=None)

scoped_stream = SCOPED.get  # the stream of the innermost `with stream:`, of whichever device
