"""Requirements of a training as a host gets them: a line for each package, option of an index and own project.

A package is a PEP 508 requirement, perhaps with hashes: `timm==1.0 --hash=sha256:…`. An option is one of
`INDEX_OPTIONS` with an address, or `--python` with the versions that will do. An own project is `-e` with a path in the
training's folder, which needs no installation. `--image` with the name and digest of a container image stands alone,
and so does `--folder` with the path of an environment on the hosts, which only administrators may name. `--conda` with
a package of conda, such as `numpy=1.26`, asks for an environment that conda makes from `--conda-channels`.

What they ask for decides how they are met: a layer over the cluster's packages or, where another Python or another
version of a protected package is asked for, a whole environment that has nothing of the cluster's; or the image or
folder.
"""

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import distributions
from typing import TYPE_CHECKING, Final

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from workers.executor.environments.given import Contents

__all__ = [
    "CHANNELS_OPTION",
    "CONDA_OPTION",
    "FOLDER_OPTION",
    "IMAGE_OPTION",
    "INDEX_OPTIONS",
    "PROTECTED",
    "PYTHON_OPTION",
    "RUNTIME_NEEDS",
    "TESTED_TORCH",
    "TORCH_NEEDS",
    "Wanted",
    "conda_in",
    "digest_of",
    "folder_in",
    "has_tested_torch",
    "hashes_in",
    "image_in",
    "import_folders",
    "installed",
    "is_built_for_torch",
    "is_met",
    "is_package",
    "is_protected",
    "package_in",
    "python_in",
    "replaced",
    "wanted_of",
]

#: Packages that no layer replaces: the forkserver has loaded them, they are built for its torch, or, as cloudpickle,
#: they read what another process of the same version has written. Other versions of them need a whole environment.
PROTECTED: Final = frozenset(
    {
        *("torch", "torchvision", "torchaudio", "numpy", "sympy", "mpmath", "typing-extensions"),
        *("tidepool", "tidepool-runtime", "cloudpickle", "msgspec", "psutil", "safetensors", "setproctitle"),
    }
)
#: Packages that the runtime imports in a whole environment, and those that an elastic script's session imports besides,
#: where the environment has torch. The same as in runtime/pyproject.toml.
RUNTIME_NEEDS: Final = ("cloudpickle==3.1.*", "msgspec", "psutil", "setproctitle")
TORCH_NEEDS: Final = ("numpy", "safetensors", "scipy")
#: Versions of torch with which elastic scripts train: both ends were resized. Scripts that know nothing of Tidepool run
#: with any.
TESTED_TORCH: Final = SpecifierSet(">=2.10,<2.16")
#: Option for the versions of Python that will do. pip has none.
PYTHON_OPTION: Final = "--python"
#: Option for the container image that has all that the training needs. pip has none.
IMAGE_OPTION: Final = "--image"
#: Option for the folder of a virtual or conda environment that the hosts have. pip has none.
FOLDER_OPTION: Final = "--folder"
#: Option for a package of conda, and the one for all channels in their order. pip has neither.
CONDA_OPTION: Final = "--conda"
CHANNELS_OPTION: Final = "--conda-channels"
#: Options of pip that name further places of packages.
INDEX_OPTIONS: Final = ("--index-url", "--extra-index-url", "--find-links")
_BUILT_FOR_TORCH: Final = ("nvidia-", "triton", "cuda-")
_HASH: Final = re.compile(r"\s--hash[=\s]\s*(\S+)")


@dataclass(frozen=True)
class Wanted:
    """An environment to build."""

    #: All required packages, also those that the cluster has: their versions are limits for the others.
    packages: tuple[str, ...]
    options: tuple[str, ...]
    #: Hashes of a package, by name.
    hashes: Mapping[str, Sequence[str]]
    #: Version of each required package that the cluster has in a version that is required, by name.
    met: Mapping[str, str]
    #: Versions of Python that will do, such as `>=3.12`; "": the cluster's.
    python: str = ""
    #: Whether it has nothing of the cluster's.
    is_whole: bool = False
    #: Name and digest of the container image that it is; "": it is none.
    image: str = ""
    #: Folder of the hosts that it is, "": it is none; and what that holds on this host, None where it was not read.
    given: str = ""
    contents: "Contents | None" = None
    #: Packages that conda installs, such as `numpy=1.26`, and its channels, the first one preferred.
    conda: tuple[str, ...] = ()
    channels: tuple[str, ...] = ()


def is_package(line: str) -> bool:
    return not line.startswith("-")


def package_in(line: str) -> Requirement:
    """Return the requirement of a package's line."""
    return Requirement(_HASH.sub("", line))


def hashes_in(line: str) -> list[str]:
    return _HASH.findall(line)


def installed() -> Mapping[str, str]:
    """Return the version of each package that this process can import, by name. Packages may be added at any time."""
    return _installed(import_folders())


def import_folders() -> tuple[tuple[str, int], ...]:
    """Return the folders that this process imports from, with the time of their last change as a key of caches."""
    return tuple((entry, os.stat(entry).st_mtime_ns) for entry in sys.path if os.path.isdir(entry))


@lru_cache(maxsize=1)
def _installed(folders: tuple[tuple[str, int], ...]) -> Mapping[str, str]:
    found = distributions(path=[folder for folder, _ in folders])
    return {canonicalize_name(each.name): each.version for each in reversed(list(found)) if each.name}


def is_built_for_torch(name: str) -> bool:
    return name.startswith(_BUILT_FOR_TORCH)


def is_protected(name: str) -> bool:
    return name in PROTECTED or is_built_for_torch(name)


def python_in(lines: Iterable[str]) -> str:
    """Return the versions of Python that the requirements ask for, such as `>=3.12`; "" if any will do."""
    name = f"{PYTHON_OPTION} "
    return ",".join(line.removeprefix(name).strip() for line in lines if line.startswith(name))


def image_in(lines: Iterable[str]) -> str:
    """Return name and digest of the container image that the training runs in; "": it runs in none."""
    return _value_of(lines, IMAGE_OPTION)


def folder_in(lines: Iterable[str]) -> str:
    """Return the folder of the hosts that is the training's environment; "": none is."""
    return _value_of(lines, FOLDER_OPTION)


def conda_in(lines: Iterable[str]) -> list[str]:
    """Return the packages that conda installs, such as `numpy=1.26`."""
    return [line.removeprefix(f"{CONDA_OPTION} ").strip() for line in lines if line.startswith(f"{CONDA_OPTION} ")]


def _value_of(lines: Iterable[str], option: str) -> str:
    return next((line.removeprefix(f"{option} ").strip() for line in lines if line.startswith(f"{option} ")), "")


def replaced(lines: Iterable[str], there: Mapping[str, str], python: str) -> list[str]:
    """Return the names of what no layer replaces and these requirements want in another version, "Python" first.

    there: versions of the cluster's packages. python: the cluster's version.
    """
    given = list(lines)
    others = [] if SpecifierSet(python_in(given)).contains(python, prereleases=True) else ["Python"]
    for one in map(package_in, filter(is_package, given)):
        name = canonicalize_name(one.name)
        if is_protected(name) and name in there and _is_meant(one) and not _fits(one, there[name]):
            others.append(name)
    return others


def has_tested_torch(version: str) -> bool:
    """Return whether elastic scripts train with this version of torch; "": no torch."""
    return bool(version) and TESTED_TORCH.contains(version.partition("+")[0], prereleases=True)


def wanted_of(lines: Iterable[str], there: Mapping[str, str], python: str) -> Wanted | None:
    """Return the environment for these requirements; None if the cluster's own packages meet all of them.

    python: the cluster's version.
    """
    given = list(lines)
    if image := image_in(given):
        return Wanted((), (), {}, {}, is_whole=True, image=image)
    if folder := folder_in(given):
        return Wanted((), (), {}, {}, is_whole=True, given=folder)
    packages = [line for line in given if is_package(line)]
    needed = {line: package_in(line) for line in packages}
    conda = tuple(sorted(conda_in(given)))
    is_whole = bool(conda) or bool(replaced(given, there, python))
    if not is_whole and all(is_met(one, there) for one in needed.values()):
        return None
    return Wanted(
        tuple(str(one) for one in needed.values()),
        tuple(line for line in given if line.startswith(INDEX_OPTIONS)),
        {canonicalize_name(one.name): hashes for line, one in needed.items() if (hashes := hashes_in(line))},
        {name: there[name] for one in needed.values() if (name := canonicalize_name(one.name)) in there
         and is_met(one, there)},
        python_in(given),
        is_whole,
        conda=conda,
        channels=tuple(_value_of(given, CHANNELS_OPTION).split()) if conda else (),
    )  # fmt: skip


def digest_of(wanted: Wanted, there: Mapping[str, str], python: str) -> str:
    """Return the name of the environment.

    It depends on the requirements and on Python; that of a layer on the cluster's packages, too; that of an image, or
    of a folder with these contents, on what the runtime needs in it.
    """
    assert not wanted.given or wanted.contents, "what a folder holds is part of its name"
    if wanted.image or wanted.contents:
        held = [] if wanted.contents is None else [wanted.given, wanted.contents.digest]
        needs = [wanted.image, *held, *RUNTIME_NEEDS, *TORCH_NEEDS]
        return hashlib.sha256(json.dumps(needs).encode()).hexdigest()[:24]
    hashes = sorted((name, *each) for name, each in wanted.hashes.items())
    kept = sorted((name, version) for name, version in there.items() if is_protected(name) or name in wanted.met)
    base = (["whole", *RUNTIME_NEEDS, *TORCH_NEEDS], wanted.python or python) if wanted.is_whole else (kept, python)
    conda = [[wanted.conda, wanted.channels]] if wanted.conda else []
    parts = [sorted(wanted.packages), sorted(wanted.options), hashes, *base, *conda]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


def is_met(one: Requirement, there: Mapping[str, str]) -> bool:
    """Return whether these packages meet the requirement. there: version of each, by name."""
    version = there.get(canonicalize_name(one.name))
    return not _is_meant(one) or (version is not None and not one.extras and _fits(one, version))


def _is_meant(one: Requirement) -> bool:
    return one.marker is None or one.marker.evaluate()


def _fits(one: Requirement, version: str) -> bool:
    return one.url is None and one.specifier.contains(version, prereleases=True)
