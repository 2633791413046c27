"""`pyspark.ml.torch.distributor` of Tidepool, where pyspark is not installed.

Besides, only types are here that MLflow compares values with once it finds pyspark loaded. No value has them.
"""


def __getattr__(name: str) -> object:
    raise AttributeError(
        f"pyspark.{name}: pyspark is not installed. Tidepool stands in for pyspark.ml.torch.distributor alone; for the "
        "rest, `pip install pyspark`."
    )
