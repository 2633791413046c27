"""Names and versions of all that a training's ranks can import on this host, and of the GPUs' driver.

Nothing is imported: the metadata of the distributions says it, and torch's own file of versions.
"""

import ast
import json
import logging
import platform
import sysconfig
import time
from functools import cache, lru_cache
from importlib.metadata import Distribution, distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from packaging.utils import canonicalize_name
from tidepool.env import site_of
from tidepool.protocol import EnvironmentUsed
from tidepool.source_privacy import without_credentials

from workers.executor.environments.requirements import import_folders

__all__ = ["software_in"]

logger = logging.getLogger(__name__)

_DRIVER: Final = Path("/sys/module/nvidia/version")
_NCCL: Final = "nvidia-nccl-"


def software_in(folder: str) -> EnvironmentUsed:
    """Return the software of an environment; folder: see `Ready`."""
    packages, origins = _distributions(folder, import_folders())
    nccl = next((version for name, version in packages.items() if name.startswith(_NCCL)), "")
    return EnvironmentUsed(
        at=time.time(),
        python=platform.python_version(),
        platform=sysconfig.get_platform(),
        cuda=_cuda(),
        nccl=nccl,
        driver=_DRIVER.read_text().strip() if _DRIVER.exists() else "",
        packages=packages,
        origins=origins,
    )


@lru_cache(maxsize=32)
def _distributions(folder: str, cluster: tuple[tuple[str, int], ...]) -> tuple[dict[str, str], dict[str, str]]:
    """Return version and origin of each distribution, by name. The environment's own precede the cluster's."""
    own = [str(site_of(Path(folder)))] if folder else []
    versions: dict[str, str] = {}
    origins: dict[str, str] = {}
    for each in distributions(path=[*own, *(place for place, _ in cluster)]):
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


@cache
def _cuda() -> str:
    """Return the version of CUDA that the cluster's torch is built for; "": it is built for CPUs."""
    torch = find_spec("torch")
    if torch is None or torch.origin is None:
        return ""
    try:
        body = ast.parse(Path(torch.origin).with_name("version.py").read_text()).body
    except (OSError, SyntaxError):
        logger.warning("%s has no readable version.py: the version of CUDA is unknown", torch.origin)
        return ""
    for node in body:
        target = (
            node.targets[0]
            if isinstance(node, ast.Assign)
            else node.target
            if isinstance(node, ast.AnnAssign)
            else None
        )
        if isinstance(target, ast.Name) and target.id == "cuda":
            value = getattr(node, "value", None)
            return str(value.value or "") if isinstance(value, ast.Constant) else ""
    return ""
