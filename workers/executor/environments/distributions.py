"""Names, versions and origins of the distributions in folders that a Python imports from, by their metadata."""

import json
from collections.abc import Sequence
from importlib.metadata import Distribution, distributions

from packaging.utils import canonicalize_name
from tidepool.source_privacy import without_credentials

__all__ = ["distributions_in"]


def distributions_in(folders: Sequence[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return version and origin of each distribution, by name. The first folder that has one decides."""
    versions: dict[str, str] = {}
    origins: dict[str, str] = {}
    for each in distributions(path=list(folders)):
        name = canonicalize_name(each.name or "")
        if name and name not in versions:
            versions[name] = each.version or "unknown"
            if origin := _origin(each):
                origins[name] = origin
    return dict(sorted(versions.items())), dict(sorted(origins.items()))


def _origin(distribution: Distribution) -> str:
    """Return the address from which the distribution was installed, with its commit; "" for one of an index."""
    text = distribution.read_text("direct_url.json")
    if text is None:
        return ""
    try:
        found = json.loads(text)
        address = without_credentials(str(found["url"]))
        version_control = found.get("vcs_info")
        if version_control:
            return f"{version_control['vcs']}+{address}@{version_control['commit_id']}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return "an address that its metadata does not tell"
    return address
