"""Names and versions of all that a training's ranks can import on this host, and of the GPUs' driver.

Nothing is imported: the metadata of the distributions says it, and torch's own file of versions.
"""

import ast
import json
import logging
import platform
import sysconfig
import time
from functools import lru_cache
from importlib.metadata import Distribution, distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from packaging.utils import canonicalize_name
from tidepool.env import site_of
from tidepool.protocol import EnvironmentUsed
from tidepool.source_privacy import without_credentials

from workers.executor.environments.builder import built_at
from workers.executor.environments.cache import Ready
from workers.executor.environments.requirements import import_folders

__all__ = ["cluster_packages", "software_in"]

logger = logging.getLogger(__name__)

_DRIVER: Final = Path("/sys/module/nvidia/version")
_NCCL: Final = "nvidia-nccl-"


def software_in(environment: Ready) -> EnvironmentUsed:
    if environment.image:
        built = built_at(Path(environment.folder))
        packages: dict[str, str] = dict(built.packages if built else {})
        origins: dict[str, str] = {}
    else:
        packages, origins = _distributions(environment.folder, () if environment.is_whole else import_folders())
    nccl = next((version for name, version in packages.items() if name.startswith(_NCCL)), "")
    return EnvironmentUsed(
        at=time.time(),
        python=environment.python or platform.python_version(),
        platform=sysconfig.get_platform(),
        cuda=_cuda(_torch_of(environment)),
        nccl=nccl,
        driver=_DRIVER.read_text().strip() if _DRIVER.exists() else "",
        packages=packages,
        origins=origins,
    )


def cluster_packages() -> tuple[dict[str, str], dict[str, str]]:
    """Return version and origin of each distribution that this process can import, by name."""
    return _distributions("", import_folders())


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


def _torch_of(environment: Ready) -> Path | None:
    """Return the folder of the torch that ranks import; None: there is none."""
    if environment.image:
        return None
    if environment.is_whole:
        folder = site_of(Path(environment.folder)) / "torch"
        return folder if folder.is_dir() else None
    torch = find_spec("torch")
    return None if torch is None or torch.origin is None else Path(torch.origin).parent


@lru_cache(maxsize=32)
def _cuda(torch: Path | None) -> str:
    """Return the version of CUDA that this torch is built for; "": it is built for CPUs."""
    if torch is None:
        return ""
    try:
        body = ast.parse((torch / "version.py").read_text()).body
    except (OSError, SyntaxError):
        logger.warning("%s has no readable version.py: the version of CUDA is unknown", torch)
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
