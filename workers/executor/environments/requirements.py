"""Requirements of a training: lines (PEP 508) of an option, a `requirements.txt` or PEP 723."""

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

#: What the forkserver has loaded before a script begins, and what is built for its torch: never replaced.
PROTECTED: Final = frozenset(
    {
        *("torch", "torchvision", "torchaudio", "numpy", "sympy", "mpmath", "typing-extensions"),
        *("tidepool", "tidepool-runtime", "msgspec", "psutil", "safetensors", "setproctitle"),
    }
)
_BUILT_FOR_TORCH: Final = ("nvidia-", "triton", "cuda-")
_MAX_REQUIREMENTS: Final = 100
_URLS: Final = ("https://", "git+https://")
#: PEP 723's own expression, but that no line may be empty of both `#` and text, so that it needs linear time.
_BLOCK: Final = re.compile(r"(?m)^# /// script$\n(?P<content>(?:^#(?: [^\n]*)?\n)+)^# ///$")


class RequirementsError(ValueError):
    """They cannot be used; the text says what to do."""


def checked(text: str) -> list[str]:
    """The requirements of these lines, sorted, as they are written down. Raises RequirementsError."""
    lines = [line.split(" #")[0].strip() for line in text.splitlines()]
    given = [line for line in lines if line and not line.startswith("#")]
    if len(given) > _MAX_REQUIREMENTS:
        raise RequirementsError(f"Give at most {_MAX_REQUIREMENTS} requirements, not {len(given)}.")
    return sorted({_written(line) for line in given})


def of_script(source: str, python: str) -> list[str] | None:
    """Return the requirements that a script states (PEP 723); None: it states nothing. python: such as `3.11.7`.

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
        raise RequirementsError(f"The block '# /// script' of the script is no TOML ({error}): correct it.") from None
    if not wanted.contains(python):
        raise RequirementsError(
            f"The script wants Python {wanted}, and the cluster has {python}: change requires-python."
        )
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise RequirementsError("In the script's block '# /// script' dependencies must be a list of texts.")
    return checked("\n".join(names))


@cache
def installed() -> Mapping[str, str]:
    """Versions of what this process can import, by name; looked up once."""
    return {canonicalize_name(each.name): each.version for each in distributions() if each.name}


def is_protected(name: str) -> bool:
    return name in PROTECTED or name.startswith(_BUILT_FOR_TORCH)


def conflict_with(requirements: Iterable[str], there: Mapping[str, str]) -> str:
    """A sentence on what would have to replace something that is never replaced; "" where nothing would."""
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
    """The name of the environment: other packages of the cluster make it another one."""
    protected = sorted((name, version) for name, version in there.items() if is_protected(name))
    return hashlib.sha256(json.dumps([sorted(requirements), protected, python]).encode()).hexdigest()[:24]


def _is_met(one: Requirement, there: Mapping[str, str]) -> bool:
    if one.marker is not None and not one.marker.evaluate():
        return True
    version = there.get(canonicalize_name(one.name))
    return (
        version is not None and one.url is None and not one.extras and one.specifier.contains(version, prereleases=True)
    )


def _written(line: str) -> str:
    if line.startswith("-"):
        raise RequirementsError(
            f"{line[:80]!r}: options of pip are not taken here, only requirements such as timm>=1.0."
        )
    try:
        one = Requirement(line)
    except InvalidRequirement:
        raise RequirementsError(f"{line[:80]!r} is no requirement: write it such as timm>=1.0.") from None
    if one.url is not None and not one.url.startswith(_URLS):
        raise RequirementsError(f"{line[:80]!r}: an address must begin with https:// or git+https://.")
    return str(one)
