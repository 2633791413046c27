"""The provider of oidc_provider.py as a running process, and what it means for the site."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

ROOT = Path(__file__).resolve().parents[3]
TABLE = """
[[groups]]
group = "gpu-admins"
role = "cluster_admin"

[[groups]]
group = "vision"
role = "data_scientist"
instance_groups = ["vision"]

[[groups]]
group = "vision-leads"
role = "data_scientist"
instance_groups = ["vision"]
administers = ["vision"]

[[groups]]
group = "guests"
role = "viewer"
"""
ADA = {"sub": "4711", "preferred_username": "ada", "groups": ["vision"], "sid": "session-1"}


@dataclass
class RunningProvider:
    issuer: str

    def set(self, **wanted: Any) -> None:
        """Set the person who logs in, the mistake, and what userinfo says; what is not given is as usual."""
        httpx.post(f"{self.issuer}/control", json=wanted).raise_for_status()

    def sign_out(self, site: str, **claims: Any) -> dict[str, Any]:
        asked = {"to": f"{site}/login/oidc/logout/", "claims": claims}
        answer: dict[str, Any] = httpx.post(f"{self.issuer}/sign-out", json=asked).raise_for_status().json()
        return answer


@contextmanager
def running_provider() -> Iterator[RunningProvider]:
    command = [sys.executable, "-m", "tests.accounts.organization.oidc_provider"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield RunningProvider(process.stdout.readline().strip())
        finally:
            process.kill()
