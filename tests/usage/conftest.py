from tests.jobs.conftest import cluster, code, given, group, submit

__all__ = ["cluster", "code", "given", "group", "submit"]
