"""The place of a process in its training, and of its files, by AdaptDL's names.

On a cluster ranks come and go, so `replica_rank` and `num_replicas` may answer something else from one batch to the
next. Until its training begins, a process there is alone: replica 0 of 1.
"""

from tidepool.env import adaptdl_variable

from adaptdl._training import training

__all__ = [
    "adaptdl_sched_version",
    "checkpoint_path",
    "from_ray",
    "job_id",
    "master_addr",
    "master_port",
    "num_nodes",
    "num_replicas",
    "num_restarts",
    "replica_rank",
    "share_path",
    "supervisor_url",
]


def checkpoint_path() -> str | None:
    return adaptdl_variable("CHECKPOINT_PATH")


def share_path() -> str | None:
    """Return a folder that all replicas see: on a cluster that of the code, unless ADAPTDL_SHARE_PATH names another."""
    return adaptdl_variable("SHARE_PATH")


def job_id() -> str | None:
    return adaptdl_variable("JOB_ID")


def master_addr() -> str:
    return adaptdl_variable("MASTER_ADDR") or "0.0.0.0"  # noqa: S104 - nothing is bound to it


def master_port() -> int:
    return int(adaptdl_variable("MASTER_PORT") or 0)


def replica_rank() -> int:
    """On a cluster, before the training begins: 0, in one process after the other until the first has come through.

    It has, when it comes to a barrier or to its training: files that replica 0 prepares are there for the others then.
    """
    training().wait_for_turn()
    return training().rank


def num_nodes() -> int:
    return training().hosts


def num_replicas() -> int:
    return training().size


def num_restarts() -> int:
    """Changes of the replicas so far."""
    return training().restarts


def adaptdl_sched_version() -> None:
    """No scheduler of AdaptDL is here."""


def supervisor_url() -> None:
    """No scheduler of AdaptDL is here."""


def from_ray() -> bool:
    return False
