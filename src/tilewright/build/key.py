"""The key of a build: a hash over everything that can change the library, and nothing else.

Spec, source bytes, transitive headers, flags, compiler identity, arch and the schema of the store.
Never a path, a time stamp, an order of traversal or a locale.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tilewright.backends.base import Source, Toolchain
from tilewright.build.headers import header_digests
from tilewright.dataclass import dataclass
from tilewright.digests import sha256
from tilewright.ops.base import KernelSpec

# Raised when the layout of an entry or the meaning of an input changes.
STORE_SCHEMA = 1


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


@dataclass(frozen=True, slots=True)
class KeyInputs:
    """The inputs as data, kept in the manifest so that two keys can be compared by a person."""

    values: dict[str, Any]

    @property
    def key(self) -> str:
        return sha256(canonical(self.values).encode()).hexdigest()


def key_inputs(
    source: Source, arch: str, toolchain: Toolchain, *, spec: KernelSpec | None = None, extra: str = "", op: str = ""
) -> KeyInputs:
    """Everything that decides what comes out of compiling `source` for `arch`."""
    identity = toolchain.identity
    places = toolchain.include_dirs(spec.op if spec is not None else op)
    return KeyInputs(
        {
            **source_inputs(source, arch, places, spec=spec, extra=extra),
            "flags": list(toolchain.flags(arch)),
            "compiler": {"kind": identity.kind, "version": identity.version, "digest": identity.digest},
        }
    )


def source_inputs(
    source: Source, arch: str, include_dirs: Sequence[Path], *, spec: KernelSpec | None = None, extra: str = ""
) -> dict[str, Any]:
    """Those inputs that no compiler has a part in."""
    return {
        "schema": STORE_SCHEMA,
        "arch": arch,
        "spec": spec.digest if spec is not None else "",
        "extra": extra,
        "language": source.language,
        "source": sha256(source.text.encode()).hexdigest(),
        "headers": header_digests(source.text, include_dirs),
    }
