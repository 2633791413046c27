"""A virtual environment of the training's own on each host, over the packages that it runs on.

`pip install` in a training installs into it, and changes neither the site's packages nor an environment that other
trainings use. The home folder of the training is beside it.
"""

import site
import sys
from contextlib import suppress
from pathlib import Path

from tidepool.env import RankContext, site_of, use_virtual_environment
from tidepool.protocol import LaunchSpec, ShimSpec

__all__ = ["enter_own_python", "home_of", "make_own_python", "own_folder"]

_FOLDER = ".own"
#: File that adds the packages below.
_BELOW = "_below.pth"
#: Programs that run Python again, by the module that each runs.
_PROGRAMS = {"pip": "pip", "pip3": "pip", "torchrun": "torch.distributed.run"}


def own_folder(launch: LaunchSpec) -> Path:
    """Return the folder beside the attempts of a training that its processes may change."""
    return Path(launch.folder).parent / _FOLDER


def home_of(launch: LaunchSpec) -> Path:
    """Return the folder that is HOME to a training behind a wall."""
    return own_folder(launch) / "home"


def make_own_python(spec: ShimSpec) -> None:
    """Make the folders, for the Python of this process and the packages that the training's ranks get.

    They stay for later attempts, with what the training has installed.
    """
    home_of(spec.launch).mkdir(parents=True, exist_ok=True)
    folder = _python(spec.launch, spec.host)
    programs, packages = folder / "bin", _packages(folder)
    programs.mkdir(parents=True, exist_ok=True)
    packages.mkdir(parents=True, exist_ok=True)
    base = Path(sys._base_executable)  # type: ignore[attr-defined]  # as the module venv finds it
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for name in ("python", "python3", f"python{version}"):
        with suppress(FileNotFoundError):
            (programs / name).unlink()
        (programs / name).symlink_to(base)
    for name, module in _PROGRAMS.items():
        (programs / name).write_text(f'#!/bin/sh\nexec "{programs / "python"}" -m {module} "$@"\n')
        (programs / name).chmod(0o755)
    facts = {"home": base.parent, "include-system-site-packages": "false", "version": sys.version.split()[0]}
    (folder / "pyvenv.cfg").write_text("".join(f"{name} = {value}\n" for name, value in facts.items()))
    below = [str(site_of(Path(place))) for place in (spec.environment, sys.prefix) if place]
    (packages / _BELOW).write_text("".join(f"import site; site.addsitedir({place!r})\n" for place in below))


def _python(launch: LaunchSpec, host: str) -> Path:
    """Return the folder of the virtual environment of a training on a host."""
    return own_folder(launch) / "python" / host


def _packages(folder: Path) -> Path:
    """Return the folder of packages of this process's Python."""
    return folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


def enter_own_python(context: RankContext) -> list[str]:
    """Run Python, pip and uv of the training's own from this process; return the folders of its own packages."""
    folder = _python(context.launch, context.host)
    use_virtual_environment(folder)
    if "multiprocessing.spawn" in sys.modules:
        sys.modules["multiprocessing.spawn"].set_executable(sys.executable)
    packages, before = _packages(folder), list(sys.path)
    for file in sorted(packages.glob("*.pth")):
        if file.name != _BELOW:  # the rank has these already
            site.addpackage(str(packages), file.name, set(sys.path))
    added = [entry for entry in sys.path if entry not in before]
    sys.path[:] = before
    return [str(packages), *added]
