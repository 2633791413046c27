"""Print what the services said, beside a test of theirs that failed: their folder is gone afterwards."""

from collections.abc import Generator

import pytest

from tests.docker.containers import Containers
from tests.docker.local_services import LocalServices


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if not report.failed:
        return report
    given = getattr(item, "funcargs", {})
    services, site = given.get("services"), given.get("site")
    if isinstance(services, LocalServices):
        report.sections += [(f"log of {name}", services.log(name)) for name in services.logs()]
    if isinstance(site, Containers):
        report.sections += [(f"log of {name}", log[-3000:]) for name, log in site.logs()]
    return report
