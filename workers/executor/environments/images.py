"""Container images as environments: pulled once, with the packages that the runtime needs beside them.

Nothing is put into an image. Its forkserver runs in a container that shares the host's network, process numbers and
shared memory, so shims and ranks are to the executor what those of any environment are.
"""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from packaging.utils import canonicalize_name
from packaging.version import Version

from workers.executor.environments.engines import ENGINES, ContainerSpec, Engine, engine_in

__all__ = [
    "OLDEST_PYTHON",
    "Image",
    "ImageError",
    "image_engine",
    "inspected",
    "needs_folder",
]

#: Oldest Python that the runtime runs on.
OLDEST_PYTHON: Final = Version("3.11")
_PROBE_SECONDS: Final = 120.0
#: Tells, in the image, its Python and the distributions that it imports from.
_PROBE: Final = """
import json, platform, sys
from importlib.metadata import distributions
packages = {each.metadata["Name"]: each.version for each in reversed(list(distributions())) if each.metadata["Name"]}
print(json.dumps({"python": platform.python_version(), "packages": packages}))
"""


class ImageError(Exception):
    """The image cannot be used on this host; the text says why, and what to do."""


@dataclass(frozen=True)
class Image:
    """What an image has."""

    python: str
    #: Version of each distribution, by name.
    packages: Mapping[str, str]


def image_engine(environment: Mapping[str, str]) -> Engine:
    """Return the program by which this host runs images. Raises ImageError where there is none.

    environment: of the executor.
    """
    name = engine_in(environment)
    if not name:
        raise ImageError(
            f"the training runs in an image, and this host has none of {', '.join(ENGINES)}: install one there"
        )
    return ENGINES[name]


def inspected(image: str, engine: Engine) -> Image:
    """Return what the image has. Raises ImageError."""
    command = [*engine.command(ContainerSpec(image)), "-c", _PROBE]
    try:
        asked = subprocess.run(
            command, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PROBE_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise ImageError(f"python3 of the image did not answer for {_PROBE_SECONDS:.0f} s") from None
    if asked.returncode != 0:
        last = (asked.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise ImageError(f"python3 cannot be run in the image, which needs one on its PATH: {last}")
    told = json.loads(asked.stdout)
    if Version(told["python"]) < OLDEST_PYTHON:
        raise ImageError(
            f"the image has Python {told['python']}, and trainings need {OLDEST_PYTHON} or newer: choose another image"
        )
    return Image(
        told["python"], {str(canonicalize_name(name)): version for name, version in sorted(told["packages"].items())}
    )


def needs_folder(environment: Path) -> Path:
    """Return the folder of what the runtime needs and the image lacks."""
    return environment / "needs"
