"""Requirements of a training: PEP 508 lines from an option, a `requirements.txt` or a PEP 723 block."""

import hashlib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import distributions
from typing import Any, Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

__all__ = [
    "PROTECTED",
    "RequirementsError",
    "checked",
    "conflict_with",
    "digest_of",
    "installed",
    "is_protected",
    "missing",
    "of_script",
]

#: Packages that are never replaced: the forkserver has loaded them, or they are built for its torch.
PROTECTED: Final = frozenset(
    {
        *("torch", "torchvision", "torchaudio", "numpy", "sympy", "mpmath", "typing-extensions"),
        *("tidepool", "tidepool-runtime", "msgspec", "psutil", "safetensors", "setproctitle"),
    }
)
_BUILT_FOR_TORCH: Final = ("nvidia-", "triton", "cuda-")
_MAX_REQUIREMENTS: Final = 100
_URLS: Final = ("https://", "git+https://")
#: The expression of PEP 723, except that each line must have a `#` and a text, so that matching takes linear time.
_BLOCK: Final = re.compile(r"(?m)^# /// script$\n(?P<content>(?:^#(?: [^\n]*)?\n)+)^# ///$")


class RequirementsError(ValueError):
    """The requirements cannot be used; the text says what to do."""


def checked(text: str) -> list[str]:
    """Return the requirements of these lines, normalized and sorted. Raises RequirementsError."""
    lines = [line.split(" #")[0].strip() for line in text.splitlines()]
    given = [line for line in lines if line and not line.startswith("#")]
    if len(given) > _MAX_REQUIREMENTS:
        raise RequirementsError(f"Give at most {_MAX_REQUIREMENTS} requirements, not {len(given)}.")
    return sorted({_normalized(line) for line in given})


def of_script(source: str, python: str) -> list[str] | None:
    """Return the requirements in a script's PEP 723 block; None if it has no block. python: version such as `3.11.7`.

    Raises RequirementsError.
    """
    found = _BLOCK.search(source if source.endswith("\n") else f"{source}\n")
    if found is None:
        return None
    content = "".join(line[2:] if line.startswith("# ") else line[1:] for line in found["content"].splitlines(True))
    try:
        stated: dict[str, Any] = tomllib.loads(content)
        wanted, names = SpecifierSet(stated.get("requires-python", "")), stated.get("dependencies", [])
    except (tomllib.TOMLDecodeError, InvalidSpecifier, TypeError) as error:
        raise RequirementsError(
            f"The block '# /// script' of the script is not valid TOML ({error}): correct it."
        ) from None
    if not wanted.contains(python):
        raise RequirementsError(
            f"The script requires Python {wanted}, and the cluster has {python}: change requires-python."
        )
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise RequirementsError("In the script's block '# /// script', dependencies must be a list of strings.")
    return checked("\n".join(names))


@cache
def installed() -> Mapping[str, str]:
    """Return the version of each package that this process can import, by name; cached."""
    return {canonicalize_name(each.name): each.version for each in distributions() if each.name}


def is_protected(name: str) -> bool:
    return name in PROTECTED or name.startswith(_BUILT_FOR_TORCH)


def conflict_with(requirements: Iterable[str], there: Mapping[str, str]) -> str:
    """Return a sentence about the first requirement that conflicts with a protected package; "" if none does."""
    for text in requirements:
        one = Requirement(text)
        name = canonicalize_name(one.name)
        version = there.get(name) if is_protected(name) else None
        if version is None or (one.marker is not None and not one.marker.evaluate()):
            continue
        if one.url is not None or not one.specifier.contains(version, prereleases=True):
            return (
                f"{text}: the cluster has {name} {version}, which a training's requirements do not replace. "
                f"Write {name} without a version, or take it out."
            )
    return ""


def missing(requirements: Iterable[str], there: Mapping[str, str]) -> list[str]:
    """Return the requirements that the cluster's own packages do not meet."""
    return [text for text in requirements if not _is_met(Requirement(text), there)]


def digest_of(requirements: Iterable[str], there: Mapping[str, str], python: str) -> str:
    """Return the name of the environment, which depends on the requirements, the protected packages and Python."""
    protected = sorted((name, version) for name, version in there.items() if is_protected(name))
    return hashlib.sha256(json.dumps([sorted(requirements), protected, python]).encode()).hexdigest()[:24]


def _is_met(one: Requirement, there: Mapping[str, str]) -> bool:
    if one.marker is not None and not one.marker.evaluate():
        return True
    version = there.get(canonicalize_name(one.name))
    return (
        version is not None and one.url is None and not one.extras and one.specifier.contains(version, prereleases=True)
    )


def _normalized(line: str) -> str:
    if line.startswith("-"):
        raise RequirementsError(f"{line[:80]!r}: options of pip are not accepted, only requirements such as timm>=1.0.")
    try:
        one = Requirement(line)
    except InvalidRequirement:
        raise RequirementsError(f"{line[:80]!r} is not a valid requirement: write one such as timm>=1.0.") from None
    if one.url is not None and not one.url.startswith(_URLS):
        raise RequirementsError(f"{line[:80]!r}: a URL must begin with https:// or git+https://.")
    return str(one)
