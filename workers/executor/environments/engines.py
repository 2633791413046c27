"""Programs that run container images: podman, apptainer and enroot, whichever a host has.

A container shares the host's network, process numbers and shared memory, and has folders of the host at the same paths.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

__all__ = ["CHOICE", "ENGINES", "ENGINE_NAMES", "ContainerSpec", "Engine", "engine_in", "outermost"]

_PYTHON: Final = "python3"
_GPUS: Final = Path("/dev/nvidiactl")
#: Variable that names the engine, where a host has several.
CHOICE: Final = "TIDEPOOL_IMAGE_ENGINE"
#: Command script that stands in for the image's own, which might print, or change what it is given.
_COMMAND_SCRIPT: Final = Path(__file__).with_name("enroot.rc")


@dataclass(frozen=True)
class ContainerSpec:
    """A container in which Python runs."""

    image: str
    #: Folders of this machine, which the container has at the same paths.
    folders: Sequence[Path] = ()
    read_only: Sequence[Path] = ()
    #: Names of variables that it gets from the engine's environment.
    variables: Sequence[str] = ()
    #: Whether the engine's `kept_fd` stays open.
    keeps_fd: bool = False


class Engine(Protocol):
    """A program that pulls images and runs containers."""

    #: The one descriptor that it can pass on to the container.
    kept_fd: int
    #: Beginning of the name under which the engine's environment has each of the container's variables.
    variable_prefix: str

    def has(self, image: str) -> bool:
        """Return whether the image is here."""

    def pull(self, image: str, work: Path, run: Callable[[Sequence[str]], None]) -> None:
        """Pull the image. work: folder for files on the way. run: runs a command whose output the log gets."""

    def command(self, container: ContainerSpec) -> list[str]:
        """Return the words that run Python in the container; further words are Python's."""


class Podman:
    kept_fd = 3
    variable_prefix = ""

    def has(self, image: str) -> bool:
        return _ask(["podman", "image", "exists", image]).returncode == 0

    def pull(self, image: str, work: Path, run: Callable[[Sequence[str]], None]) -> None:
        run(["podman", "pull", image])

    def command(self, container: ContainerSpec) -> list[str]:
        shared = ["--network=host", "--pid=host", "--ipc=host"]
        walls = ["--cap-drop=all", "--security-opt=no-new-privileges", "--security-opt=label=disable"]
        mounts = [f"--volume={folder}:{folder}" for folder in outermost(container.folders)]
        mounts += [f"--volume={folder}:{folder}:ro" for folder in outermost(container.read_only)]
        passed = [f"--env={name}" for name in container.variables]
        gpus = ["--device=nvidia.com/gpu=all"] if _GPUS.exists() else []
        kept = ["--preserve-fds=1"] if container.keeps_fd else []
        return [
            *("podman", "run", "--rm", "--pull=never", "--log-driver=none", "--ulimit=host"),
            *(*shared, *walls, *mounts, *passed, *gpus, *kept),
            *("--workdir=/", f"--entrypoint={_PYTHON}", container.image),
        ]


class Enroot:
    """enroot unpacks an image into a folder; a container is a process with that root."""

    #: Those from 3 on are closed.
    kept_fd = 0
    variable_prefix = ""

    def has(self, image: str) -> bool:
        return _name(image) in _ask(["enroot", "list"]).stdout.split()

    def pull(self, image: str, work: Path, run: Callable[[Sequence[str]], None]) -> None:
        file = work / "image.sqsh"
        run(["enroot", "import", "--output", str(file), f"docker://{image}"])
        run(["enroot", "create", "--name", _name(image), str(file)])
        file.unlink()

    def command(self, container: ContainerSpec) -> list[str]:
        places = [(folder, "rw") for folder in outermost(container.folders)]
        places += [(folder, "ro") for folder in outermost(container.read_only)]
        mounts = [f"--mount={place}:{place}:none:x-create=dir,rbind,{access}" for place, access in places]
        passed = [f"--env={name}" for name in container.variables]
        gpus = ["--env=NVIDIA_VISIBLE_DEVICES=all"] if _GPUS.exists() else []
        script = ["--rc", str(_COMMAND_SCRIPT)]
        return ["enroot", "start", *script, *mounts, *passed, *gpus, _name(container.image), _PYTHON]


class Apptainer:
    """apptainer, too, unpacks an image into a folder that is the root of its containers.

    Nobody can write there, so a container has the host's folders for temporary files, as other environments have.
    """

    kept_fd = 3
    variable_prefix = "APPTAINERENV_"

    def has(self, image: str) -> bool:
        return _unpacked(image).is_dir()

    def pull(self, image: str, work: Path, run: Callable[[Sequence[str]], None]) -> None:
        folder = _unpacked(image)
        folder.parent.mkdir(parents=True, exist_ok=True)
        # An image is there whole or not at all, also where several executors of a machine pull it at once.
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="pulled-", ignore_cleanup_errors=True) as place:
            pulled = Path(place, "root")
            run(["apptainer", "build", "--sandbox", str(pulled), f"docker://{image}"])
            if not folder.is_dir():
                pulled.rename(folder)

    def command(self, container: ContainerSpec) -> list[str]:
        mounts = [f"--bind={folder}:{folder}" for folder in outermost(container.folders)]
        mounts += [f"--bind={folder}:{folder}:ro" for folder in outermost(container.read_only)]
        gpus = ["--nv"] if _GPUS.exists() else []
        apart = ["--cleanenv", "--no-privs", "--no-home", "--no-mount=cwd,bind-paths", "--pwd=/"]
        return ["apptainer", "--silent", "exec", *apart, *mounts, *gpus, str(_unpacked(container.image)), _PYTHON]


#: Name of the program -> how it is used; the first one that a host has runs its images.
ENGINES: Final[dict[str, Engine]] = {"podman": Podman(), "enroot": Enroot(), "apptainer": Apptainer()}
#: Their names in a sentence.
ENGINE_NAMES: Final = f"{', '.join([*ENGINES][:-1])} or {[*ENGINES][-1]}"


def engine_in(environment: Mapping[str, str]) -> str:
    """Return the name of the host's engine: the chosen one, or the first on the PATH. "": there is none.

    environment: of the executor.
    """
    chosen = environment.get(CHOICE)
    return next(
        (name for name in ([chosen] if chosen else ENGINES) if shutil.which(name, path=environment.get("PATH"))), ""
    )


def outermost(folders: Sequence[Path]) -> list[Path]:
    """Return the folders without those that lie below another."""
    wanted = sorted({*folders})
    return [one for one in wanted if not any(other != one and one.is_relative_to(other) for other in wanted)]


def _unpacked(image: str) -> Path:
    """Return the folder of an image that apptainer has unpacked, which keeps none by itself."""
    cache = os.environ.get("APPTAINER_CACHEDIR") or Path.home() / ".apptainer" / "cache"
    return Path(cache, _name(image))


def _name(image: str) -> str:
    """Return the name under which enroot and apptainer keep the image."""
    return f"tidepool-{hashlib.sha256(image.encode()).hexdigest()[:24]}"


def _ask(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
