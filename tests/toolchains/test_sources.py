from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.toolchains.fake_archive import write_index, write_sdist
from tilewright.errors import FileError, ToolchainError
from tilewright.toolchains import apt_sources, archive, python_index, recipe
from tilewright.toolchains.fetch import Fetcher, shown
from tilewright.toolchains.packages import Index, Relation, closure, compare, relations, upstream, version_key
from tilewright.toolchains.python_index import PipConfig


def apt_dir(root: Path, **files: str) -> Path:
    for name, text in files.items():
        place = root / "sources.list" if name == "main" else root / "sources.list.d" / name.replace("_", ".")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return root


def test_one_line_sources_are_read(tmp_path: Path) -> None:
    root = apt_dir(
        tmp_path,
        main="# deb http://old.invalid/archive gone main\n"
        "deb [arch=amd64 signed-by=/keys/a.gpg] http://one.invalid/archive/ trixie main contrib # words\n"
        "deb-src http://one.invalid/archive trixie main\n"
        "deb cdrom:[disc]/ trixie main\ndeb http://flat.invalid ./\n",
        more_list="deb copy:/srv/archive sid main\n",
        notes_txt="deb http://ignored.invalid/archive sid main\n",
    )
    found = apt_sources.read_sources(root)
    assert [(one.url, one.suite, one.components) for one in found] == [
        ("http://one.invalid/archive", "trixie", ("main", "contrib")),
        ("file:/srv/archive", "sid", ("main",)),
    ]
    assert found[0].signed_by == ("/keys/a.gpg",)


def test_deb822_sources_are_read(tmp_path: Path) -> None:
    root = apt_dir(
        tmp_path,
        debian_sources="Types: deb deb-src\n# a comment inside\nURIs: http://one.invalid/archive\n"
        " http://two.invalid/archive\nSuites: bookworm bookworm-updates\nComponents: main\nSigned-By: /keys/b.gpg\n\n"
        "Types: deb\nURIs: http://off.invalid/archive\nSuites: sid\nComponents: main\nEnabled: no\n\n"
        "Types: deb\nURIs: http://inline.invalid/archive\nSuites: sid\nComponents: main\n"
        "Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n abc\n",
    )
    found = apt_sources.read_sources(root)
    assert [(one.url, one.suite) for one in found] == [
        ("http://one.invalid/archive", "bookworm"),
        ("http://one.invalid/archive", "bookworm-updates"),
        ("http://two.invalid/archive", "bookworm"),
        ("http://two.invalid/archive", "bookworm-updates"),
        ("http://inline.invalid/archive", "sid"),
    ]
    first, _, inline = apt_sources.archives(found, root)
    assert (first.suites, first.signed_by) == (("bookworm", "bookworm-updates"), ("/keys/b.gpg",))
    assert inline.signed_by == ()


def test_no_apt_is_no_sources(tmp_path: Path) -> None:
    assert apt_sources.read_sources(tmp_path / "missing") == []


# Each one is older than the next, by dpkg's rules.
ORDER = ["1.0~~", "1.0~~a", "1.0~", "1.0~exp1", "1.0~exp2", "1.0", "1.0-1", "1.0-1+b1", "1.0-2", "1.0a", "1.0+dfsg",
         "1.0.1", "1.9", "1.10", "1:0.1", "2:0"]  # fmt: skip


def test_versions_are_ordered_as_dpkg_does() -> None:
    for one, other in itertools.combinations(ORDER, 2):
        assert compare(one, other) < 0, (one, other)
        assert compare(other, one) > 0, (one, other)
    assert compare("1.0", "0:1.0") == 0
    assert compare("1.00", "1.0") == 0


_VERSION = st.from_regex(r"([0-2]:)?[0-9]{1,2}([.+~][a-z0-9]{1,2}){0,2}(-[0-9~]{1,3})?", fullmatch=True)


@given(_VERSION, _VERSION, _VERSION)
def test_the_order_of_versions_is_an_order(one: str, two: str, three: str) -> None:
    assert compare(one, two) == -compare(two, one) or (compare(one, two) > 0) == (compare(two, one) < 0)
    first, second, third = sorted((one, two, three), key=version_key)
    assert compare(first, second) <= 0
    assert compare(second, third) <= 0
    assert compare(first, third) <= 0


def test_relations_are_read_with_alternatives_and_qualifiers() -> None:
    text = "libc6 (>= 2.38), python3:any | python3-minimal (<< 4), debconf (>= 0.5) | debconf-2.0"
    found = list(relations(text))
    assert found[0] == (Relation("libc6", ">=", "2.38"),)
    assert found[1] == (Relation("python3"), Relation("python3-minimal", "<<", "4"))
    assert [one.name for one in found[2]] == ["debconf", "debconf-2.0"]
    assert found[0][0].allows("2.43-7")
    assert not found[0][0].allows("2.36-9")


def test_lines_of_versions_end_at_numbers() -> None:
    assert recipe.in_line("7.2.4+dfsg-1~exp1", "7.2")
    assert recipe.in_line("7.2-1", "7.2")
    assert not recipe.in_line("7.20.1-1", "7.2")
    assert upstream("1:22.1.8-3") == "22.1.8"


def paragraph(name: str, version: str, depends: str = "", provides: str = "") -> str:
    lines = [f"Package: {name}", f"Version: {version}", f"Filename: pool/{name}.deb", "Size: 10", "SHA256: " + "0" * 64]
    lines += [f"Depends: {depends}"] * bool(depends) + [f"Provides: {provides}"] * bool(provides)
    return "\n".join(lines) + "\n"


def names(index: Index, *roots: str, skip: tuple[str, ...] = ()) -> list[str]:
    return [one.name for one in closure(index, [Relation(one) for one in roots], lambda found: found, skip)]


def test_the_closure_takes_each_package_once_and_ends_in_circles() -> None:
    index = Index()
    index.add(
        "\n".join([paragraph("a", "1", "b, c"), paragraph("b", "1", "a | x, c"), paragraph("c", "1", "b (>= 1)")]),
        "sid",
        "file:/x",
    )
    assert names(index, "a") == ["a", "b", "c"]
    assert names(index, "a", skip=("c*",)) == ["a", "b"]


def test_a_virtual_package_is_served_by_its_provider_in_a_fitting_version() -> None:
    index = Index()
    index.add(
        paragraph("old", "1", provides="api (= 1)") + "\n" + paragraph("new", "1", provides="api (= 2)"), "s", "u"
    )
    index.add(paragraph("user", "1", depends="api (>= 2)"), "s", "u")
    assert names(index, "user") == ["new", "user"]


def test_versions_that_exclude_each_other_are_an_error() -> None:
    index = Index()
    both = [paragraph("a", "1", "c (= 1), b"), paragraph("b", "1", "c (>= 2)"), paragraph("c", "1")]
    index.add("\n".join(both), "sid", "file:/x")
    with pytest.raises(ToolchainError, match=r"b needs c \(>= 2\), but c 1 is needed elsewhere"):
        names(index, "a")


def test_a_paragraph_without_its_digest_is_an_error() -> None:
    index = Index()
    index.add("Package: a\nVersion: 1\nFilename: a.deb\nSize: 1\n", "sid", "file:/x")
    with pytest.raises(ToolchainError, match="without 'sha256'"):
        names(index, "a")


LISTING = (
    "global.index-url='https://user:secret@one.invalid/index'\n"
    "global.extra-index-url='file:///srv/index https://two.invalid/index'\n"
    ":env:.cert='/etc/cert.pem'\nglobal.cert='/other.pem'\nuser.find-links='/srv/wheels'\n"
)
HELP = "-i, --index-url <url>  Base URL of the index (default\n     https://default.invalid/index). This should point"


def test_the_configuration_of_pip_is_read() -> None:
    config = python_index.read_config(LISTING, HELP)
    assert config.indexes == (
        "https://user:secret@one.invalid/index",
        "file:///srv/index",
        "https://two.invalid/index",
    )
    assert (config.cert, config.find_links) == ("/etc/cert.pem", ("/srv/wheels",))
    assert python_index.read_config("", HELP).indexes == ("https://default.invalid/index",)
    assert python_index.read_config("global.no-index='1'\n", HELP).indexes == ()


def test_this_machines_pip_can_be_asked() -> None:
    assert python_index.pip_config() == python_index.pip_config()


def test_a_password_is_never_shown() -> None:
    assert shown("https://user:secret@one.invalid/index") == "https://one.invalid/index"


def test_an_index_of_json_is_read(tmp_path: Path) -> None:
    page = tmp_path / "flash-attn"
    page.mkdir()
    files = [
        {"filename": "flash_attn-2.8.3.tar.gz", "url": "../files/a.tar.gz", "hashes": {"sha256": "ab"}, "size": 7},
        {"filename": "flash_attn-2.8.3-cp311-none-any.whl", "url": "../files/a.whl", "hashes": {}},
    ]
    (page / "index.html").write_text(json.dumps({"files": files}))
    (found,) = python_index.distributions(PipConfig((tmp_path.as_uri(),)), "flash-attn")
    assert (found.version, found.sha256, found.size) == ("2.8.3", "ab", 7)
    assert found.url == (tmp_path / "files" / "a.tar.gz").as_uri()


def test_the_first_index_may_be_unreachable(tmp_path: Path) -> None:
    good = write_index(tmp_path / "good", "2.8.3.post2")
    config = PipConfig(((tmp_path / "missing").as_uri(), good))
    assert [one.version for one in python_index.distributions(config, "flash-attn")] == ["2.8.3.post2"]
    with pytest.raises(ToolchainError, match="no source distribution of flash-attn") as caught:
        python_index.distributions(PipConfig(((tmp_path / "missing").as_uri(),)), "flash-attn")
    assert caught.value.rule == "no-headers"


def test_a_folder_of_distributions_serves_with_the_recorded_digest(tmp_path: Path) -> None:
    write_sdist(tmp_path, "2.8.3.post2")
    (found,) = python_index.distributions(PipConfig((), (str(tmp_path),)), "flash-attn")
    assert python_index.as_item(found, "ab").sha256 == "ab"
    with pytest.raises(ToolchainError, match="no SHA256 digest"):
        python_index.as_item(found, "")


def test_the_tested_release_is_preferred_to_later_ones(tmp_path: Path) -> None:
    index = write_index(tmp_path, "2.8.3", "2.8.3.post1", "2.8.3.post2", "2.8.3.post10", "2.8.30")
    offers = python_index.distributions(PipConfig((index,)), "flash-attn")
    assert python_index.choose(offers, "2.8.3.post2", "2.8.3").version == "2.8.3.post2"
    assert python_index.choose(offers, "2.8.3.post99", "2.8.3").version == "2.8.3.post10"


@pytest.fixture
def verifier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """A gpgv that says what the test wants; the answer is the verdict on a signature."""

    def verdict(says: str) -> str:
        tool, keys = tmp_path / "gpgv", tmp_path / "keys.gpg"
        tool.write_text(f"#!/bin/sh\nprintf '{says}'\n")
        tool.chmod(0o755)
        keys.write_bytes(b"keys")
        monkeypatch.setattr("shutil.which", lambda name: str(tool))
        return archive.check_signature(b"text", (str(keys),), "the release")

    return verdict


def test_one_known_signature_is_enough(verifier: Callable[[str], str]) -> None:
    assert verifier("[GNUPG:] NO_PUBKEY 1\\n[GNUPG:] VALIDSIG 2\\n") == "checked"
    assert "does not know the archive" in verifier("[GNUPG:] NO_PUBKEY 1\\n")


@pytest.mark.parametrize("says", ["[GNUPG:] BADSIG 1\\n[GNUPG:] VALIDSIG 2\\n", "[GNUPG:] NODATA 1\\n", ""])
def test_a_wrong_or_missing_signature_is_an_error(verifier: Callable[[str], str], says: str) -> None:
    with pytest.raises(ToolchainError) as caught:
        verifier(says)
    assert caught.value.rule == "archive-signature"


def test_only_the_signed_part_of_a_release_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "SHA256:\n 11 1 main/evil\n\n-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\nSuite: sid\n"
        "SHA256:\n 22 2 main/good\n-----BEGIN PGP SIGNATURE-----\nabc\n-----END PGP SIGNATURE-----\n"
    )
    (tmp_path / "dists" / "sid").mkdir(parents=True)
    (tmp_path / "dists" / "sid" / "InRelease").write_text(text)
    found = archive.read_release(Fetcher(), tmp_path.as_uri(), "sid", ())
    assert found.digests == {"main/good": ("22", 2)}


def test_the_recorded_recipe_is_complete() -> None:
    known = recipe.load_recipe()
    tested = known.tested
    assert {"hipcc", "clang-22", "rocm-device-libs-22", "libamdhip64-dev"} <= set(tested["packages"])
    assert recipe.in_line(tested["packages"]["hipcc"]["version"], known.lines[0])
    everything = [*tested["packages"].values(), *tested["sysroot"].values(), tested["headers"]]
    assert all(len(one["sha256"]) == 64 for one in everything)


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("usr/lib/llvm-22/bin/lld", True),
        ("usr/lib/llvm-22/bin/llvm-exegesis", False),
        ("usr/lib/llvm-22/lib/libLLVM.so.22.1", True),
        ("usr/lib/llvm-22/lib/clang/22/include/stddef.h", True),
        ("usr/lib/llvm-22/lib/libclangAST.a", False),
        ("usr/share/doc/lld-22/copyright", True),
        ("usr/share/doc/lld-22/changelog.Debian.gz", False),
        ("usr/share/man/man1/lld.1.gz", False),
        ("usr/bin/python3", False),
        ("usr/include/hip/hip_runtime.h", True),
        ("usr/lib/x86_64-linux-gnu/libc.so.6", True),
        ("usr/lib/x86_64-linux-gnu/gconv/IBM.so", False),
        ("etc/ld.so.conf", False),
    ],
)
def test_only_what_a_compiler_needs_is_unpacked(path: str, kept: bool) -> None:
    assert recipe.load_recipe().keeps(path) is kept


def test_a_mistake_in_the_recipe_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(recipe.__file__).parent / "rocm.json").read_text(encoding="utf-8")

    def read(_: object, encoding: str) -> str:
        return text.replace('"overlays"', '"overlay"', 1)

    monkeypatch.setattr(Path, "read_text", read)
    with pytest.raises(FileError, match=r"editions\[0\].overlay: there is no field") as caught:
        recipe.load_recipe()
    assert "did you mean 'overlays'" in caught.value.remedy
