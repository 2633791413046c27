"""Parts of the wheel beside the package `tidepool`: AdaptDL's API, and the line by which Python finds it.

The folder is appended to the import path, so an installed `adaptdl` takes precedence, and no file of it is overwritten.
"""

import shutil
from pathlib import Path

from setuptools.command.build_py import build_py  # type: ignore[import-untyped]

__all__ = ["BuildPy"]

_SOURCE = Path(__file__).resolve().parent / "compat" / "adaptdl"
#: Place of the folder in the wheel.
_FOLDER = "tidepool/compat/adaptdl"
#: Python appends the folders that such a file names to the import path.
_LINK = "tidepool_runtime.pth"


class BuildPy(build_py):  # type: ignore[misc]
    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        build = Path(self.build_lib)
        shutil.copytree(_SOURCE, build / _FOLDER, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        (build / _LINK).write_text(f"{_FOLDER}\n")
