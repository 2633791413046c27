"""The variables of an operator that reach processes with users' code: an allow-list, so no secret is among them."""

from collections.abc import Mapping

__all__ = [
    "NCCL_RECOVERIES",
    "NCCL_RECOVERY",
    "NCCL_STATE",
    "NCCL_STATES",
    "fabric_variables",
    "inherited_environment",
]

#: Variable with what becomes of NCCL's communicator after a death, and its values, the default first.
NCCL_RECOVERY = "TIDEPOOL_NCCL_RECOVERY"
NCCL_RECOVERIES = ("shrink", "abort", "process")
#: Variable with the way by which the state reaches new GPUs, and its values, the default first.
NCCL_STATE = "TIDEPOOL_NCCL_STATE"
NCCL_STATES = ("broadcast", "sockets")

_NAMES = {
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH"),
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PYTORCH_NVML_BASED_CUDA_CHECK", "TIDEPOOL_FAULT"),
    *("FABRIC_HOME", "PYTHONNOUSERSITE", NCCL_RECOVERY, NCCL_STATE),
}
#: Beginnings of the variables of NCCL, UCX and libfabric: they say how the GPUs of this host reach others.
_FABRIC = ("NCCL_", "UCX_", "FI_")


def inherited_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the part of the environment that a process with users' code may see."""
    return {name: value for name, value in environment.items() if name in _NAMES or name.startswith(("LC_", *_FABRIC))}


def fabric_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the operator's variables of NCCL, UCX and libfabric."""
    return {name: value for name, value in environment.items() if name.startswith(_FABRIC)}
