"""Parts of the wheel beside the package `tidepool`: AdaptDL's and NNI's APIs, and the lines by which Python finds them.

The folders are appended to the import path, so an installed `adaptdl` or `nni` takes precedence, and no file of it is
overwritten.
"""

import shutil
from pathlib import Path

from setuptools.command.build_py import build_py  # type: ignore[import-untyped]

__all__ = ["BuildPy"]

_SOURCES = Path(__file__).resolve().parent / "compat"
_PARTS = ("adaptdl", "nni")
#: Place of the folders in the wheel.
_FOLDER = "tidepool/compat"
#: Python appends the folders that such a file names to the import path.
_LINK = "tidepool_runtime.pth"


class BuildPy(build_py):  # type: ignore[misc]
    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        build = Path(self.build_lib)
        for part in _PARTS:
            place = build / _FOLDER / part
            shutil.copytree(_SOURCES / part, place, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        (build / _LINK).write_text("".join(f"{_FOLDER}/{part}\n" for part in _PARTS))
