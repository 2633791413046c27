"""`pyspark.ml.torch.distributor` of Tidepool, where pyspark is not installed. Nothing else of pyspark is here."""


def __getattr__(name: str) -> object:
    raise AttributeError(
        f"pyspark.{name}: pyspark is not installed. Tidepool stands in for pyspark.ml.torch.distributor alone; for the "
        "rest, `pip install pyspark`."
    )
