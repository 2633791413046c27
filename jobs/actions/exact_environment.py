"""Requirements that pin the environment of an attempt, for a training that runs exactly again. Pure."""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from workers.executor.environments.requirements import (
    FOLDER_OPTION,
    IMAGE_OPTION,
    INDEX_OPTIONS,
    PYTHON_OPTION,
    conda_in,
    folder_in,
    hashes_in,
    image_in,
    is_package,
    package_in,
    replaced,
)

__all__ = ["Locked", "Packages", "locked"]

#: Distributions of Tidepool itself: ranks run those of the host.
_OURS: Final = frozenset({"tidepool", "tidepool-runtime"})
_FETCHED: Final = ("https://", "git+https://")
_OF_TORCH: Final = frozenset({"torch", "torchvision", "torchaudio"})
#: Local versions under which PyTorch's own index keeps builds, such as 2.13.0+cpu and 2.13.0+cu130.
_TORCH_BUILD: Final = re.compile(r"cpu|xpu|cu\d+|rocm[\d.]+")
_TORCH_INDEX: Final = "--extra-index-url https://download.pytorch.org/whl"
#: Highest number of packages that a sentence names.
_MOST_NAMED: Final = 10


@dataclass(frozen=True)
class Packages:
    """A Python and its packages."""

    python: str
    #: Version of each distribution, by name.
    versions: Mapping[str, str]
    #: Address of each distribution that is not from an index, by name.
    origins: Mapping[str, str]

    def of(self, name: str) -> tuple[str | None, str | None]:
        """Return version and address of a distribution."""
        return self.versions.get(name), self.origins.get(name)


@dataclass(frozen=True)
class Locked:
    #: Requirements as a host gets them.
    lines: Sequence[str]
    #: A sentence for each part that cannot be had any more.
    missing: Sequence[str]
    #: A sentence for each difference that no requirement can undo.
    notes: Sequence[str] = ()


def locked(recorded: Packages, required: Iterable[str], cluster: Packages) -> Locked:
    """Return the requirements that bring these packages again.

    recorded: the packages of an attempt. required: the requirements of its training, whose indexes and own projects
    stay. cluster: the cluster's packages now.
    """
    given = list(required)
    if image := image_in(given):  # its digest pins all that it holds
        return Locked([f"{IMAGE_OPTION} {image}"], [], [*filter(None, [_other_site(recorded, cluster)])])
    if folder := folder_in(given):
        held = f"It runs with what {folder} holds now, which may be other versions than then."
        return Locked([f"{FOLDER_OPTION} {folder}"], [], [*filter(None, [held, _other_site(recorded, cluster)])])
    if conda_in(given):
        solved = "conda solves its lines anew, and may choose other versions than then."
        return Locked(given, [], [*filter(None, [solved, _other_site(recorded, cluster)])])
    options = [line for line in given if line.startswith((*INDEX_OPTIONS, "-e "))]
    if recorded.python != cluster.python:
        options.append(f"{PYTHON_OPTION} =={recorded.python}")
    names = sorted(recorded.versions.keys() - _OURS)
    here = {name for name in names if cluster.of(name) == recorded.of(name)}
    hashes = _hashes(given)
    layer = _pinned(names, recorded, options, hashes, here)
    if not replaced(layer.lines, cluster.versions, cluster.python):
        notes = [_other_site(recorded, cluster), _added(recorded, cluster)]
        return Locked(layer.lines, layer.missing, [*filter(None, notes)])
    whole = _pinned(names, recorded, [*options, *_torch_indexes(recorded)], hashes)
    return Locked(whole.lines, whole.missing, [*filter(None, [_other_site(recorded, cluster)])])


def _pinned(
    names: Iterable[str],
    recorded: Packages,
    options: Sequence[str],
    hashes: Mapping[str, Sequence[str]],
    here: Container[str] = (),
) -> Locked:
    """Return options and pins. here: names of what the environment has without an installation."""
    lines, missing = list(options), []
    for name in names:
        why = "" if name in here else _why_missing(name, recorded, options)
        if why:
            missing.append(why)
        elif name in recorded.origins and name not in here:
            lines.append(f"{name} @ {recorded.origins[name]}")
        elif _is_version(recorded.versions[name]):
            pin = f"{name}=={recorded.versions[name]}"
            lines.append(" ".join([pin, *(f"--hash={each}" for each in hashes.get(pin, ()))]))
    return Locked(lines, missing)


def _is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def _hashes(required: Iterable[str]) -> dict[str, list[str]]:
    """Return the hashes of pinned requirements, by a text such as `timm==1.0.9`."""
    found = {package_in(line): hashes_in(line) for line in required if is_package(line)}
    return {f"{canonicalize_name(one.name)}{one.specifier}": hashes for one, hashes in found.items() if hashes}


def _torch_indexes(recorded: Packages) -> list[str]:
    builds = {_local(recorded.versions[name]) for name in _OF_TORCH & recorded.versions.keys()}
    return [f"{_TORCH_INDEX}/{build}" for build in sorted(builds) if _TORCH_BUILD.fullmatch(build)]


def _local(version: str) -> str:
    return version.partition("+")[2]


def _why_missing(name: str, recorded: Packages, options: Sequence[str]) -> str:
    """Return why a distribution that the cluster no longer has cannot be installed either; "": it can."""
    version, origin = recorded.versions[name], recorded.origins.get(name)
    if origin is not None:
        return "" if origin.startswith(_FETCHED) else f"{name} {version} came from {origin}, which hosts cannot fetch."
    if not _is_version(version):
        return f"{name} has no version that an index could have: its metadata says {version!r}."
    local = _local(version)
    is_torch = name in _OF_TORCH and _TORCH_BUILD.fullmatch(local)
    if not local or is_torch or any(_is_own_index(line) for line in options):
        return ""
    return f"{name} {version} was on the hosts only: indexes have no local versions (after the +)."


def _is_own_index(line: str) -> bool:
    return line.startswith(INDEX_OPTIONS) and not line.startswith(_TORCH_INDEX)


def _other_site(recorded: Packages, cluster: Packages) -> str:
    changed = [
        f"{name} {cluster.versions[name]} runs it, {recorded.versions[name]} did then."
        for name in sorted(_OURS & recorded.versions.keys() & cluster.versions.keys())
        if cluster.versions[name] != recorded.versions[name]
    ]
    return " ".join(changed)


def _added(recorded: Packages, cluster: Packages) -> str:
    """Return a sentence about packages that come with the cluster's and were not there."""
    added = [f"{name} {cluster.versions[name]}" for name in sorted(cluster.versions.keys() - recorded.versions.keys())]
    if not added:
        return ""
    more = f" and {len(added) - _MOST_NAMED} more" if len(added) > _MOST_NAMED else ""
    return f"The cluster has more packages than then: {', '.join(added[:_MOST_NAMED])}{more}."
