"""Every training as a run in MLflow, where its server is installed: the server, our proxy before it, and the mirror.

Only webapp imports it. Without `TIDEPOOL_MLFLOW_SOCKET` nothing of it does anything.
"""
