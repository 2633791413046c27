"""Requirements of a training as a host gets them: a line for each package, option of an index and own project.

A package is a PEP 508 requirement, perhaps with hashes: `timm==1.0 --hash=sha256:…`. An option is one of
`INDEX_OPTIONS` with an address. An own project is `-e` with a path in the training's folder, which needs no
installation.
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
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__ = [
    "INDEX_OPTIONS",
    "PROTECTED",
    "Wanted",
    "digest_of",
    "hashes_in",
    "import_folders",
    "installed",
    "is_built_for_torch",
    "is_package",
    "is_protected",
    "package_in",
    "wanted_of",
]

#: Packages that are never replaced: the forkserver has loaded them, they are built for its torch, or, as cloudpickle,
#: they read what another process of the same version has written.
PROTECTED: Final = frozenset(
    {
        *("torch", "torchvision", "torchaudio", "numpy", "sympy", "mpmath", "typing-extensions"),
        *("tidepool", "tidepool-runtime", "cloudpickle", "msgspec", "psutil", "safetensors", "setproctitle"),
    }
)
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


def wanted_of(lines: Iterable[str], there: Mapping[str, str]) -> Wanted | None:
    """Return the environment for these requirements; None if the cluster's own packages meet all of them."""
    given = list(lines)
    packages = [line for line in given if is_package(line)]
    needed = {line: package_in(line) for line in packages}
    if all(_is_met(one, there) for one in needed.values()):
        return None
    return Wanted(
        tuple(str(one) for one in needed.values()),
        tuple(line for line in given if line.startswith(INDEX_OPTIONS)),
        {canonicalize_name(one.name): hashes for line, one in needed.items() if (hashes := hashes_in(line))},
        {name: there[name] for one in needed.values() if (name := canonicalize_name(one.name)) in there
         and _is_met(one, there)},
    )  # fmt: skip


def digest_of(wanted: Wanted, there: Mapping[str, str], python: str) -> str:
    """Return the name of the environment, which depends on the requirements, the cluster's packages and Python."""
    protected = sorted((name, version) for name, version in there.items() if is_protected(name) or name in wanted.met)
    hashes = sorted((name, *each) for name, each in wanted.hashes.items())
    parts = [sorted(wanted.packages), sorted(wanted.options), hashes, protected, python]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


def _is_met(one: Requirement, there: Mapping[str, str]) -> bool:
    if one.marker is not None and not one.marker.evaluate():
        return True
    version = there.get(canonicalize_name(one.name))
    return (
        version is not None and one.url is None and not one.extras and one.specifier.contains(version, prereleases=True)
    )
