"""Names and versions of all that a training's ranks can import on this host, and of the GPUs' driver.

Nothing is imported: the metadata of the distributions says it, and torch's own file of versions.
"""

import ast
import logging
import platform
import sysconfig
import time
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tidepool.env import site_of
from tidepool.protocol import EnvironmentUsed

from workers.executor.environments.builder import built_at
from workers.executor.environments.cache import Ready
from workers.executor.environments.distributions import distributions_in
from workers.executor.environments.requirements import import_folders

__all__ = ["cluster_packages", "software_in"]

logger = logging.getLogger(__name__)

_DRIVER: Final = Path("/sys/module/nvidia/version")
_NCCL: Final = "nvidia-nccl-"


def software_in(environment: Ready) -> EnvironmentUsed:
    packages: dict[str, str]
    origins: dict[str, str]
    digest = ""
    if environment.image or environment.given:
        built = built_at(Path(environment.folder))
        packages, origins = (dict(built.packages), dict(built.origins)) if built else ({}, {})
        digest = built.digest if built else ""
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
        digest=digest,
    )


def cluster_packages() -> tuple[dict[str, str], dict[str, str]]:
    """Return version and origin of each distribution that this process can import, by name."""
    return _distributions("", import_folders())


@lru_cache(maxsize=32)
def _distributions(folder: str, cluster: tuple[tuple[str, int], ...]) -> tuple[dict[str, str], dict[str, str]]:
    """Return version and origin of each distribution, by name. The environment's own precede the cluster's."""
    own = [str(site_of(Path(folder)))] if folder else []
    return distributions_in([*own, *(place for place, _ in cluster)])


def _torch_of(environment: Ready) -> Path | None:
    """Return the folder of the torch that ranks import; None: there is none."""
    if environment.image:
        return None
    if environment.is_whole:
        folder = site_of(Path(environment.given or environment.folder)) / "torch"
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
