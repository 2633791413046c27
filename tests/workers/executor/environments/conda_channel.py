"""A channel of conda in a folder, with a Python that is this machine's own and packages that a test writes."""

import hashlib
import io
import json
import platform
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["Channel"]

_NOARCH = "noarch"


class Channel:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._rows: dict[str, dict[str, Any]] = {}
        self._write_index()

    def add_python(self) -> str:
        """Add a package of this Python: its program, which finds its library by `pyvenv.cfg`. Returns its version."""
        base = Path(sys.base_prefix, "bin")
        names = ("python", "python3", f"python3.{sys.version_info.minor}")
        program = (base / "python3").resolve().read_bytes()
        files = {"pyvenv.cfg": f"home = {base}\ninclude-system-site-packages = false\n".encode()}
        files |= {f"bin/{name}": program for name in names}
        self.add("python", platform.python_version(), files)
        return platform.python_version()

    def add_module(self, name: str, version: str, *depends: str) -> None:
        """Add a package for any Python with a module that tells its version."""
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        files = {
            f"site-packages/{name}.py": f"VERSION = {version!r}\n".encode(),
            f"site-packages/{name}-{version}.dist-info/METADATA": metadata.encode(),
        }
        self.add(name, version, files, *depends, noarch="python")

    def add(self, name: str, version: str, files: Mapping[str, bytes], *depends: str, **more: str) -> None:
        row = {
            "name": name,
            "version": version,
            "build": "0",
            "build_number": 0,
            "depends": [*depends],
            "arch": None,
            "platform": None,
            "subdir": _NOARCH,
            "timestamp": 1,
            **more,
        }
        content = _archive(row, files)
        file = f"{name}-{version}-0.tar.bz2"
        (self.folder / _NOARCH / file).write_bytes(content)
        sums = {each: hashlib.new(each, content).hexdigest() for each in ("md5", "sha256")}
        self._rows[file] = {**row, **sums, "size": len(content)}
        self._write_index()

    def _write_index(self) -> None:
        for subdir, rows in ((_NOARCH, self._rows), ("linux-64", {}), ("linux-aarch64", {})):
            folder = self.folder / subdir
            folder.mkdir(parents=True, exist_ok=True)
            index = {"info": {"subdir": subdir}, "packages": rows, "packages.conda": {}, "repodata_version": 1}
            (folder / "repodata.json").write_text(json.dumps(index))


def _archive(row: Mapping[str, Any], files: Mapping[str, bytes]) -> bytes:
    paths = [
        {"_path": path, "path_type": "hardlink", "sha256": hashlib.sha256(data).hexdigest(), "size_in_bytes": len(data)}
        for path, data in files.items()
    ]
    info = {
        "info/index.json": json.dumps(row),
        "info/files": "".join(f"{path}\n" for path in files),
        "info/paths.json": json.dumps({"paths": paths, "paths_version": 1}),
    }
    if row.get("noarch"):
        info["info/link.json"] = json.dumps({"noarch": {"type": row["noarch"]}, "package_metadata_version": 1})
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:bz2") as archive:
        for path, data in {**{name: text.encode() for name, text in info.items()}, **files}.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(data), 0o755 if path.startswith("bin/") else 0o644
            archive.addfile(entry, io.BytesIO(data))
    return written.getvalue()
