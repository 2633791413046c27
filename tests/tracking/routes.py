"""The addresses that the pinned MLflow answers, as its own process tells them."""

import json
import os
import re
import subprocess
from pathlib import Path

from tests.tracking.clients import SERVER_PYTHON
from tracking.launch import auth_config, launch_input

__all__ = ["OPEN_ROUTES", "routes_of_server"]

#: Routes that the proxy lets through: those that a new version adds are reviewed before they are open.
OPEN_ROUTES = Path(__file__).with_name("open_routes.txt")
_ASK = """
import json, os, sys
os.environ.update(json.load(sys.stdin)["variables"])
from mlflow.server.auth import create_app
from mlflow.server import app
found = {(method, rule.rule) for rule in app.url_map.iter_rules() for method in rule.methods}
pending = list(create_app().routes)
while pending:
    route = pending.pop()
    pending += getattr(route, "routes", None) or []
    found |= {(method, route.path) for method in getattr(route, "methods", None) or []}
print(json.dumps(sorted(found)))
"""
_PART = re.compile(r"[<{][^>}]*[>}]")


def routes_of_server(folder: Path) -> set[tuple[str, str]]:
    """(method, address); a part that is a name stands there as `x`."""
    config = folder / "auth.ini"
    config.write_text(auth_config(f"sqlite:///{folder}/auth.sqlite3"))
    done = subprocess.run(
        [SERVER_PYTHON, "-W", "ignore", "-c", _ASK],
        input=launch_input(folder / "socket", f"sqlite:///{folder}/mlflow.sqlite3", config).replace(
            "__main__:authenticate", "mlflow.server.auth:authenticate_request_basic_auth"
        ),
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    found = json.loads(done.stdout.splitlines()[-1])
    return {(method, _PART.sub("x", path)) for method, path in found if method not in ("HEAD", "OPTIONS")}
