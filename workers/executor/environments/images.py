"""Container images as environments: pulled once by podman, with the packages that the runtime needs beside them.

Nothing is put into an image. Its forkserver runs in a container that shares the host's network, process numbers and
shared memory, so shims and ranks are to the executor what those of any environment are.
"""

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from packaging.utils import canonicalize_name
from packaging.version import Version

__all__ = [
    "OLDEST_PYTHON",
    "Image",
    "ImageError",
    "container_command",
    "inspected",
    "needs_folder",
    "outermost",
    "pulled",
]

#: Oldest Python that the runtime runs on.
OLDEST_PYTHON: Final = Version("3.11")
_PYTHON: Final = "python3"
_GPUS: Final = Path("/dev/nvidiactl")
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


def _podman() -> str:
    """Return the path of podman. Raises ImageError where there is none."""
    found = shutil.which("podman")
    if found is None:
        raise ImageError("the training runs in an image, and this host has no podman: install it there")
    return found


def pulled(image: str, run: Callable[[Sequence[str]], None]) -> None:
    """Pull an image unless it is here. run: runs a command whose output the training's log gets."""
    there = subprocess.run([_podman(), "image", "exists", image], stdin=subprocess.DEVNULL, capture_output=True)
    if there.returncode != 0:
        run([_podman(), "pull", image])


def inspected(image: str) -> Image:
    """Return what the image has. Raises ImageError."""
    command = [_podman(), "run", "--rm", "--network", "none", "--entrypoint", _PYTHON, image, "-c", _PROBE]
    try:
        asked = subprocess.run(
            command, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PROBE_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise ImageError(f"{_PYTHON} of the image did not answer for {_PROBE_SECONDS:.0f} s") from None
    if asked.returncode != 0:
        last = (asked.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise ImageError(f"{_PYTHON} cannot be run in the image, which needs one on its PATH: {last}")
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


def container_command(
    image: str, folders: Sequence[Path], read_only: Sequence[Path], variables: Sequence[str], *, keeps_fd: bool
) -> list[str]:
    """Return the words that run Python in the image, with folders of this machine at the same paths.

    variables: names of those that the container gets from podman's environment. keeps_fd: whether descriptor 3 stays
    open.
    """
    shared = ["--network=host", "--pid=host", "--ipc=host"]
    walls = ["--cap-drop=all", "--security-opt=no-new-privileges", "--security-opt=label=disable"]
    mounts = [f"--volume={folder}:{folder}" for folder in outermost(folders)]
    mounts += [f"--volume={folder}:{folder}:ro" for folder in outermost(read_only)]
    passed = [f"--env={name}" for name in variables]
    gpus = ["--device=nvidia.com/gpu=all"] if _GPUS.exists() else []
    kept = ["--preserve-fds=1"] if keeps_fd else []
    return [
        *(_podman(), "run", "--rm", "--pull=never", "--log-driver=none", "--ulimit=host"),
        *(*shared, *walls, *mounts, *passed, *gpus, *kept),
        *("--workdir=/", f"--entrypoint={_PYTHON}", image),
    ]


def outermost(folders: Sequence[Path]) -> list[Path]:
    """Return the folders without those that lie below another."""
    wanted = sorted({*folders})
    return [one for one in wanted if not any(other != one and one.is_relative_to(other) for other in wanted)]
