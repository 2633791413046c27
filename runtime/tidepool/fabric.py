"""`$FABRIC_HOME/libs/fabric.zip`: what scripts for WMLA put first on their path, before they import `fabric_model`.

It has `fabric_model` and `callbacks`, and what these need. It leaves out what a model brings itself (`elog`,
`emetrics`, `edtcallback`): the model's own come first, and those beside this archive's sources after all others.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from pathlib import Path

__all__ = ["ARCHIVED", "build_fabric"]

#: Modules and packages below `compat/wmla`.
ARCHIVED = ("_wmla", "callbacks.py", "fabric_model.py", "pyedt")

_SOURCES = Path(__file__).resolve().parents[1] / "compat" / "wmla"
#: The oldest that the format knows: the same sources make the same bytes.
_TIME = (1980, 1, 1, 0, 0, 0)


def build_fabric(folder: Path) -> Path:
    """A FABRIC_HOME below `folder`, made unless it is there already. Other sources make another one."""
    content = _archive()
    home = folder / hashlib.sha256(content).hexdigest()[:16]
    archive = home / "libs" / "fabric.zip"
    if not archive.exists():
        archive.parent.mkdir(parents=True, exist_ok=True)
        unfinished = archive.with_name(f".fabric.{os.getpid()}")
        unfinished.write_bytes(content)
        unfinished.rename(archive)
    return home


def _archive() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for file in _files():
            entry = zipfile.ZipInfo(file.relative_to(_SOURCES).as_posix(), _TIME)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, file.read_bytes())
    return stream.getvalue()


def _files() -> list[Path]:
    roots = [_SOURCES / name for name in ARCHIVED]
    return sorted(file for root in roots for file in ([root] if root.is_file() else root.rglob("*.py")))
