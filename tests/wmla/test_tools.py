import ast
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from tests.test_architecture import ROOT
from tests.wmla.commandline import TOKEN, Command
from tests.wmla.recorded import BASE, Answer, recorded_server
from webapp.embedded.certificate import CertificateFiles, ensure_certificate

ADDRESS = "/ui/tools/dlicmd.py"

pytestmark = pytest.mark.django_db


def test_the_program_is_handed_out_without_a_log_in(client: Client) -> None:
    answer = client.get(ADDRESS)
    assert answer.status_code == 200
    assert answer.content == (ROOT / "wmla/dlicmd.py").read_bytes()
    assert answer["Content-Type"] == "text/x-python; charset=utf-8"
    assert answer["Content-Disposition"] == 'attachment; filename="dlicmd.py"'
    assert answer["X-Content-Type-Options"] == "nosniff"


def made_certificate(home: Path) -> CertificateFiles:
    home.mkdir()
    return ensure_certificate(home, ["127.0.0.1"], datetime.now(UTC))


def test_it_trusts_the_certificate_of_the_site_that_hands_it_out(client: Client, settings: Any, tmp_path: Path) -> None:
    """Run it as IBM's self-test does: it names no certificate, neither to log on nor afterwards."""
    before = client.get(ADDRESS)
    site, another = (made_certificate(tmp_path / name) for name in ("site", "another"))
    settings.TIDEPOOL_CERTIFICATE_FILE = site.public
    answer = client.get(ADDRESS)
    assert answer["ETag"] != before["ETag"]
    ast.parse(answer.content, feature_version=(3, 8))

    program = tmp_path / "dlicmd.py"
    program.write_bytes(answer.content)
    command = Command(tmp_path, program)
    answers = {("GET", "/auth/v1/logon"): Answer({"accessToken": TOKEN}), ("GET", f"{BASE}/status"): Answer({})}
    with recorded_server(answers, certificate=site.server) as server:
        where = ["--rest-host", server.address.removeprefix("https://")]
        command("--logon", *where, "--username", "admin", "--password", "x")
        command("--status", *where)
    with recorded_server(answers, certificate=another.server) as other:
        said = command("--status", "--rest-host", other.address, "--jwt-token", "t", code=1).stderr
        assert ("is not trusted" in said, other.asked) == (True, [])


def test_who_has_it_is_not_sent_it_again(client: Client) -> None:
    tag = client.get(ADDRESS)["ETag"]
    again = client.get(ADDRESS, headers={"If-None-Match": tag})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get(ADDRESS, headers={"If-None-Match": '"another"'}).status_code == 200


def test_it_is_read_only(client: Client) -> None:
    assert client.post(ADDRESS).status_code == 405


def test_it_is_one_file_of_the_standard_library_for_python_3_8() -> None:
    program = (ROOT / "wmla/dlicmd.py").read_text()
    tree = ast.parse(program, feature_version=(3, 8))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} - sys.stdlib_module_names == set()
    assert len(program.splitlines()) < 1000, "it is split by its headings; keep it readable"
