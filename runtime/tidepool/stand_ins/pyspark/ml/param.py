"""Type of a parameter's key in pyspark: MLflow asks for it with each parameter that is logged."""

__all__ = ["Param"]


class Param:
    pass
