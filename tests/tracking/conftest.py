import pytest

from tests.tracking.fake_mlflow import FakeMlflow


@pytest.fixture
def mlflow(settings, monkeypatch):
    """A site that has MLflow."""
    settings.TIDEPOOL_MLFLOW_SOCKET = "/nowhere/server.sock"
    settings.TIDEPOOL_MLFLOW_URL = "http://127.0.0.1:8000/mlflow"
    from tracking import token_reach
    from tracking.upstream import MlflowServer

    fake = FakeMlflow()
    monkeypatch.setattr(token_reach, "MlflowServer", lambda: MlflowServer(fake.transport))
    monkeypatch.setattr(token_reach, "_runs", {})
    monkeypatch.setattr(token_reach, "_related", set())
    monkeypatch.setattr("tracking.authentication._known", {})
    return fake
