"""Compiling through a content-addressed store: the same inputs are compiled once, ever."""

from tilewright.build.builder import Artifact, Builder, build_many, build_one, build_source, find
from tilewright.build.store import Entry, Store

__all__ = ["Artifact", "Builder", "Entry", "Store", "build_many", "build_one", "build_source", "find"]
