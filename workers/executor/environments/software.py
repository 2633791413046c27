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

from packaging.version import Version
from tidepool.env import site_of
from tidepool.protocol import EnvironmentUsed

from workers.executor.environments.builder import built_at
from workers.executor.environments.cache import Ready
from workers.executor.environments.distributions import distributions_in
from workers.executor.environments.requirements import import_folders

__all__ = ["cluster_packages", "software_in", "why_driver_is_too_old"]

logger = logging.getLogger(__name__)

_DRIVER: Final = Path("/sys/module/nvidia/version")
#: First driver that runs each major version of CUDA: NVIDIA, "CUDA Toolkit Release Notes", table of the drivers for
#: minor version compatibility.
_FIRST_DRIVERS: Final = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
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
        driver=_driver(),
        packages=packages,
        origins=origins,
        digest=digest,
    )


def why_driver_is_too_old(environment: Ready) -> str:
    """Return a sentence if the GPUs' driver of this host cannot run the environment's torch, or ""."""
    cuda, driver = _cuda(_torch_of(environment)), _driver()
    first = _FIRST_DRIVERS.get(int(cuda.partition(".")[0])) if cuda else None
    if first is None or not driver or Version(driver) >= Version(first):
        return ""
    return (
        f"torch {environment.torch} of the training is built for CUDA {cuda}, which needs an NVIDIA driver of at least "
        f"{first}, and this host has {driver}: require a torch that is built for an older CUDA, or update the driver"
    )


def _driver() -> str:
    """Return the version of the GPUs' driver; "": there is none."""
    return _DRIVER.read_text().strip() if _DRIVER.exists() else ""


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
