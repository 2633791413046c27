"""The site hands out its own client, which works where nothing but the wheel is installed."""

import html
import io
import re
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from tidepool.version import VERSION, VERSION_HEADER

from tests.scene import Scene
from tests.tracking.clients import CLIENTS
from webapp.wheel import WHEEL

pytestmark = pytest.mark.django_db

ADDRESS = f"/ui/tools/{WHEEL}.whl"


def test_anybody_can_download_it_and_it_is_whole(client: Client) -> None:
    answer = client.get(ADDRESS)
    assert (answer.status_code, answer["Content-Disposition"]) == (200, f'attachment; filename="{WHEEL}.whl"')
    with zipfile.ZipFile(io.BytesIO(answer.content)) as wheel:
        names = wheel.namelist()
        metadata = wheel.read(f"tidepool_runtime-{VERSION}.dist-info/METADATA").decode()
        programs = wheel.read(f"tidepool_runtime-{VERSION}.dist-info/entry_points.txt").decode()
    assert {f"tidepool/{name}" for name in ("client/api.py", "cli/app.py", "py.typed", "torch/rank/session.py")} <= set(
        names
    )
    besides = [name for name in names if not name.startswith(("tidepool/", "tidepool_runtime-"))]
    assert besides == ["tidepool_runtime.pth"], "a package of another project could be overwritten"
    assert "tidepool = tidepool.cli:main" in programs
    required = re.findall(r"^Requires-Dist: (.*)$", metadata, re.MULTILINE)
    names = {re.split("[<>=]", line)[0] for line in required if "extra" not in line}
    assert names == {"click", "cloudpickle", "rich"}
    [series] = [
        line.removesuffix(".*") for line in required if line.startswith("cloudpickle==") and "extra" not in line
    ]
    assert f"cloudpickle=={version('cloudpickle')}".startswith(f"{series}."), "that of the ranks"


def test_it_is_fetched_once(client: Client) -> None:
    tag = client.get(ADDRESS)["ETag"]
    assert client.get(ADDRESS, headers={"If-None-Match": tag}).status_code == 304


def test_another_version_is_not_there(client: Client) -> None:
    assert client.get("/ui/tools/tidepool_runtime-0.0.1-py3-none-any.whl").status_code == 404


def test_the_page_shows_the_lines_with_the_sites_address(alices: Client) -> None:
    page = alices.get("/account/connect/")
    assert page.context["install"] == f"pip install http://testserver{ADDRESS}"
    assert page.context["install_for_scripts"] == (
        f'pip install "tidepool-runtime[torch] @ http://testserver{ADDRESS}"'
    )
    assert page.context["login"] == "tidepool login http://testserver"


def test_with_mlflow_the_page_has_the_lines_for_its_client(alices: Client, settings: Any) -> None:
    assert b"login --mlflow" not in alices.get("/account/connect/").content
    settings.TIDEPOOL_MLFLOW_SOCKET = "/nowhere/server.sock"
    page = html.unescape(alices.get("/account/connect/").content.decode())
    installed = f"pip install 'mlflow-skinny=={CLIENTS[0].rpartition('.')[0]}.*' pandas"
    assert f'{installed}\neval "$(tidepool login --mlflow)"' in page


def test_the_wheel_alone_is_enough(client: Client, tmp_path: Path) -> None:
    """Unpacked in a folder, with only what it requires beside it: nothing of torch or of this checkout is imported."""
    with zipfile.ZipFile(io.BytesIO(client.get(ADDRESS).content)) as wheel:
        wheel.extractall(tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "for name in ('torch', 'numpy', 'msgspec', 'psutil', 'safetensors', 'setproctitle', 'django', 'pandas'):\n"
        "    sys.modules[name] = None\n"
        "import tidepool\n"
        f"assert tidepool.__file__.startswith({str(tmp_path)!r}), tidepool.__file__\n"
        "from tidepool.cli.app import COMMANDS, cli, run\n"
        "import click\n"
        "assert all(cli.get_command(click.Context(cli), name) for name in COMMANDS)\n"
        "assert [getattr(tidepool, name) for name in tidepool.__all__]\n"
        "sys.exit(run(['ps']))\n"
    )
    environment = {"XDG_CONFIG_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    found = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (found.returncode, found.stdout) == (3, ""), found.stderr


def test_the_account_leads_to_it(alices: Client, scene: Scene) -> None:
    assert b"/account/connect/" in alices.get("/account/").content


def test_the_site_tells_its_version_even_to_strangers_whose_wheel_does_not_fit(client: Client) -> None:
    answer = client.get("/api/v1/me/")
    assert (answer.status_code, answer[VERSION_HEADER]) == (401, VERSION)
    assert VERSION_HEADER not in client.get("/login/")
