"""Modules of others by name, for scripts that import one thing of them: found only where the real ones are absent.

This folder lies behind all others on the import path, once it is there: what is installed wins.
"""

import importlib.util
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

__all__ = ["FOLDER", "OURS", "THEIRS", "disable", "enable", "is_named", "is_real", "offer"]

FOLDER = Path(__file__).resolve().parent
#: File in an environment's folder of packages: Python appends the folders that it names to the path.
_LINK = "tidepool-stand-ins.pth"
_NAME = b"pyspark.ml.torch"
#: Sentences that say which pyspark an import finds.
OURS = "pyspark.ml.torch.distributor is Tidepool's here"
THEIRS = "pyspark is installed, so `import pyspark` still finds it."


def offer() -> bool:
    """Make `pyspark.ml.torch.distributor` importable in this process; whether it is ours that will be found."""
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
        importlib.invalidate_caches()
    return not is_real()


def is_named(files: Iterable[Path]) -> bool:
    """Return whether one of these files, scripts or a pickled function, names what stands here."""
    return any(_NAME in file.read_bytes() for file in files if file.is_file())


def is_real() -> bool:
    """Return whether `import pyspark` finds the real one."""
    found = importlib.util.find_spec("pyspark")
    return found is not None and found.origin is not None and not Path(found.origin).resolve().is_relative_to(FOLDER)


def enable(packages: Path | None = None) -> Path:
    """Offer the same to all processes of this environment from now on; return the file that does it. Raises OSError.

    packages: the folder of its packages, else this one's.
    """
    link = (packages or Path(sysconfig.get_path("purelib"))) / _LINK
    link.write_text(f"{FOLDER}\n")
    return link


def disable(packages: Path | None = None) -> Path:
    """Undo `enable`; again without effect. Raises OSError."""
    link = (packages or Path(sysconfig.get_path("purelib"))) / _LINK
    link.unlink(missing_ok=True)
    return link
