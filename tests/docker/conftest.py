"""Print what the services said, beside a test of theirs that failed: their folder is gone afterwards."""

from collections.abc import Generator

import pytest

from tests.docker.local_services import LocalServices


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    services = getattr(item, "funcargs", {}).get("services")
    if report.failed and isinstance(services, LocalServices):
        report.sections += [(f"log of {name}", services.log(name)) for name in services.logs()]
    return report
