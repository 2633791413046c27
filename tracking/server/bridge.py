"""Runs MLflow's server in its own virtual environment, and tells it who asks. Imports nothing of Tidepool.

`manage.py serve_mlflow` starts it. Its standard input holds JSON: `socket`, where it listens; `proof`, a secret; and
`variables`, MLflow's settings, some of them secret: they become this process's environment here, where /proc does not
show them.

A request says on whose behalf it is sent in a header, and by the proof that Tidepool sent it. MLflow's auth app decides
what that user may do.
"""

import hmac
import json
import os
import secrets
import sys
import threading
from typing import Any
from urllib.parse import unquote

__all__ = ["authenticate", "main"]

PROOF, USER, ADMIN = "X-Tidepool-Proof", "X-Tidepool-User", "X-Tidepool-Admin"

#: Packages that pandas imports where it finds them: 36 MB, for kinds of files that this server does not read.
_LEFT_OUT = ("pyarrow",)

_proof = secrets.token_hex(32)
#: User -> whether MLflow knows the user as an administrator.
_known: dict[str, bool] = {}
_making = threading.Lock()


def authenticate() -> Any:
    """Return the user of the present request of Flask, as MLflow's `authorization_function` does; 401 for strangers."""
    from flask import Response, request
    from werkzeug.datastructures import Authorization

    user = unquote(request.headers.get(USER, ""))
    if not user or not hmac.compare_digest(request.headers.get(PROOF, "").encode(), _proof.encode()):
        return Response("Log in with Tidepool.", 401)
    is_admin = request.headers.get(ADMIN) == "1"
    if _known.get(user) is not is_admin:
        _remember(user, is_admin)
    return Authorization("basic", {"username": user, "password": ""})


def _remember(user: str, is_admin: bool) -> None:
    """Have MLflow know the user; nobody can log in by the password."""
    from mlflow.server.auth import store

    with _making:
        if store.has_user(user):
            store.update_user(user, is_admin=is_admin)
        else:
            store.create_user(user, secrets.token_urlsafe(32), is_admin=is_admin)
        _known[user] = is_admin


def main() -> None:
    global _proof
    launch = json.load(sys.stdin)
    _proof = launch["proof"]
    os.environ.update(launch["variables"])
    for name in _LEFT_OUT:
        sys.modules[name] = None  # type: ignore[assignment]  # as if it were not installed

    import uvicorn
    from mlflow.server.auth import create_app
    from mlflow.server.handlers import initialize_backend_stores

    app = create_app()
    # Otherwise the first request would wait for the tables to be made.
    initialize_backend_stores()
    uvicorn.run(app, uds=launch["socket"], log_level="warning", access_log=False, timeout_graceful_shutdown=3)


if __name__ == "__main__":
    main()
