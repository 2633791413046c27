"""`from pyspark.ml.torch.distributor import TorchDistributor`, on this cluster."""

from tidepool.distributor import TorchDistributor

__all__ = ["TorchDistributor"]
