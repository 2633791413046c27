import ast
import sys

import pytest
from django.test import Client

from tests.test_architecture import ROOT

ADDRESS = "/ui/tools/dlicmd.py"

pytestmark = pytest.mark.django_db


def test_the_program_is_handed_out_without_a_log_in(client: Client) -> None:
    answer = client.get(ADDRESS)
    assert answer.status_code == 200
    assert answer.content == (ROOT / "wmla/dlicmd.py").read_bytes()
    assert answer["Content-Type"] == "text/x-python; charset=utf-8"
    assert answer["Content-Disposition"] == 'attachment; filename="dlicmd.py"'
    assert answer["X-Content-Type-Options"] == "nosniff"


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
    assert len(program.splitlines()) < 900, "it is split by its headings; keep it readable"
