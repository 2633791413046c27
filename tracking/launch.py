"""Launch of MLflow's server: its settings, its database, and the secret that authenticates the proxy."""

import json
import secrets
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from django.conf import settings
from django.utils.crypto import salted_hmac

__all__ = [
    "PREFIX",
    "SERVER_USER",
    "artifact_root",
    "auth_config",
    "launch_input",
    "proof",
    "storage_folder",
    "store_uri",
]

#: The path below which the site shows MLflow.
PREFIX = "/mlflow"
#: Tidepool itself, among MLflow's users; no user can have the name.
SERVER_USER = "tidepool:server"
_SCHEMA = "mlflow"


def proof() -> str:
    """The secret that the server and those who may speak to it share; who reads the site's key can work it out."""
    return salted_hmac("tracking.proof", "", secret=settings.SECRET_KEY, algorithm="sha256").hexdigest()


def storage_folder() -> Path:
    return Path(settings.TIDEPOOL_HOME) / "mlflow"


def artifact_root() -> Path:
    return storage_folder() / "artifacts"


def store_uri(database: dict[str, Any], file: Path) -> str:
    """SQLAlchemy's address of the store: `file`, or where the site uses PostgreSQL a schema of that database."""
    if not str(database["ENGINE"]).endswith("postgresql"):
        return f"sqlite:///{file}"
    user = f"{quote(database['USER'], safe='')}:{quote(database['PASSWORD'], safe='')}@" if database["USER"] else ""
    place = f"{database['HOST']}:{database['PORT']}" if database["PORT"] else database["HOST"]
    kept = {name: value for name, value in database["OPTIONS"].items() if name in ("sslmode", "sslrootcert", "host")}
    options = urlencode({**kept, "options": f"-csearch_path={_SCHEMA}"})
    return f"postgresql+psycopg://{user}{place}/{quote(database['NAME'], safe='')}?{options}"


def auth_config(uri: str) -> str:
    """MLflow's file of settings for who may do what. It may hold the password of the database."""
    lines = {
        "default_permission": "NO_PERMISSIONS",
        "database_uri": uri.replace("%", "%%"),
        "admin_username": SERVER_USER,
        "authorization_function": "__main__:authenticate",
    }
    return "[mlflow]\n" + "".join(f"{name} = {value}\n" for name, value in lines.items())


def launch_input(socket: Path, uri: str, config: Path) -> str:
    """Build the input of `tracking/server/bridge.py`. Names that begin with _ are MLflow's own, as of 3.17.2."""
    variables = {
        "_MLFLOW_SERVER_FILE_STORE": uri,
        "_MLFLOW_SERVER_ARTIFACT_ROOT": "mlflow-artifacts:/",
        "_MLFLOW_SERVER_ARTIFACT_DESTINATION": str(artifact_root()),
        "_MLFLOW_SERVER_SERVE_ARTIFACTS": "true",
        "_MLFLOW_STATIC_PREFIX": PREFIX,
        "_MLFLOW_SGI_NAME": "uvicorn",
        "MLFLOW_AUTH_CONFIG_PATH": str(config),
        "MLFLOW_AUTH_ADMIN_PASSWORD": secrets.token_urlsafe(32),
        "MLFLOW_FLASK_SERVER_SECRET_KEY": secrets.token_urlsafe(32),
        "MLFLOW_BASIC_AUTH_FAIL_CLOSED": "true",
        "MLFLOW_SERVER_ENABLE_GRAPHQL_AUTH": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
    }
    return json.dumps({"socket": str(socket), "proof": proof(), "variables": variables})
