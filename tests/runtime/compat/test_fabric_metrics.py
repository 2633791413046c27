"""Names of the metrics that FabricModel records."""

import pytest
import torch

from tests.runtime.compat.test_fabric_hooks import NewRecorder, first_class, trained


def test_metrics_with_a_name_that_is_taken_are_kept_apart() -> None:
    """A script's own accuracy is a fraction; the one that is recorded anyway is in percent."""

    def accuracy(outputs: torch.Tensor, labels: torch.Tensor) -> float:
        return float((outputs.argmax(1) == labels).float().mean())

    def loss(outputs: torch.Tensor, labels: torch.Tensor) -> float:
        return -1.0

    logger = NewRecorder()
    trained(1, driver_logger_callback=logger, metrics=[accuracy, first_class, loss, first_class])
    for metrics, *_ in logger.train:
        assert set(metrics) == {"loss", "accuracy", "accuracy_2", "first_class", "loss_2", "first_class_2"}
        assert metrics["accuracy"] == pytest.approx(100 * metrics["accuracy_2"])
        assert (metrics["loss"] > 0, metrics["loss_2"]) == (True, -1.0)
