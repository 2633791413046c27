"""Requirements as people have them: what a training can require, and a sentence for each line that cannot be used.

Pure: files are read by a function that is passed in. The result is what hosts get, see
`workers.executor.environments.requirements`.
"""

import platform
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, Specifier, SpecifierSet
from packaging.utils import canonicalize_name
from tidepool.requirement_files import LOCK_FILE, Line, all_lines, included_file, own_project

from jobs.actions.project_requirements import dependencies_of
from workers.executor.environments.requirements import (
    CHANNELS_OPTION,
    CONDA_OPTION,
    FOLDER_OPTION,
    IMAGE_OPTION,
    INDEX_OPTIONS,
    PYTHON_OPTION,
    conda_in,
    hashes_in,
    is_built_for_torch,
    is_protected,
    package_in,
    python_in,
    replaced,
)

__all__ = [
    "Read",
    "Reader",
    "RequirementsError",
    "Unusable",
    "conda_package",
    "read_lines",
    "read_requirements",
    "script_block",
]

_MAX_REQUIREMENTS: Final = 1000
_URLS: Final = ("https://", "git+https://")
#: Names of the client's own package, which every freeze of a logged-in machine has: ranks have it anyway.
_OURS: Final = frozenset({"tidepool", "tidepool-runtime"})
#: Options of pip that change nothing here: uv checks all hashes, and hosts choose which certificates they trust.
_WITHOUT_EFFECT: Final = ("--require-hashes", "--trusted-host", "--prefer-binary", "--use-feature", "--no-cache-dir")
#: Container image with its digest, without which another image may have the name tomorrow.
_IMAGE: Final = re.compile(r"(?P<name>[a-z0-9][\w.:/-]*?)(?P<digest>@sha256:[0-9a-f]{64})?", re.ASCII)
#: Host of the index that has torch and what is built for it.
_TORCH_INDEX: Final = "download.pytorch.org"
#: Line that `conda list --export` writes: name, version and build.
_CONDA_LINE: Final = re.compile(r"[\w.-]+=[^=\s]+(=\S+)?")
_CONDA_PACKAGE: Final = re.compile(r"(?P<name>[\w.-]+)(?P<version>(?:==.+|[<>!~].*|=[^=]+)?)(?P<build>(?:=.*)?)")
#: Name or address of a channel of conda, without a password.
_CHANNEL: Final = re.compile(r"(?:https://)?[A-Za-z0-9][\w./~-]*")
#: Names of conda's packages -> PyPI's.
_OF_CONDA: Final = {"pytorch": "torch", "pytorch-gpu": "torch", "opencv": "opencv-python"}
#: Versions of Python by which a limit is judged: whether any will do.
_MINORS: Final = range(11, 30)
_PATCHES: Final = (*range(25), 99)
_OLD_PYTHON: Final = "Python 3.11 is the oldest that trainings can have: ask for that or a newer one."
_NUMBER: Final = re.compile(r"\d+\.\d+(?P<patch>\.\d+)?")
#: Folder in which conda built a package, on a machine of its makers.
_CONDA_BUILD: Final = re.compile(r"file://\S*(/feedstock_root/|/croot/|/conda[-_]bld/|/build_artifacts/)")
_FILE: Final = re.compile(r"(?P<name>[A-Za-z0-9_.]+?)-(?P<version>\d[\w.!+]*?)(-\S+\.whl|\.tar\.gz|\.zip)$")
#: The expression of PEP 723, except that each line must have a `#` and a text, so that matching takes linear time.
_BLOCK: Final = re.compile(r"(?m)^# /// script$\n(?P<content>(?:^#(?: [^\n]*)?\n)+)^# ///$")
_SHOWN: Final = 100


class RequirementsError(ValueError):
    """The requirements cannot be used; the text says what to do."""


@dataclass(frozen=True)
class Unusable:
    """A line that cannot be used as it is."""

    line: Line
    why: str
    #: Requirement that is used if the user goes on; "": the line is left out.
    instead: str = ""

    @property
    def sentence(self) -> str:
        place = ", ".join(filter(None, (self.line.file, f"line {self.line.number}")))
        then = f" If you go on, {self.instead} is installed." if self.instead else ""
        return f"{place}, {self.line.text[:_SHOWN]!r}: {self.why}{then}"


@dataclass
class Read:
    """Requirements that can be used, and lines that cannot."""

    lines: set[str] = field(default_factory=set)
    unusable: list[Unusable] = field(default_factory=list)

    @property
    def usable(self) -> list[str]:
        return sorted(self.lines)

    @property
    def with_replacements(self) -> list[str]:
        """Return the requirements of a user who goes on."""
        return sorted(self.lines | {each.instead for each in self.unusable if each.instead})


Reader = Callable[[str], str | None]


def read_requirements(text: str, file: str, read: Reader, there: Mapping[str, str]) -> Read:
    """Read requirements in pip's format.

    file: path in the training's folder, "" for a text that the user typed. read: returns the text of a file there, or
    None. there: versions of the cluster's packages. Raises RequirementsError for too many.
    """
    return read_lines(all_lines(text, file), read, there)


def read_lines(lines: Iterable[Line], read: Reader, there: Mapping[str, str]) -> Read:
    reading = _Reading(read, there)
    reading.take(lines)
    reading.settle()
    if len(reading.found.lines) > _MAX_REQUIREMENTS:
        raise RequirementsError(f"Give at most {_MAX_REQUIREMENTS} requirements, not {len(reading.found.lines)}.")
    return reading.found


def script_block(source: str) -> str | None:
    """Return the requirements in a script's PEP 723 block as lines; None: it has no block. Raises RequirementsError."""
    found = _BLOCK.search(source if source.endswith("\n") else f"{source}\n")
    if found is None:
        return None
    content = "".join(line[2:] if line.startswith("# ") else line[1:] for line in found["content"].splitlines(True))
    try:
        stated: dict[str, Any] = tomllib.loads(content)
        wanted, names = str(SpecifierSet(stated.get("requires-python", ""))), stated.get("dependencies", [])
    except (tomllib.TOMLDecodeError, InvalidSpecifier, TypeError) as error:
        raise RequirementsError(
            f"The block '# /// script' of the script is not valid TOML ({error}): correct it."
        ) from None
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise RequirementsError("In the script's block '# /// script', dependencies must be a list of strings.")
    return "\n".join([*([f"{PYTHON_OPTION} {wanted}"] if wanted else []), *names])


def conda_package(text: str) -> Requirement:
    """Return a package such as `conda-forge::numpy=1.26` or `numpy=1.26.4=py311_0` under PyPI's name.

    Raises InvalidRequirement.
    """
    found = _CONDA_PACKAGE.fullmatch(text.rpartition("::")[2].replace(" ", ""))
    if found is None:
        raise InvalidRequirement(text)
    name, version, build = canonicalize_name(found["name"]), found["version"], found["build"]
    if version.startswith("=") and not version.startswith("=="):
        number = version[1:].removesuffix("*").removesuffix(".")
        version = "" if not number else f"=={number}" if build else f"=={number}.*"
    return Requirement(f"{_OF_CONDA.get(name, name)}{version}")


class _Reading:
    def __init__(self, read: Reader, there: Mapping[str, str]) -> None:
        self.found = Read()
        self._read, self._there = read, there
        self._included: set[str] = set()
        self._has_index = False
        #: Lines whose use depends on whether the environment is a whole one, which is known at the end.
        self._of_torch: list[Line] = []
        self._of_other_python: list[Line] = []
        self._of_torch_index: list[str] = []
        self._images: list[Line] = []
        self._of_packages: list[Line] = []
        self._channels: list[str] = []

    def take(self, lines: Iterable[Line]) -> None:
        given = list(lines)
        self._has_index |= any(line.text.startswith((*INDEX_OPTIONS, "-i", "-f")) for line in given)
        for line in given:
            self._take_one(line)

    def settle(self) -> None:
        """Use or refuse what depends on all the other lines."""
        if self._images:
            self._settle_image()
            return
        has_conda = bool(conda_in(self.found.lines))
        if has_conda and self._channels:
            self.found.lines.add(f"{CHANNELS_OPTION} {' '.join(dict.fromkeys(self._channels))}")
        if has_conda or replaced(self.found.lines, self._there, platform.python_version()):
            self.found.lines.update(line.text for line in self._of_torch)
            self.found.lines.update(self._of_torch_index)
            if python_in(self.found.lines):  # the Python that is found on a host says which of these count
                self.found.lines.update(line.text for line in self._of_other_python)
            return
        for line in self._of_torch:
            if line.file.endswith(LOCK_FILE):  # a lock names all packages for its torch
                continue
            name = package_in(line.text).name
            self._refuse(line, f"{name} belongs to the torch of another machine: hosts have what their torch needs.")

    def _settle_image(self) -> None:
        """Use the first image alone: it has all packages, and nothing is installed into it."""
        first, *others = self._images
        for line in others:
            self._refuse(line, "a training runs in one image: leave out all others.")
        for line in self._of_packages:
            self._refuse(line, "nothing is installed into an image: leave this out, or make an image that has it.")
        self.found.lines = {first.text}

    def _take_one(self, line: Line) -> None:
        if (file := included_file(line)) is not None:
            self._include(line, file)
        elif (place := own_project(line)) is not None:
            self._take_project(line, place)
        elif line.text.startswith("-"):
            self._take_option(line)
        elif line.is_conda or _CONDA_LINE.fullmatch(line.text):
            self._take_conda(line)
        else:
            self._take_package(line)

    def _refuse(self, line: Line, why: str, instead: str = "") -> None:
        self.found.unusable.append(Unusable(line, why, instead))

    def _include(self, line: Line, file: str) -> None:
        text = self._read(file)
        if text is None:
            self._refuse(line, f"the training's folder has no file {file}: add it.")
        elif file not in self._included:
            self._included.add(file)
            self.take(all_lines(text, file))

    def _take_project(self, line: Line, place: str) -> None:
        wanted = dependencies_of(place, self._read)
        if wanted is None:
            self._refuse(
                line,
                "the training's folder has no project there (pyproject.toml or setup.py): give a folder of the "
                "training, or an address that begins with https:// or git+https://.",
            )
            return
        self.found.lines.add(f"-e {place}")
        self.take(Line(line.file, line.number, each) for each in wanted)

    def _take_option(self, line: Line) -> None:
        name, value = re.split(r"(?<=\w)(?:=|\s|$)", f"{line.text} ", maxsplit=1)
        name = {"-i": "--index-url", "-f": "--find-links"}.get(name, name)
        value = value.strip()
        if name in _WITHOUT_EFFECT:
            return
        if name == PYTHON_OPTION:
            self._take_python(line, value)
            return
        if name == IMAGE_OPTION:
            self._take_image(line, value)
            return
        if name == CONDA_OPTION:
            self._take_solved(line, value)
        elif name == CHANNELS_OPTION:
            self._take_channels(line, value.split())
        elif name == FOLDER_OPTION:
            self._refuse(
                line,
                "only administrators name folders of the hosts, as an environment: choose one as Environment or with "
                "--env, or require packages.",
            )
        elif name in ("-e", "--editable"):
            self._take_editable_url(line, value)
        elif name in ("-c", "--constraint"):
            self._refuse(line, "files of constraints are not read: write the versions into the requirements.")
        elif name not in INDEX_OPTIONS:
            self._refuse(line, "this option of pip is not supported.")
        elif not value.startswith("https://") or "$" in value:
            self._refuse(line, "an index must have an address that begins with https://.")
        elif urlsplit(value).hostname == _TORCH_INDEX:
            self._of_torch_index.append(f"{name} {value}")
        elif urlsplit(value).username:
            self._refuse(line, "this address has a password, which everybody who sees the training could read.")
        else:
            self.found.lines.add(f"{name} {value}")

    def _take_solved(self, line: Line, value: str) -> None:
        """Take a package that conda shall install."""
        channel, _, package = value.rpartition("::")
        found = _CONDA_PACKAGE.fullmatch(package.replace(" ", ""))
        if found is None or package.startswith("-") or (channel and not _CHANNEL.fullmatch(channel)):
            self._refuse(line, "this is not a package of conda such as numpy=1.26.")
        elif found["name"] == "python" and not _solves_usable_python(package):
            self._refuse(line, _OLD_PYTHON)
        else:
            self._of_packages.append(line)
            self.found.lines.add(f"{CONDA_OPTION} {value}")

    def _take_channels(self, line: Line, names: Iterable[str]) -> None:
        for name in names:
            if _CHANNEL.fullmatch(name):
                self._channels.append(name)
            else:
                self._refuse(line, f"{name!r} is no channel: give a name or an address that begins with https://.")

    def _take_python(self, line: Line, value: str) -> None:
        """Take versions such as `3.12` (any 3.12), `3.12.4` or `>=3.11,<3.13`."""
        number = _NUMBER.fullmatch(value)
        versions = value if number is None else f"=={value}" if number["patch"] else f"=={value}.*"
        try:
            limits = SpecifierSet(versions)
        except InvalidSpecifier:
            self._refuse(line, "this is not a version of Python such as 3.12 or >=3.11.")
            return
        if limits.contains(platform.python_version(), prereleases=True):
            return
        if not _has_usable_python(limits):
            self._refuse(line, _OLD_PYTHON)
        else:
            self.found.lines.add(f"{PYTHON_OPTION} {limits}")

    def _take_image(self, line: Line, value: str) -> None:
        found = _IMAGE.fullmatch(value)
        if found is None:
            self._refuse(line, "this is not the name of a container image, such as docker.io/pytorch/pytorch.")
        elif found["digest"] is None:
            self._refuse(
                line,
                f"another image may have this name tomorrow: add its digest, as in {found['name']}@sha256:…, which "
                f"`skopeo inspect docker://{found['name']}` prints.",
            )
        else:
            self._images.append(Line(line.file, line.number, f"{IMAGE_OPTION} {value}"))

    def _take_editable_url(self, line: Line, value: str) -> None:
        address, _, fragment = value.partition("#")
        name = re.search(r"egg=([\w.-]+)", fragment)
        if name is None:
            self._refuse(line, f"the name of the package is missing: write NAME @ {address}.")
        else:
            self._take_package(Line(line.file, line.number, f"{name[1]} @ {address}"))

    def _take_conda(self, line: Line) -> None:
        try:
            one = conda_package(line.text)
        except InvalidRequirement:
            found = _CONDA_PACKAGE.fullmatch(line.text.rpartition("::")[2].replace(" ", ""))
            self._refuse(line, _only_conda_has(found["name"]) if found else _why_invalid(line.text))
            return
        if one.name in ("pip", "setuptools", "wheel"):
            return
        if one.name == "python":
            self._take_python(line, str(one.specifier))
        elif one.name not in self._there:
            self._refuse(line, _only_conda_has(one.name))
        else:
            self._take_package(line, one)

    def _take_package(self, line: Line, one: Requirement | None = None) -> None:
        try:
            one = one or package_in(line.text)
        except InvalidRequirement:
            self._refuse(line, _why_invalid(line.text))
            return
        name = canonicalize_name(one.name)
        if name in _OURS:
            return
        self._of_packages.append(line)
        if one.marker is not None and not one.marker.evaluate():
            self._of_other_python.append(line)
            return
        public = _without_local_versions(one)
        if is_built_for_torch(name) and name not in self._there:
            self._of_torch.append(line)
        elif is_protected(name) and one.url is None and name in self._there and _fits(public, self._there[name]):
            self.found.lines.add(str(public))
        elif one.url is not None and not one.url.startswith(_URLS):
            self._refuse(line, *_foreign_url(one))
        elif public != one and not self._has_index:
            self._refuse(line, "indexes have no local versions (after the +), only machines do.", str(public))
        else:
            self.found.lines.add(" ".join([str(one), *(f"--hash={each}" for each in hashes_in(line.text))]))


def _only_conda_has(name: str) -> str:
    return f"{name} is a package of conda, which hosts do not have: require a package of PyPI instead."


def _solves_usable_python(package: str) -> bool:
    """Return whether conda may install a Python for this package that trainings can have."""
    try:
        return _has_usable_python(conda_package(package).specifier)
    except InvalidRequirement:
        return False


def _has_usable_python(limits: SpecifierSet) -> bool:
    return any(limits.contains(f"3.{minor}.{patch}") for minor in _MINORS for patch in _PATCHES)


def _fits(public: Requirement, version: str) -> bool:
    return public.specifier.contains(version.partition("+")[0], prereleases=True)


def _without_local_versions(one: Requirement) -> Requirement:
    """Return the requirement with `==2.1.0` for `==2.1.0+cu118`."""
    public = Requirement(str(one))
    public.specifier = SpecifierSet(",".join(map(_public, one.specifier)))
    return public


def _public(each: Specifier) -> str:
    return f"{each.operator}{each.version.partition('+')[0]}"


def _foreign_url(one: Requirement) -> tuple[str, str]:
    """Return why hosts cannot fetch the address, and the requirement to go on with."""
    url = str(one.url)
    if _CONDA_BUILD.match(url):
        return f"conda built {one.name} in this folder, on another machine.", one.name
    if url.startswith("file:"):
        file = _FILE.search(url)
        return "this file is on another machine.", f"{one.name}=={file['version']}" if file else ""
    if url.startswith("git+ssh://"):
        https = re.sub(r"^git\+ssh://(?:[^@/]+@)?([^/:]+)[:/]", r"git+https://\1/", url)
        return f"hosts have no key for git: write {one.name} @ {https}.", ""
    return "an address must begin with https:// or git+https://.", ""


def _why_invalid(text: str) -> str:
    if "://" in text and " @ " not in text:
        return "the name of the package is missing: write NAME @ and the address."
    return "this is not a requirement such as timm>=1.0."
