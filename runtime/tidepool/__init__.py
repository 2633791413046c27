"""Tidepool: the client of a cluster, and what training scripts and executors share.

    import tidepool

    job = tidepool.submit("train.py", "--epochs", "5")
    for line in job.logs(follow=True):
        print(line)

Names below are loaded when they are first used: importing this loads neither torch nor what speaks HTTP.
"""

from importlib import import_module

from tidepool.version import VERSION

__version__ = VERSION

#: Stand-in for `typing.TYPE_CHECKING`, whose import takes longer than this whole module; type checkers know the name.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from tidepool.client.api import Client
    from tidepool.client.default import datasets, job, jobs, models, studies, study, study_from_nni, submit
    from tidepool.client.errors import (
        Conflict,
        InvalidRequest,
        JobFailed,
        MissingPackage,
        NotAllowed,
        NotFound,
        NotLoggedIn,
        TidepoolError,
        Unreachable,
        WrongVersion,
    )
    from tidepool.client.studies import Study, log_uniform, uniform, whole
    from tidepool.client.training import Job
    from tidepool.own_cores import cores, loader_workers
    from tidepool.trial_parameters import trial

__all__ = [
    "Client",
    "Conflict",
    "InvalidRequest",
    "Job",
    "JobFailed",
    "MissingPackage",
    "NotAllowed",
    "NotFound",
    "NotLoggedIn",
    "Study",
    "TidepoolError",
    "Unreachable",
    "WrongVersion",
    "cores",
    "datasets",
    "job",
    "jobs",
    "loader_workers",
    "log_uniform",
    "models",
    "studies",
    "study",
    "study_from_nni",
    "submit",
    "trial",
    "uniform",
    "whole",
]

#: Names that the module of errors does not have -> the module below `tidepool` that does.
_MODULES = {
    "Client": "client.api",
    "Job": "client.training",
    "cores": "own_cores",
    "loader_workers": "own_cores",
    "trial": "trial_parameters",
    **dict.fromkeys(("Study", "log_uniform", "uniform", "whole"), "client.studies"),
    **dict.fromkeys(
        ("datasets", "job", "jobs", "models", "studies", "study", "study_from_nni", "submit"), "client.default"
    ),
}


def load_ipython_extension(shell: object) -> None:
    """`%load_ext tidepool`."""
    from tidepool.notebook.magics import register

    register(shell)


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'tidepool' has no attribute {name!r}")
    found: object = getattr(import_module(f"tidepool.{_MODULES.get(name, 'client.errors')}"), name)
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
