"""The kernel store: one immutable folder for each key, published whole or not at all.

    <cache_dir>/kernels-v1/
      format.json                 says which layout this is
      entries/ab/<key>/           library, source, manifest.json
      tmp/<name>/                 work in progress, each with a lock its owner holds
      locks/<key>                 held by who is building the key
      logs/<key>.log              what the compiler said about sources it refused
      built/<spec>-<key>          an empty file an entry: which kernels there are, at the price of one listing (`marks`)

An entry is written in `tmp`, flushed, and renamed into place; losing that race is a hit.  It is
verified by digest each time it is looked up.  The manifest's modification time is the stamp of the
last use and the only thing about an entry that ever changes.
"""

from __future__ import annotations

import errno
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright import jsontext, remembered, settings
from tilewright.build import marks
from tilewright.build.key import STORE_SCHEMA, canonical
from tilewright.dataclass import dataclass
from tilewright.digests import sha256
from tilewright.errors import StoreError

if TYPE_CHECKING:
    from tilewright.build.locks import FileLock

MANIFEST = "manifest.json"
FORMAT = "format.json"
OWNER_LOCK = ".owner"
# A use stamp younger than this is not refreshed: a hot kernel should not cost a write each start.
STAMP_SECONDS = 60.0

# What is called otherwise in the folder of entries is not ours, and none of our business.
SHARD, _KEY = r"[0-9a-f]{2}", r"[0-9a-f]{64}"
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
FREE_SPACE = (
    "free some space on its disk (`tilewright cache gc --max-bytes N` removes stored kernels, "
    "`tilewright cache gc --all` those used just now too)"
)
_formats: dict[str, remembered.Stamp] = {}  # of stores whose format was found to be ours
_DENIED = {errno.EACCES, errno.EPERM}
_TAKEN = {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}  # the last: a file is in its place


@dataclass(frozen=True, slots=True)
class Entry:
    """A verified entry: its library can be loaded."""

    key: str
    folder: Path
    library: Path
    manifest: Mapping[str, Any]


def _not_a_folder(error: OSError, place: Path) -> Path:
    """The path of an error that is a file where a folder should be."""
    path = Path(os.fsdecode(error.filename)) if isinstance(error.filename, (str, bytes)) else place
    for each in (path, *path.parents):
        with suppress(OSError):
            if (each.exists() or each.is_symlink()) and not each.is_dir():
                return each
    return place


def store_error(error: OSError, place: Path, what: str) -> StoreError:
    """An operating system's error on the store, as one sentence a person can act on."""
    elsewhere = "set TILEWRIGHT_CACHE_DIR to another folder"
    if error.errno in _FULL:
        rule, why = "store-full", "is full"
        remedy = f"{FREE_SPACE} or {elsewhere}"
    elif error.errno == errno.EROFS:
        rule, why, remedy = "store-read-only", "is on a read-only file system", elsewhere
    elif error.errno in _DENIED:
        rule, why = "store-unwritable", "may not be written by this user"
        remedy = f"fix its permissions or {elsewhere}"
    elif error.errno in (errno.ENOTDIR, errno.EEXIST):
        wrong = _not_a_folder(error, place)
        rule, why, remedy = "store-place", "is not a folder", elsewhere
        if wrong.is_relative_to(place) and wrong != place:
            why, remedy = f"cannot be used: {wrong} in it is not a folder", f"remove that file, or {elsewhere}"
        elif wrong != place:
            why = f"cannot be made: {wrong} is not a folder"
    else:
        rule, why, remedy = "store-io", f"reports {error.strerror or error}", f"check the disk or {elsewhere}"
    return StoreError(f"the kernel store {place} {why}, so {what} failed", rule=rule, value=str(place), remedy=remedy)


def _write(path: Path, data: bytes) -> None:
    """Write and flush: after the rename that publishes it, a file must not come back empty."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _flush_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems cannot flush a folder; the rename is atomic all the same.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(descriptor)


def remove_tree(path: Path) -> None:
    """Remove a folder although an orphaned compiler may still be writing into it; a file goes too."""
    if not path.is_dir() or path.is_symlink():
        path.unlink(missing_ok=True)
        return
    import shutil  # a process that only reads does without it

    for _ in range(20):
        shutil.rmtree(path, ignore_errors=True)
        if not path.exists():
            return
        time.sleep(0.01)
    shutil.rmtree(path)


def _drop(path: Path) -> None:
    import shutil

    shutil.rmtree(path, ignore_errors=True)


def _is_manifest(data: Any) -> bool:
    """Whether data is shaped like what `publish` writes: what reads it further need not ask."""
    if not isinstance(data, dict) or not isinstance(data.get("files"), dict):
        return False
    kinds: tuple[tuple[str, type | tuple[type, ...], Any], ...] = (
        ("key", str, None), ("library", str, None), ("inputs", dict, {}), ("name", str, ""), ("compiler", str, ""),
        ("seconds", (int, float), 0), ("built_at", (int, float), 0), ("spec", (dict, type(None)), None),
    )  # fmt: skip
    if not all(isinstance(data.get(name, usual), kind) for name, kind, usual in kinds):
        return False
    files = data["files"]
    plain = all(isinstance(facts, dict) and Path(name).name == name for name, facts in files.items())
    return plain and data["library"] in files


class Store:
    """A store at a place; making the object touches nothing."""

    def __init__(self, cache_dir: Path | None = None) -> None:
        base = settings.current().cache_dir if cache_dir is None else cache_dir
        self.root = base.expanduser().absolute() / f"kernels-v{STORE_SCHEMA}"
        self.entries = self.root / "entries"
        self.temporary = self.root / "tmp"
        self.locks = self.root / "locks"
        self.logs = self.root / "logs"
        self.marks = self.root / "built"
        self._format_known = False
        self._ready = False

    # -- reading ---------------------------------------------------------------------------------

    def folder(self, key: str) -> Path:
        return self.entries / key[:2] / key

    def check_format(self) -> None:
        """Refuse a store that another version wrote; an absent one is fine."""
        if self._format_known:
            return
        place = self.root / FORMAT
        stamp = remembered.stamp_of(str(place)) if str(place) in _formats else None
        if stamp is not None and _formats[str(place)] == stamp:
            self._format_known = True
            return
        try:
            if kind := jsontext.not_a_file(place):
                raise self._not_a_file(place, kind)
            data = jsontext.loads(jsontext.read(place))
            schema = data.get("schema") if isinstance(data, dict) else "unreadable"
        except FileNotFoundError:
            return
        except PermissionError:
            raise self._unreadable(place) from None
        except ValueError:
            schema = "unreadable"
        except OSError as error:
            raise store_error(error, self.root, "reading it") from error
        if schema != STORE_SCHEMA:
            raise StoreError(
                f"the kernel store {self.root} has format {schema}, this version of tilewright writes {STORE_SCHEMA}",
                rule="store-version",
                value=schema,
                remedy="run `tilewright cache gc --reset` to start it afresh, or set TILEWRIGHT_CACHE_DIR",
            )
        self._format_known = True
        if (stamp := remembered.stamp_of(str(place))) is not None:
            _formats[str(place)] = stamp

    def lookup(self, key: str) -> Entry | None:
        """The verified entry of a key, or None; a damaged one is a StoreError `store-corrupt`."""
        self.check_format()
        folder = self.folder(key)
        place = folder / MANIFEST
        try:
            data = jsontext.read(place)
        except (FileNotFoundError, NotADirectoryError):
            if not folder.exists():
                return None
            raise self._corrupt(key, "its manifest is gone") from None
        except PermissionError:
            raise self._unreadable(place) from None
        except OSError as error:
            raise self._corrupt(key, f"its manifest cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise self._corrupt(key, f"of its manifest, {error}") from None
        manifest = self._read_manifest(key, data)
        library = folder / str(manifest["library"])
        self._check_file(key, library, manifest["files"].get(library.name))
        self._stamp(place)
        return Entry(key, folder, library, manifest)

    def verify(self, key: str) -> Entry:
        """Check everything about an entry, also what loading does not need."""
        entry = self.lookup(key)
        if entry is None:
            raise self._corrupt(key, "it is not in the store")
        if sha256(canonical(entry.manifest.get("inputs")).encode()).hexdigest() != key:
            raise self._corrupt(key, "the inputs in its manifest do not hash to its key")
        for name, facts in entry.manifest["files"].items():
            self._check_file(key, entry.folder / name, facts)
        return entry

    def _read_manifest(self, key: str, data: bytes) -> dict[str, Any]:
        try:
            manifest = jsontext.loads(data)
        except ValueError:
            manifest = None
        if not _is_manifest(manifest) or manifest["key"] != key:
            raise self._corrupt(key, "its manifest cannot be read or belongs to another entry")
        return dict(manifest)

    def _check_file(self, key: str, path: Path, facts: Any) -> None:
        try:
            data = jsontext.read(path)
        except PermissionError:
            raise self._unreadable(path) from None
        except OSError as error:
            raise self._corrupt(key, f"{path.name} cannot be read: {error.strerror}") from None
        except ValueError as error:  # a pipe or a device: it may never end
            raise self._corrupt(key, f"of {path.name}, {error}") from None
        if not isinstance(facts, dict) or sha256(data).hexdigest() != facts.get("sha256"):
            raise self._corrupt(key, f"{path.name} is not what was published (its digest differs)")

    @staticmethod
    def _not_a_file(place: Path, kind: str) -> StoreError:
        return StoreError(
            f"{place} in the kernel store is {kind}, where a file says which version wrote the store",
            rule="store-format-file",
            value=str(place),
            remedy="remove it: the store writes the file again and keeps its kernels; or set TILEWRIGHT_CACHE_DIR "
            "to another folder",
        )

    @staticmethod
    def _unreadable(place: Path) -> StoreError:
        return StoreError(
            f"{place} in the kernel store may not be read by this user",
            rule="store-unreadable",
            value=str(place),
            remedy="fix its permissions or set TILEWRIGHT_CACHE_DIR to another folder",
        )

    def _corrupt(self, key: str, why: str) -> StoreError:
        return StoreError(
            f"store entry {key} is damaged: {why}",
            rule="store-corrupt",
            value=key,
            remedy=f"remove {self.folder(key)} (`tilewright cache verify --repair` does) and build the kernel again",
        )

    @staticmethod
    def _stamp(manifest: Path) -> None:
        try:
            if time.time() - manifest.stat().st_mtime > STAMP_SECONDS:
                os.utime(manifest)
        except OSError:
            # A read-only store serves its kernels; it only cannot remember that it did.
            return

    def all_keys(self, *, any_format: bool = False) -> Iterator[str]:
        """Every key with a folder (or a file in its place), sound or not."""
        if not any_format:
            self.check_format()
        try:
            shards = sorted(shard for shard in self.entries.iterdir() if re.fullmatch(SHARD, shard.name))
        except (FileNotFoundError, NotADirectoryError):
            return
        for shard in shards:
            try:
                names = sorted(path.name for path in shard.iterdir())
            except (FileNotFoundError, NotADirectoryError):
                continue  # another process took it out just now, or it is a file that someone put there
            yield from (name for name in names if re.fullmatch(_KEY, name))

    def manifests(self) -> Iterator[dict[str, Any]]:
        """Every readable manifest, unverified: good for telling, not for loading."""
        for key in self.all_keys():
            try:
                manifest = jsontext.loads(jsontext.read(self.folder(key) / MANIFEST))
            except (OSError, ValueError):
                continue
            if _is_manifest(manifest) and manifest["key"] == key:
                yield manifest

    # -- writing ---------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make the folders; a place that cannot hold a store is one StoreError."""
        if self._ready and self.temporary.is_dir():
            return
        self.check_format()
        try:
            for folder in (self.entries, self.temporary, self.locks, self.logs):
                folder.mkdir(parents=True, exist_ok=True)
            place = self.root / FORMAT
            if not place.exists():
                part = self.root / f"format.{os.urandom(8).hex()}.part"
                try:
                    _write(part, canonical({"schema": STORE_SCHEMA}).encode())
                    part.replace(place)
                finally:
                    part.unlink(missing_ok=True)
        except OSError as error:
            raise store_error(error, self.root, "preparing it") from error
        self.check_format()
        self._ready = True
        marks.ensure(self)

    @contextmanager
    def workspace(self) -> Iterator[Path]:
        """A private folder on the store's file system, swept by others only when its owner is dead."""
        self.prepare()
        folder, owner = self._owned_folder()
        try:
            yield folder
        finally:
            try:
                remove_tree(folder)
            except OSError as error:
                raise store_error(error, self.root, "clearing a work folder") from error
            finally:
                owner.release()

    def _owned_folder(self) -> tuple[Path, FileLock]:
        from tilewright.build.locks import FileLock

        while True:
            folder = self.temporary / f"{os.getpid()}-{os.urandom(8).hex()}"
            owner = FileLock(folder / OWNER_LOCK)
            try:
                folder.mkdir()
                if owner.acquire():
                    return folder, owner
            except FileNotFoundError:
                # A sweep took the folder before it had an owner (or the whole store is gone).
                self._ready = False
                self.prepare()
            except OSError as error:
                _drop(folder)
                raise store_error(error, self.root, "making a work folder") from error

    def lock(self, key: str) -> FileLock:
        """The lock of who builds a key (not taken yet)."""
        from tilewright.build.locks import FileLock

        return FileLock(self.locks / key)

    def publish(self, key: str, work: Path, library: Path, texts: Mapping[str, str], facts: Mapping[str, Any]) -> Entry:
        """Put a built library into the store with its texts and a manifest; a race lost is a hit."""
        folder = work / f"entry-{key[:16]}-{os.urandom(4).hex()}"
        try:
            folder.mkdir()
            name = "kernel" + library.suffix
            contents = {name: library.read_bytes(), **{file: text.encode() for file, text in texts.items()}}
            for file, content in contents.items():
                _write(folder / file, content)
            (folder / name).chmod(0o755)
            files = {
                file: {"sha256": sha256(content).hexdigest(), "bytes": len(content)}
                for file, content in contents.items()
            }
            manifest = {"key": key, "library": name, "files": files, **facts}
            _write(folder / MANIFEST, json.dumps(manifest, sort_keys=True, indent=1).encode())
            _flush_folder(folder)
            target = self.folder(key)
            self._make_shard(target.parent)
            marks.add(self, manifest)
            self._put(folder, target, key)
            _flush_folder(target.parent)
        except OSError as error:
            raise store_error(error, self.root, f"publishing {key[:16]}") from error
        finally:
            _drop(folder)
        entry = self.lookup(key)
        if entry is None:
            raise StoreError(
                f"store entry {key} vanished while it was published",
                rule="store-vanished",
                value=key,
                remedy="keep other programs from clearing the store during a build, and build again",
            )
        return entry

    @staticmethod
    def _make_shard(shard: Path) -> None:
        try:
            shard.mkdir(exist_ok=True)
        except FileExistsError:
            raise StoreError(
                f"{shard} is a file where the kernel store keeps a folder",
                rule="store-stray",
                value=str(shard),
                remedy="move the file away: it is none of the store's",
            ) from None

    def _put(self, folder: Path, target: Path, key: str) -> None:
        for _ in range(8):
            try:
                folder.rename(target)
                return
            except OSError as error:
                if error.errno not in _TAKEN:
                    raise
            try:
                if self.lookup(key) is not None:
                    return  # someone published the same content first
            except StoreError:
                self.discard(key)
        raise OSError(errno.EBUSY, "an entry of this key keeps coming back damaged")

    def discard(self, key: str) -> None:
        """Take an entry out: renamed away first, so that nobody sees half of it."""
        self.prepare()
        trash = self.temporary / f"trash-{os.getpid()}-{os.urandom(8).hex()}"
        marks.remove(self, key)
        try:
            self.folder(key).rename(trash)
        except FileNotFoundError:
            return
        except OSError as error:
            raise store_error(error, self.root, f"removing {key[:16]}") from error
        remove_tree(trash)

    def save_log(self, key: str, suffix: str, text: str) -> Path | None:
        """Keep what the compiler said; a store that cannot is no reason to hide the error itself."""
        place = self.logs / f"{key}{suffix}"
        part = self.logs / f"{key}{suffix}.{os.urandom(4).hex()}.part"
        try:
            part.write_text(text, encoding="utf-8", errors="replace")
            part.replace(place)
        except OSError:
            with suppress(OSError):
                part.unlink(missing_ok=True)
            return None
        return place
