"""A container image with Debian's Python, torch and numpy 1, and a registry from which hosts pull it over HTTP."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final

from uv import find_uv_bin

__all__ = ["can_make_images", "made", "served"]

_NAME: Final = "localhost/tidepool-test-image"
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"


def can_make_images() -> bool:
    return os.geteuid() == 0 and all(map(shutil.which, ("podman", "mmdebstrap")))


def made(folder: Path) -> str:
    """Return the name of the image, which podman has. folder: for what it is made of, unless podman has it already."""
    if subprocess.run(["podman", "image", "exists", _NAME]).returncode != 0:
        root, packages = folder / "root.tar", folder / "context" / "packages"
        subprocess.run(["mmdebstrap", "-q", "--variant=minbase", "--include=python3", "bookworm", root], check=True)
        python = ["--python-version", "3.11", "--only-binary", ":all:", "--target", str(packages)]
        subprocess.run([find_uv_bin(), "pip", "install", "-q", *python, "torch==2.13.0", "numpy<2"], check=True)
        subprocess.run(["podman", "import", "-q", root, f"{_NAME}-base:1"], check=True)
        file = packages.with_name("Dockerfile")
        file.write_text(f"FROM {_NAME}-base:1\nCOPY packages /usr/lib/python3/dist-packages\n")
        subprocess.run(["podman", "build", "-q", "-t", _NAME, packages.parent], check=True)
    told = ["podman", "image", "inspect", "--format", "{{.Digest}}", _NAME]
    digest = subprocess.run(told, check=True, capture_output=True, text=True).stdout.strip()
    return f"{_NAME}@{digest}"


@contextmanager
def served(image: str, folder: Path) -> Iterator[str]:
    """Serve an image that podman has. Yields its name with the registry's address and its digest.

    folder: gets the image's layers.
    """
    subprocess.run(["podman", "save", "--quiet", "--format=oci-dir", f"--output={folder}", image], check=True)
    [manifest] = json.loads(folder.joinpath("index.json").read_text())["manifests"]
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Answer, folder / "blobs")) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"localhost:{server.server_port}/image@{manifest['digest']}"
        server.shutdown()
        thread.join()


class _Answer(BaseHTTPRequestHandler):
    """The part of the distribution specification by which clients pull: manifests and blobs by their digest."""

    def __init__(self, blobs: Path, *rest: Any) -> None:
        self._blobs = blobs
        super().__init__(*rest)

    def do_GET(self) -> None:
        self._answer(has_body=True)

    def do_HEAD(self) -> None:
        self._answer(has_body=False)

    def log_message(self, *_: object) -> None:
        """Leave the log of requests out."""

    def _answer(self, *, has_body: bool) -> None:
        if self.path == "/v2/":
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        *_, kind, digest = self.path.split("/")
        blob = self._blobs.joinpath(*digest.split(":"))
        if not blob.is_file():
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Type", _MANIFEST if kind == "manifests" else "application/octet-stream")
        self.send_header("Content-Length", str(blob.stat().st_size))
        self.send_header("Docker-Content-Digest", digest)
        self.end_headers()
        if has_body:
            with blob.open("rb") as file:
                shutil.copyfileobj(file, self.wfile)
