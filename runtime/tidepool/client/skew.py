"""Differences between the versions of client and site."""

import re
from typing import Literal

__all__ = ["advice", "skew"]

_MAJOR_MINOR = re.compile(r"(\d+)\.(\d+)(?:\.|$)")


def skew(ours: str, sites: str) -> Literal["none", "slight", "apart"]:
    """Return the difference. apart: two minor versions or a major one, beyond which compatibility is not guaranteed."""
    if ours == sites:
        return "none"
    mine, theirs = _MAJOR_MINOR.match(ours), _MAJOR_MINOR.match(sites)
    if mine is None or theirs is None:
        return "slight"
    (major, minor), (other_major, other_minor) = map(int, mine.groups()), map(int, theirs.groups())
    return "apart" if major != other_major or abs(minor - other_minor) > 1 else "slight"


def advice(ours: str, sites: str, url: str) -> str:
    """Describe the difference, with the line that installs the client that fits."""
    return (
        f"This client has version {ours} and {url} has {sites}: "
        f"pip install {url}/ui/tools/tidepool_runtime-{sites}-py3-none-any.whl"
    )
