"""Debian package indexes: versions in their order, relations, and the closure of what is needed.

By hand: python-apt belongs to the system's Python and asks the system's own database, which must not change here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cmp_to_key

from tilewright.errors import ToolchainError
from tilewright.toolchains.apt_sources import stanzas

_PARTS = re.compile(r"(\D*)(\d*)")
_RELATION = re.compile(r"^([a-z0-9][a-z0-9+.-]*)(?::[a-z0-9-]+)?\s*(?:\(\s*(<<|<=|=|>=|>>)\s*([^\s)]+)\s*\))?")


def _letters(version: str, other: str) -> int:
    def rank(text: str, at: int) -> int:
        if at >= len(text):
            return 0
        if text[at] == "~":
            return -1  # sorts even before the end: 1.0~exp1 comes before 1.0
        return ord(text[at]) + (0 if text[at].isalpha() else 256)

    for at in range(max(len(version), len(other))):
        difference = rank(version, at) - rank(other, at)
        if difference:
            return difference
    return 0


def _compare_part(version: str, other: str) -> int:
    left, right = _PARTS.findall(version), _PARTS.findall(other)
    for at in range(max(len(left), len(right))):
        letters, digits = left[at] if at < len(left) else ("", "")
        other_letters, other_digits = right[at] if at < len(right) else ("", "")
        difference = _letters(letters, other_letters) or int(digits or 0) - int(other_digits or 0)
        if difference:
            return difference
    return 0


def _split(version: str) -> tuple[int, str, str]:
    epoch, colon, rest = version.partition(":")
    if not colon:
        epoch, rest = "0", version
    upstream, dash, revision = rest.rpartition("-")
    return (int(epoch) if epoch.isdecimal() else 0), (upstream if dash else rest), (revision if dash else "")


def compare(version: str, other: str) -> int:
    """Negative, zero or positive as `one` is older than, the same as or newer than `other` (dpkg's order)."""
    left, right = _split(version), _split(other)
    return left[0] - right[0] or _compare_part(left[1], right[1]) or _compare_part(left[2], right[2])


version_key = cmp_to_key(compare)


def upstream(version: str) -> str:
    return _split(version)[1]


@dataclass(frozen=True, slots=True)
class Relation:
    """`name`, or `name (operator version)`."""

    name: str
    operator: str = ""
    version: str = ""

    def allows(self, version: str) -> bool:
        if not self.operator:
            return True
        order = compare(version, self.version)
        return {"<<": order < 0, "<=": order <= 0, "=": order == 0, ">=": order >= 0, ">>": order > 0}[self.operator]

    def __str__(self) -> str:
        return f"{self.name} ({self.operator} {self.version})" if self.operator else self.name


def relations(text: str) -> Iterator[tuple[Relation, ...]]:
    """A dependency field: groups that must all hold, each a tuple of alternatives."""
    for group in text.split(","):
        matches = [_RELATION.match(alternative.strip()) for alternative in group.split("|")]
        alternatives = tuple(Relation(match[1], match[2] or "", match[3] or "") for match in matches if match)
        if alternatives:
            yield alternatives


@dataclass(frozen=True, slots=True)
class Package:
    """One version of one package in one suite."""

    name: str
    version: str
    source: str
    suite: str
    url: str
    sha256: str
    size: int
    installed_bytes: int
    depends: str
    provides: str

    @property
    def file_name(self) -> str:
        return self.url.rsplit("/", 1)[-1]


class Index:
    """The packages of several suites.  Paragraphs are read on demand: one suite has seventy thousand."""

    def __init__(self) -> None:
        self._paragraphs: dict[str, list[tuple[str, str, str]]] = {}
        self._providers: dict[str, list[str]] = {}

    def add(self, text: str, suite: str, base_url: str) -> None:
        for paragraph in text.split("\n\n"):
            if not paragraph.startswith("Package: "):
                paragraph = paragraph.lstrip("\n")
                if not paragraph.startswith("Package: "):
                    continue
            name = paragraph[9 : (paragraph + "\n").index("\n")].strip()
            self._paragraphs.setdefault(name, []).append((paragraph, suite, base_url))
            at = paragraph.find("\nProvides: ")
            if at >= 0:
                line = paragraph[at + 11 :].split("\n", 1)[0]
                for group in relations(line):
                    self._providers.setdefault(group[0].name, []).append(name)

    def names(self, pattern: str) -> list[str]:
        return sorted(paragraph for paragraph in self._paragraphs if fnmatchcase(paragraph, pattern))

    def versions(self, name: str) -> list[Package]:
        """Every version of a package, in the order of the suites."""
        return [_package(*paragraph) for paragraph in self._paragraphs.get(name, ())]

    def providers(self, relation: Relation) -> Iterator[Package]:
        for name in dict.fromkeys(self._providers.get(relation.name, ())):
            for version in self.versions(name):
                for (offer,) in (group for group in relations(version.provides) if len(group) == 1):
                    # An unversioned offer satisfies only an unversioned wish.
                    if offer.name == relation.name and (
                        not relation.operator or (offer.operator == "=" and relation.allows(offer.version))
                    ):
                        yield version


def _package(paragraph: str, suite: str, base_url: str) -> Package:
    fields = next(stanzas(paragraph))
    try:
        depends = ", ".join(field for field in (fields.get("pre-depends"), fields.get("depends")) if field)
        return Package(
            name=fields["package"],
            version=fields["version"],
            source=fields.get("source", fields["package"]).split(" ")[0],
            suite=suite,
            url=f"{base_url}/{fields['filename']}",
            sha256=fields["sha256"],
            size=int(fields["size"]),
            installed_bytes=int(fields.get("installed-size", "0")) * 1024,
            depends=depends,
            provides=fields.get("provides", ""),
        )
    except (KeyError, ValueError) as error:
        raise ToolchainError(
            f"the index of {suite} describes {fields.get('package', 'a package')} without {error}",
            rule="archive-index",
            remedy="the mirror is damaged; try again later or configure another one for apt",
        ) from error


Preference = Callable[[Sequence[Package]], Sequence[Package]]


def closure(index: Index, roots: Iterable[Relation], prefer: Preference, skip: Sequence[str]) -> list[Package]:
    """The roots and all they need, one version of each, sorted by name.

    `prefer` orders the versions of one package, best first.  Names that match a pattern of `skip`
    are never followed: they are of no use to a compiler that only runs from its folder.
    """
    chosen: dict[str, Package] = {}
    todo: list[tuple[str, tuple[Relation, ...]]] = [("", (root,)) for root in roots]
    while todo:
        wanted_by, group = todo.pop(0)
        if any(fnmatchcase(relation.name, pattern) for relation in group for pattern in skip):
            continue
        if any(_satisfied(relation, chosen) for relation in group):
            continue
        taken = [chosen[relation.name] for relation in group if relation.name in chosen]
        if taken:
            raise _conflict(wanted_by, group, f"{taken[0].name} {taken[0].version} is needed elsewhere")
        package = _choose(index, group, prefer)
        if package is None:
            raise _conflict(wanted_by, group, "the archive has no such package")
        if package.name in chosen:  # an alternative that provides the name is there in another version
            continue
        chosen[package.name] = package
        todo += [(package.name, relation) for relation in relations(package.depends)]
    return sorted(chosen.values(), key=lambda package: package.name)


def _satisfied(relation: Relation, chosen: dict[str, Package]) -> bool:
    there = chosen.get(relation.name)
    if there is not None:
        return relation.allows(there.version)
    if relation.operator:
        return False
    offers = [package.provides for package in chosen.values() if package.provides]
    return any(group[0].name == relation.name for text in offers for group in relations(text))


def _choose(index: Index, group: tuple[Relation, ...], prefer: Preference) -> Package | None:
    for relation in group:
        fitting = [version for version in index.versions(relation.name) if relation.allows(version.version)]
        if fitting:
            return prefer(fitting)[0]
    for relation in group:
        offers = list(index.providers(relation))
        if offers:
            return prefer(offers)[0]
    return None


def _conflict(wanted_by: str, group: tuple[Relation, ...], why: str) -> ToolchainError:
    wish = " | ".join(str(relation) for relation in group)
    return ToolchainError(
        f"{wanted_by or 'the toolchain'} needs {wish}, but {why}",
        rule="archive-dependency",
        value=wish,
        remedy="the archive is in the middle of an update; try again in some hours, or use ROCm's own packages",
    )
