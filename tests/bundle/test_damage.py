"""Files that are no bundle, or no longer: one clear error each, which names what is wrong."""

from __future__ import annotations

import hashlib
import json
import os
import random
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tilewright.build import bundled
from tilewright.build.bundle_file import BundleFile, archive
from tilewright.dispatch import kernels
from tilewright.errors import FileError, LoadError, TilewrightError

MANIFEST: dict[str, Any] = {
    "format": "tilewright-bundle", "version": 1, "abi": list(bundled.ABI), "created_by": "a test", "targets": {},
    "selection": {}, "files": {}, "coverage": [],
}  # fmt: skip


def written(path: Path, contents: dict[str, bytes], **changes: Any) -> Path:
    facts = {name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)} for name, data in contents.items()}
    manifest = json.dumps({**MANIFEST, "files": facts, **changes}).encode()
    path.write_bytes(b"".join(archive({**contents, "manifest.json": manifest})))
    return path


def refused(path: Path, rule: str, words: str = "") -> None:
    with pytest.raises(FileError) as caught, BundleFile(path) as bundle:
        bundle.check()
    assert caught.value.rule == rule, caught.value
    assert str(path) in caught.value.message
    assert words in caught.value.message
    assert caught.value.remedy
    if rule != "bundle-digest":  # which is noticed when the file is read
        with pytest.raises(TilewrightError):
            tw.use_bundle(path)
    assert not bundled._named


def test_a_sound_one_passes(tmp_path: Path) -> None:
    path = written(tmp_path / "a.twb", {"kernels/x.so": b"abc", "zz": b""})
    with BundleFile(path) as bundle:
        assert bundle.check() == 3
        assert bundle.read("kernels/x.so") == b"abc"


@pytest.mark.parametrize("keep", [0, 1, 21, 22, 100, -1, -23])
def test_a_cut_off_file(tmp_path: Path, keep: int) -> None:
    path = written(tmp_path / "a.twb", {"kernels/x.so": b"abc" * 100})
    data = path.read_bytes()
    path.write_bytes(data[:keep])
    refused(path, "bundle-archive")


def test_bytes_after_the_end(tmp_path: Path) -> None:
    path = written(tmp_path / "a.twb", {"kernels/x.so": b"abc"})
    path.write_bytes(path.read_bytes() + b"x")
    refused(path, "bundle-archive")


def test_every_changed_byte_is_noticed(tmp_path: Path) -> None:
    path = written(tmp_path / "a.twb", {"kernels/x.so": b"abc" * 30, "registry/t.json": b"{}"})
    data = path.read_bytes()
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1
        path.write_bytes(changed)
        with pytest.raises(FileError), BundleFile(path) as bundle:
            bundle.check()


def test_a_changed_library_is_refused_by_its_name(bundle: Path) -> None:
    with BundleFile(bundle) as opened:
        name = next(one for one in opened.entries if one.startswith("kernels/"))
        at = opened.entries[name].start + 100
    data = bytearray(bundle.read_bytes())
    data[at] ^= 255
    bundle.write_bytes(data)
    refused(bundle, "bundle-digest", name)
    with tw.use_bundle(bundle) as used:
        spec = next(s for t in used.targets for s in used._bundle.specs(t) if s.digest in name)
        with pytest.raises(FileError, match=name):
            kernels.kernel(spec)


def repacked(path: Path, change: Callable[[dict[str, bytes], dict[str, Any]], None]) -> None:
    """Change the files and the manifest of a bundle, with digests that fit."""
    with BundleFile(path) as opened:
        files = {name: opened.read(name) for name in opened.files}
        manifest = opened.manifest
    change(files, manifest)
    del manifest["files"]
    written(path, files, **manifest)


def test_the_library_of_another_kernel_is_refused(bundle: Path) -> None:
    def swap(files: dict[str, bytes], manifest: dict[str, Any]) -> None:
        first, second = (one["file"] for one in manifest["targets"]["generic"]["kernels"][:2])
        files[first], files[second] = files[second], files[first]

    repacked(bundle, swap)
    with tw.use_bundle(bundle) as used:
        first = used._bundle.file.manifest["targets"]["generic"]["kernels"][0]["digest"]
        spec = next(one for one in used._bundle.specs("generic") if one.digest == first)
        with pytest.raises(LoadError) as caught:
            kernels.kernel(spec)
    assert caught.value.rule == "digest"
    assert str(bundle) in str(caught.value.value)


def test_what_is_no_library_is_refused(bundle: Path) -> None:
    def spoil(files: dict[str, bytes], manifest: dict[str, Any]) -> None:
        files[manifest["targets"]["generic"]["kernels"][0]["file"]] = b"no library"

    repacked(bundle, spoil)
    with tw.use_bundle(bundle) as used:
        first = used._bundle.file.manifest["targets"]["generic"]["kernels"][0]["digest"]
        spec = next(one for one in used._bundle.specs("generic") if one.digest == first)
        with pytest.raises(LoadError) as caught:
            kernels.kernel(spec)
    assert caught.value.rule == "library"


def other_zip(path: Path, names: list[str], compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", compression) as made:
        made.writestr("manifest.json", json.dumps(MANIFEST))
        for name in names:
            made.writestr(name, "abc" * 100)


def test_compressed_entries(tmp_path: Path) -> None:
    other_zip(tmp_path / "a.twb", ["x"], zipfile.ZIP_DEFLATED)
    refused(tmp_path / "a.twb", "bundle-archive", "compressed")


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x", "a//b", "a\\b", ".hidden", "a/", "ü"])
def test_names_that_lead_elsewhere(tmp_path: Path, name: str) -> None:
    other_zip(tmp_path / "a.twb", [name])
    refused(tmp_path / "a.twb", "bundle-archive")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_is_there_twice(tmp_path: Path) -> None:
    path = tmp_path / "a.twb"
    path.write_bytes(_doubled(written(path, {"a": b"xyz", "b": b"xyz"}).read_bytes()))
    refused(path, "bundle-archive", "twice")


def _doubled(data: bytes) -> bytes:
    """Both files called a."""
    changed, in_directory = data.replace(b"bxyz", b"axyz"), data.index(b"bPK\x01\x02")
    return changed[:in_directory] + b"a" + changed[in_directory + 1 :]


def test_a_size_that_is_not_there(tmp_path: Path) -> None:
    path = written(tmp_path / "a.twb", {"kernels/x.so": b"abc"})
    data = bytearray(path.read_bytes())
    at = data.index(b"PK\x01\x02")
    data[at + 20 : at + 28] = b"\xff\xff\xff\xfe" * 2
    path.write_bytes(data)
    refused(path, "bundle-archive", "bytes")


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"version": 2}, "bundle-version"),
        ({"version": None}, "bundle-version"),
        ({"format": "another"}, "bundle-manifest"),
        ({"abi": "3"}, "bundle-manifest"),
        ({"targets": []}, "bundle-manifest"),
        ({"targets": {"generic": {"backend": "cpu", "registry": "r", "kernels": [{"digest": 1}]}}}, "bundle-manifest"),
        ({"selection": {"gemm": {"file": "x"}}}, "bundle-manifest"),
        ({"targets": {"generic": {"backend": "cpu", "registry": "not/there", "kernels": []}}}, "bundle-manifest"),
        ({"models": [{"file": "not/there", "sha256": "", "bytes": 1}]}, "bundle-manifest"),
        ({"coverage": 7}, "bundle-manifest"),
        ({"coverage": [{"stages": "x"}]}, "bundle-manifest"),
        ({"coverage": [{"stages": [3]}]}, "bundle-manifest"),
        ({"files": {"x": 1}}, "bundle-manifest"),
        ({"files": {"x": {"sha256": "", "bytes": 1}}}, "bundle-missing-file"),
    ],
)
def test_manifests_that_are_none(tmp_path: Path, changes: dict[str, Any], rule: str) -> None:
    path = written(tmp_path / "a.twb", {}, **changes)
    with pytest.raises(FileError) as caught, BundleFile(path) as bundle:
        bundle.check()
    assert caught.value.rule == rule


@pytest.mark.parametrize("text", [b"", b"{", b"[1, 2]", b"\xff\xfe", b'{"format": 1, "format": 2}', b"[" * 100_000])
def test_a_manifest_that_is_no_json(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "a.twb"
    path.write_bytes(b"".join(archive({"manifest.json": text})))
    refused(path, "bundle-manifest", "manifest.json")


def test_no_manifest_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.twb"
    path.write_bytes(b"".join(archive({"x": b"abc"})))
    refused(path, "bundle-manifest")


def test_a_file_that_the_manifest_does_not_name(tmp_path: Path) -> None:
    path = tmp_path / "a.twb"
    path.write_bytes(b"".join(archive({"manifest.json": json.dumps(MANIFEST).encode(), "more": b"abc"})))
    with pytest.raises(FileError, match="more") as caught, BundleFile(path) as bundle:
        bundle.check()
    assert caught.value.rule == "bundle-stray-file"


def test_what_is_no_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.twb")
    refused(tmp_path / "pipe.twb", "bundle-unreadable")
    refused(tmp_path, "bundle-unreadable")
    refused(tmp_path / "none.twb", "bundle-unreadable")
    (tmp_path / "empty.twb").touch()
    refused(tmp_path / "empty.twb", "bundle-archive")


def test_noise(tmp_path: Path) -> None:
    """Bytes of a bundle in disorder are an error of ours, never one of Python's."""
    drawn = random.Random(3)
    path = written(tmp_path / "a.twb", {"kernels/x.so": b"abc" * 30, "registry/t.json": b"{}"})
    data = path.read_bytes()
    for _ in range(300):
        changed = bytearray(data)
        for _ in range(drawn.randint(1, 8)):
            changed[drawn.randrange(len(changed))] = drawn.randrange(256)
        path.write_bytes(changed[: drawn.randint(0, len(changed))] if drawn.random() < 0.3 else changed)
        try:
            with BundleFile(path) as bundle:
                bundle.check()
        except FileError:
            continue
        assert bytes(changed) == data


def test_the_checksum_is_that_of_zip(tmp_path: Path) -> None:
    path = written(tmp_path / "a.twb", {"x": b"abc"})
    with BundleFile(path) as bundle:
        assert bundle.entries["x"].crc == zlib.crc32(b"abc")
