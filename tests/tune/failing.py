"""Builders of which the first kernel does not compile, or none."""

from __future__ import annotations

from typing import Any

from tilewright import events
from tilewright.build import Builder
from tilewright.errors import CompileError

WHY = "no such instruction"


class FailingBuilder(Builder):
    def build_many(self, specs: Any, **options: Any) -> Any:
        first, *others = specs
        for one in others:
            Builder().build_one(one)
        options["on_event"](events.BuildFailed(first.name, WHY, ""))
        raise CompileError(WHY, rule="compile", value="", remedy="x")


class NothingBuilds(Builder):
    def build_many(self, specs: Any, **options: Any) -> Any:
        for one in specs:
            options["on_event"](events.BuildFailed(one.name, WHY, ""))
        raise CompileError(WHY, rule="compile", value="", remedy="x")
