"""Build files for a folder of wrappers: CMake, Ninja and Make, each compiling one object a kernel.

All three link the same library and behave alike: an object is compiled again when its wrapper, a
header it includes or its command line changed, the library is linked again when an object or the
list of them changed, and the compiler can be named from outside.  Each has its own quoting; the
functions at the end are the only ones that do.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tilewright.backends.base import ObjectRules
from tilewright.errors import RequestError

MARK = "Written by `tilewright wrap`"
LIBRARY = "dispatcher_kernels"
# Each keeps its own notes of what an object was made from, so each has its own objects.
NINJA_OBJECTS = "objects.ninja"
MAKE_OBJECTS = "objects.make"
OBJECT_LIST = "Makefile.objects"
_HEAD = f"# {MARK}; run it again instead of editing."


@dataclass(frozen=True, slots=True)
class Unit:
    """One wrapper and its object.  The object's name has no character any build system minds."""

    name: str
    wrapper: str
    object_name: str
    arch: str


@dataclass(frozen=True, slots=True)
class Layout:
    """What a build file speaks of: the units, the rules of their archs, the way to the kernels."""

    units: tuple[Unit, ...]
    rules: Mapping[str, ObjectRules]  # by arch, in the order of their names
    kernel_dir: str  # as seen from the folder of the build file

    @property
    def first(self) -> ObjectRules:
        """What all archs of a backend share: compiler, language, include folders."""
        return next(iter(self.rules.values()))

    @property
    def library(self) -> str:
        return f"lib{LIBRARY}{self.first.library_suffix}"

    def link_flags(self) -> tuple[str, ...]:
        return _union(rule.link_flags for rule in self.rules.values())

    def libraries(self) -> tuple[str, ...]:
        return _union(rule.libraries for rule in self.rules.values())


def _union(lists: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """The lists one after the other, each different one once: flags of two words stay together."""
    return tuple(word for words in dict.fromkeys(lists) for word in words)


def cmake(layout: Layout) -> dict[str, str]:
    rules = layout.first
    compiler = f"CMAKE_{rules.language}_COMPILER"
    lines = [
        _HEAD,
        "#   cmake -S . -B build && cmake --build build --parallel",
        f"# Another compiler: cmake -D {compiler}=..., or the environment variable {rules.variable}.",
        "cmake_minimum_required(VERSION 3.20)",
        "",
        f"if(NOT DEFINED {compiler})",
        f"  if(DEFINED ENV{{{rules.variable}}})",
        f'    separate_arguments({compiler} UNIX_COMMAND "$ENV{{{rules.variable}}}")',
        "  else()",
        f"    set({compiler} {' '.join(map(_cmake, rules.compiler))})",
        "  endif()",
        "endif()",
    ]
    if rules.language == "CUDA":
        lines += ["set(CMAKE_CUDA_ARCHITECTURES OFF)  # the flags below name them"]
    lines += [
        f"project({LIBRARY} LANGUAGES {rules.language})",
        "",
        "# The headers of the tilewright package the kernels were generated with.",
        "if(NOT DEFINED TW_INCLUDE_DIRS)",
        "  set(TW_INCLUDE_DIRS",
        *(f"    {_cmake(str(folder))}" for folder in rules.include_dirs),
        "  )",
        "endif()",
        f'set(TW_KERNEL_DIR "${{CMAKE_CURRENT_SOURCE_DIR}}/{_cmake(layout.kernel_dir)[1:]})',
        "",
    ]
    for arch, object_rules in layout.rules.items():
        target = f"kernels_{arch}"
        lines += [
            f"add_library({target} OBJECT",
            *(f"  {_cmake(unit.wrapper)}" for unit in layout.units if unit.arch == arch),
            ")",
            f"set_target_properties({target} PROPERTIES POSITION_INDEPENDENT_CODE ON)",
            f'target_include_directories({target} PRIVATE "${{TW_KERNEL_DIR}}" ${{TW_INCLUDE_DIRS}})',
            f"target_compile_options({target} PRIVATE {_cmake_words(object_rules.compile_flags)})",
            "",
        ]
    objects = " ".join(f"$<TARGET_OBJECTS:kernels_{arch}>" for arch in layout.rules)
    lines += [
        f"add_library({LIBRARY} SHARED {objects})",
        f"set_target_properties({LIBRARY} PROPERTIES LINKER_LANGUAGE {rules.language})",
    ]
    return {"CMakeLists.txt": _text([*lines, *_cmake_linking(layout)])}


def _cmake_linking(layout: Layout) -> list[str]:
    flags, libraries = layout.link_flags(), layout.libraries()
    lines: list[str] = []
    if layout.first.language == "CUDA":
        # CMake links CUDA with the host's compiler, which knows libraries but none of nvcc's own words.
        runtime = next((word for word in (*flags, *libraries) if word.startswith("-cudart=")), "-cudart=static")
        lines += [
            f"set_target_properties({LIBRARY} PROPERTIES CUDA_RUNTIME_LIBRARY {runtime.partition('=')[2].capitalize()})"
        ]
        libraries = tuple(word for word in (*flags, *libraries) if word.startswith(("-l", "-L")))
        flags = ()
    if flags:
        lines += [f"target_link_options({LIBRARY} PRIVATE {_cmake_words(flags)})"]
    if libraries:
        lines += [f"target_link_libraries({LIBRARY} PRIVATE {' '.join(map(_cmake, libraries))})"]
    return lines


def ninja(layout: Layout) -> dict[str, str]:
    rules = layout.first
    lines = [
        _HEAD,
        "#   ninja",
        f"# Another compiler: {rules.variable}=... ninja",
        "ninja_required_version = 1.5",
        f"builddir = {NINJA_OBJECTS}",
        "",
        f"compiler = $${{{rules.variable}:-{_ninja_words(rules.compiler)}}}",
        "# The headers of the tilewright package the kernels were generated with.",
        f"tw_includes = {_ninja_words(f'-I{folder}' for folder in rules.include_dirs)}",
        f"kernel_dir = {_ninja_words([layout.kernel_dir])}",
        f"link_flags = {_ninja_words(layout.link_flags())}",
        f"libraries = {_ninja_words(layout.libraries())}",
        *(f"flags_{arch} = {_ninja_words(object_rules.compile_flags)}" for arch, object_rules in layout.rules.items()),
        "",
        "rule kernel",
        "  command = $compiler $flags -I$kernel_dir $tw_includes -MD -MF $out.d -c -o $out $in",
        "  depfile = $out.d",
        "  deps = gcc",
        "  description = kernel $name",
        "",
        "rule library",
        f"  command = $compiler -shared $link_flags -o $out {_ninja_text(rules.response_flag)}$out.rsp $libraries",
        "  rspfile = $out.rsp",
        "  rspfile_content = $in_newline",
        "  description = library $out",
        "",
    ]
    for unit in layout.units:
        lines += [
            f"build {NINJA_OBJECTS}/{unit.object_name}.o: kernel {_ninja_path(unit.wrapper)}",
            f"  flags = $flags_{unit.arch}",
            f"  name = {_ninja_text(unit.name)}",
        ]
    lines += [
        "",
        f"build {layout.library}: library $",
        *(f"    {NINJA_OBJECTS}/{unit.object_name}.o $" for unit in layout.units[:-1]),
        f"    {NINJA_OBJECTS}/{layout.units[-1].object_name}.o",
        f"default {layout.library}",
    ]
    return {"build.ninja": _text(lines)}


def make(layout: Layout) -> dict[str, str]:
    rules = layout.first
    variable = rules.variable
    count = len(layout.units)
    lines = [
        _HEAD,
        "#   make -j4",
        f"# Another compiler: make {variable}=...   The commands in full: make Q=",
        "# `make` gives CXX a value of its own, which is nobody's choice.",
        f"ifneq ($(filter default undefined,$(origin {variable})),)",
        f"{variable} := {_make_words(rules.compiler)}",
        "endif",
        "# The headers of the tilewright package the kernels were generated with.",
        f"TW_INCLUDES = {_make_words(f'-I{folder}' for folder in rules.include_dirs)}",
        f"KERNEL_DIR = {_make_words([layout.kernel_dir])}",
        f"LINK_FLAGS = {_make_words(layout.link_flags())}",
        f"LIBRARIES = {_make_words(layout.libraries())}",
        *(f"FLAGS_{arch} = {_make_words(object_rules.compile_flags)}" for arch, object_rules in layout.rules.items()),
        f"LINK = $({variable}) -shared $(LINK_FLAGS) -o {layout.library} "
        f"{_make_text(rules.response_flag)}{OBJECT_LIST} $(LIBRARIES)",
        "Q = @",
        "",
        "OBJECTS = \\",
        *(f"  {MAKE_OBJECTS}/{unit.object_name}.o \\" for unit in layout.units[:-1]),
        f"  {MAKE_OBJECTS}/{layout.units[-1].object_name}.o",
        "",
        ".PHONY: all clean FORCE",
        ".DELETE_ON_ERROR:",
        f"all: {layout.library}",
        "clean:",
        f"\t$(Q)rm -rf {MAKE_OBJECTS} {layout.library}",
        "",
        f"{layout.library}: $(OBJECTS) {OBJECT_LIST} {MAKE_OBJECTS}/link.command",
        "\t@echo 'library $@'",
        "\t$(Q)$(LINK)",
        "",
        "# A command is kept in a file that changes only with it: other flags compile again, more kernels do not.",
        "KEEP = @mkdir -p $(@D) && printf '%s\\n' $(1) > $@.new && "
        "if cmp -s $@.new $@; then rm -f $@.new; else mv -f $@.new $@; fi",
        f"{MAKE_OBJECTS}/link.command: FORCE",
        "\t$(call KEEP,$(LINK))",
    ]
    for arch in layout.rules:
        lines += [
            f"COMPILE_{arch} = $({variable}) $(FLAGS_{arch}) -I$(KERNEL_DIR) $(TW_INCLUDES)",
            f"{MAKE_OBJECTS}/{arch}.command: FORCE",
            f"\t$(call KEEP,$(COMPILE_{arch}))",
        ]
    lines += [""]
    for number, unit in enumerate(layout.units, 1):
        place = f"{MAKE_OBJECTS}/{unit.object_name}"
        lines += [
            f"{place}.o: {_make_path(unit.wrapper)} {MAKE_OBJECTS}/{unit.arch}.command",
            f"\t@echo '[{number}/{count}] {_make_text(unit.name)}'",
            f"\t$(Q)$(COMPILE_{unit.arch}) -MD -MP -MF {place}.d -c -o $@ {_make_recipe(unit.wrapper)}",
        ]
    lines += ["", "-include $(OBJECTS:.o=.d)"]
    names = "".join(f"{MAKE_OBJECTS}/{unit.object_name}.o\n" for unit in layout.units)
    return {"Makefile": _text(lines), OBJECT_LIST: names}


BUILD_SYSTEMS: dict[str, Callable[[Layout], dict[str, str]]] = {"cmake": cmake, "ninja": ninja, "make": make}
HOW_TO_BUILD = {
    "cmake": "cmake -S {place} -B {place}/build && cmake --build {place}/build --parallel {jobs}",
    "ninja": "ninja -C {place} -j {jobs}",
    "make": "make -C {place} -j {jobs}",
}


def demand_buildable(system: str, layout: Layout, folder: Path) -> None:
    """Refuse folders that a build system cannot express, before anything is written."""
    banned = _UNSPEAKABLE[system]
    own = [str(folder)] if system == "cmake" else []  # the others name nothing of it but what is below
    for place in (*own, layout.kernel_dir, *map(str, layout.first.include_dirs)):
        odd = next((letter for letter in place if letter in banned), "")
        if odd:
            raise RequestError(
                f"{system} cannot build in or with the folder {place}: it has the character {odd!r}",
                rule="path-characters",
                value=place,
                remedy="rename the folder, or choose another build system",
            )


# Found by trying: with these a build fails, or compiles everything each time it is asked.
_UNSPEAKABLE = {"cmake": '":;\\[]|', "ninja": ";*|", "make": ":;|"}


# -- quoting -------------------------------------------------------------------------------------------


def _text(lines: Iterable[str]) -> str:
    return "\n".join(line.rstrip(" ") for line in lines) + "\n"


def _cmake(text: str) -> str:
    """One quoted argument."""
    for mark in ("\\", '"', "$", ";"):
        text = text.replace(mark, f"\\{mark}")
    return f'"{text}"'


def _cmake_words(words: Iterable[str]) -> str:
    """Flags as one argument that CMake takes apart like a shell, and does not rid of repeated words."""
    return _cmake(f"SHELL:{shlex.join(words)}")


def _ninja_text(text: str) -> str:
    return text.replace("$", "$$")


def _ninja_words(words: Iterable[str]) -> str:
    return _ninja_text(shlex.join(words))


def _ninja_path(text: str) -> str:
    return _ninja_text(text).replace(" ", "$ ").replace(":", "$:")


def _make_text(text: str) -> str:
    return text.replace("$", "$$")


def _make_words(words: Iterable[str]) -> str:
    """The value of a variable that recipes hand to the shell."""
    return _make_text(shlex.join(words)).replace("#", "\\#")


def _make_recipe(word: str) -> str:
    return _make_text(shlex.quote(word))


def _make_path(text: str) -> str:
    """A prerequisite."""
    return _make_text(text).replace(" ", "\\ ").replace("#", "\\#")
