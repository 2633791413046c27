"""Type of a table in pyspark: MLflow asks for it in data that are evaluated."""

__all__ = ["DataFrame"]


class DataFrame:
    pass
