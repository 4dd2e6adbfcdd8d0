"""A bundle as a package that pip installs: the file itself, and an entry point by which Tilewright finds it."""

from __future__ import annotations

import base64
import hashlib
import io
import re
import zipfile
from pathlib import Path

from tilewright.build.bundle_file import BundleFile
from tilewright.build.bundled import GROUP
from tilewright.codegen.folder import write_if_changed
from tilewright.errors import RequestError

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSION = re.compile(r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?(\+[A-Za-z0-9.]+)?")  # of PEP 440


def write_wheel(bundle: Path, folder: Path, *, name: str = "", version: str = "0.1.0") -> Path:
    """Write NAME-VERSION-py3-none-linux_MACHINE.whl; the same bundle gives the same bytes."""
    with BundleFile(bundle) as opened:
        opened.check()
        content, host = opened.path.read_bytes(), str(opened.manifest.get("host") or "any")
        made_by = str(opened.manifest.get("created_by", ""))
    name = name or f"tilewright-bundle-{bundle.stem}"
    for what, value, form in (("name", name, _NAME), ("version", version, _VERSION)):
        if not form.fullmatch(value):
            raise RequestError(
                f"--{what} {value!r} is no {what} of a package",
                rule="wheel-name",
                value=value,
                remedy="give letters, digits and dashes, and a version such as 1.2.0",
            )
    module = re.sub(r"[-_.]+", "_", name).lower()
    if module == "tilewright":
        raise RequestError(
            f"--name {name!r} is Tilewright's own: its package would be written over",
            rule="wheel-name",
            value=name,
            remedy="give another, such as my-model-kernels",
        )
    info, tag = f"{module}-{version}.dist-info", f"py3-none-linux_{host}"
    files = {
        f"{module}/__init__.py": b'"""Kernels for Tilewright, which finds the file beside this one."""\n',
        f"{module}/{bundle.name}": content,
        f"{info}/METADATA": (
            f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
            f"Summary: Kernels for Tilewright, made by {made_by}\n"
        ).encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: tilewright\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
        f"{info}/entry_points.txt": f"[{GROUP}]\n{module} = {module}\n".encode(),
    }
    listed = [f"{path},sha256={_digest(data)},{len(data)}" for path, data in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*listed, f"{info}/RECORD,,", ""]).encode()
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0))
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o100644 << 16
            archive.writestr(entry, data)
    goal = folder / f"{module}-{version}-{tag}.whl"
    write_if_changed(goal, out.getvalue())
    return goal


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
