"""The client as a wheel, which this site hands out: what it serves always fits it.

Built of `runtime/tidepool` when it is first asked for, once by each process of the web: nobody has to remember to build
it after an upgrade. It holds no secret and is the same for everybody.
"""

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import condition, require_safe
from tidepool.version import VERSION

from jobs.actions.mlflow_client import MLFLOW_CLIENT

__all__ = ["WHEEL", "built_wheel", "client_wheel", "connect"]

#: Name of the wheel without the suffix; pip reads the version in it.
WHEEL = f"tidepool_runtime-{VERSION}-py3-none-any"
_BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "wmla")
_BUILD_SECONDS = 120
#: A moment that a zip file can hold, so that the same files are the same wheel.
_SOURCE_DATE = "1577836800"


@cache
def built_wheel() -> bytes:
    """Return the wheel's bytes. Raises CalledProcessError where setuptools fails."""
    with TemporaryDirectory(prefix="tidepool-wheel-") as scratch:
        copy = Path(scratch) / "runtime"
        # Setuptools writes beside what it builds of, where the site may not.
        shutil.copytree(settings.BASE_DIR / "runtime", copy, ignore=_LEFT_OUT)
        subprocess.run(
            [sys.executable, "-c", _BUILD, scratch],
            cwd=copy,
            env={"PATH": os.defpath, "SOURCE_DATE_EPOCH": _SOURCE_DATE},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_BUILD_SECONDS,
            check=True,
        )
        return (Path(scratch) / f"{WHEEL}.whl").read_bytes()


@require_safe
@condition(etag_func=lambda request, wheel: f'"{hashlib.sha256(built_wheel()).hexdigest()}"')
def client_wheel(request: HttpRequest, wheel: str) -> HttpResponse:
    """Download the client. It needs no log-in: pip has none."""
    if wheel != WHEEL:
        raise Http404
    headers = {"Content-Disposition": f'attachment; filename="{WHEEL}.whl"'}
    return HttpResponse(built_wheel(), content_type="application/octet-stream", headers=headers)


@require_safe
def connect(request: HttpRequest) -> HttpResponse:
    """Return the lines to paste into a shell and a notebook."""
    site = request.build_absolute_uri("/").rstrip("/")
    wheel = f"{site}{reverse('client-wheel', args=[WHEEL])}"
    context = {
        "section": "account",
        "crumbs": [("Your account", reverse("account")), ("Connect", None)],
        "site": site,
        "install": f"pip install {wheel}",
        "install_for_scripts": f'pip install "tidepool-runtime[torch] @ {wheel}"',
        "has_mlflow": bool(settings.TIDEPOOL_MLFLOW_SOCKET),
        "mlflow_client": " ".join(shlex.quote(line) for line in MLFLOW_CLIENT),
        "login": f"tidepool login {site}",
        "version": VERSION,
    }
    return render(request, "connect.html", context)
