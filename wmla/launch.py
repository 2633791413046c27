"""Environment variables that scripts for WMLA expect."""

import os
from pathlib import Path

from django.conf import settings
from tidepool.wmla_environment import COMPAT, DRIVER

from jobs.models import Job
from wmla.identifiers import identities, submitted

__all__ = ["launch_environment"]


def launch_environment(job: Job) -> dict[str, str]:
    """Return the variables; empty for other scripts. Needs the job's owner, model and dataset."""
    if COMPAT not in job.model.compat:
        return {}
    ids, names, path = (
        identities(),
        submitted(job),
        job.dataset.path if job.dataset else str(settings.TIDEPOOL_DATA_ROOTS[0]),
    )
    # The data root that contains this dataset, or otherwise the dataset's own folder.
    data = next((str(root) for root in settings.TIDEPOOL_DATA_ROOTS if Path(path).is_relative_to(root)), path)
    below = os.path.relpath(path, data)
    return {
        DRIVER: ids.driver_id(names),
        "DLI_EXECID": ids.exec_id(names),
        "DLI_DATA_FS": data,
        "DLI_RESULT_FS": str(settings.TIDEPOOL_RESULTS_ROOT),
        "DLI_CS_DATASTORE_META": f"type=fs,data_path={'' if below == '.' else below}",
    }
