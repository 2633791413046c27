"""Type of a vector in pyspark: MLflow asks for it in tables that are evaluated."""

__all__ = ["Vector"]


class Vector:
    pass
