"""Environment of the ranks of a script for WMLA: what it expects to know of the installation."""

from __future__ import annotations

import os
from pathlib import Path

from django.conf import settings
from tidepool.wmla import COMPAT, DRIVER

from jobs.models import Job
from wmla.lookup import identities, submitted

__all__ = ["launch_environment"]


def launch_environment(job: Job) -> dict[str, str]:
    """Return the variables; none for other scripts. Needs the job's owner, model and dataset."""
    if COMPAT not in job.model.compat:
        return {}
    ids, names = identities(), submitted(job)
    data = _data_root(job.dataset.path)
    return {
        DRIVER: ids.driver_id(names),
        "DLI_EXECID": ids.exec_id(names),
        "DLI_DATA_FS": data,
        "DLI_RESULT_FS": str(settings.TIDEPOOL_RESULTS_ROOT),
        "DLI_CS_DATASTORE_META": f"type=fs,data_path={_below(job.dataset.path, data)}",
    }


def _below(path: str, top: str) -> str:
    """Return the folder as `data_path` names it; "" for the whole data folder."""
    relative = os.path.relpath(path, top)
    return "" if relative == "." else relative


def _data_root(path: str) -> str:
    """Return the data root that holds this dataset, or else the dataset's own folder."""
    roots = [str(root) for root in settings.TIDEPOOL_DATA_ROOTS if Path(path).is_relative_to(root)]
    return roots[0] if roots else path
