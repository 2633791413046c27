from tests.jobs.api.conftest import alices_job, group, submission

__all__ = ["alices_job", "group", "submission"]
