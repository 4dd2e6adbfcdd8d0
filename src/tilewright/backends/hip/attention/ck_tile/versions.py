"""Attention's parts of the versions of CK Tile's headers: which kernels each has, under which names."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from tilewright.backends.hip.ck_tile import chosen
from tilewright.backends.hip.profiles import DEFAULT, PACKAGE, Sign, all_profiles, has_part, read_part
from tilewright.dataclass import dataclass
from tilewright.errors import ToolchainError


@dataclass(frozen=True, slots=True)
class AttentionProfile:
    """Attention's part of a version of the CK Tile headers."""

    told_by: tuple[Sign, ...]  # beyond what tells the version
    routes: Mapping[str, str]  # which kernel, to our header that turns a Config into this version's templates
    pipelines: Mapping[str, Mapping[str, Any]]  # route and pipeline to class and includes


@lru_cache(maxsize=8)
def attention_profile(version: str = DEFAULT) -> AttentionProfile:
    if not has_part(PACKAGE, f"attention.{version}.json"):
        raise ToolchainError(
            f"attention kernels are not written for CK Tile headers of {version}",
            rule="headers-lack",
            value=version,
            remedy=f"use headers of {DEFAULT} (`tilewright toolchain install rocm`), or loops",
        )
    return read_part(PACKAGE, f"attention.{version}.json", AttentionProfile)


def current() -> str:
    """The version kernels are for now; the usual one where a setting names headers that no kernel is written for."""
    try:
        return chosen()
    except ToolchainError:  # builds say so
        return DEFAULT


@lru_cache(maxsize=8)
def written(version: str) -> frozenset[str]:
    """Routes and pipelines that kernels are written for."""
    if not has_part(PACKAGE, f"attention.{version}.json"):
        return frozenset()
    return frozenset(attention_profile(version).pipelines)


def having(kernel: str) -> list[str]:
    """The versions that have a route's pipeline."""
    return [known.name for known in all_profiles() if kernel in written(known.name)]
