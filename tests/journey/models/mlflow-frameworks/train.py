"""Trains something small by one framework, with not a word of MLflow but for `--log-model`."""

import argparse
import json
from importlib.metadata import version

parser = argparse.ArgumentParser()
parser.add_argument("--framework", choices=("scikit-learn", "xgboost", "lightning", "transformers"), required=True)
parser.add_argument("--log-model", type=int, default=0, help="1: log the model of scikit-learn to MLflow")
options = parser.parse_args()


def scikit_learn() -> None:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=0.5).fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1])
    if options.log_model:
        import mlflow

        mlflow.sklearn.log_model(model, name="model")


def xgboost() -> None:
    import numpy as np
    import xgboost as xgb

    data = xgb.DMatrix(np.array([[0.0], [1.0], [2.0], [3.0]]), label=[0, 0, 1, 1])
    xgb.train({"objective": "binary:logistic", "max_depth": 2}, data, num_boost_round=5, evals=[(data, "train")])


def lightning() -> None:
    import lightning as L
    import torch

    class Line(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
            loss = torch.nn.functional.mse_loss(self.layer(batch[0]), batch[0])
            self.log("train_loss", loss, on_epoch=True, on_step=False)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    data = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.arange(8.0).reshape(8, 1) / 8), batch_size=4
    )
    L.Trainer(max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False, log_every_n_steps=1).fit(
        Line(), data
    )


def transformers() -> None:
    import torch
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    model = BertForSequenceClassification(BertConfig(vocab_size=16, max_position_embeddings=8, **sizes))
    rows = [{"input_ids": torch.tensor([1, 2, 3, n]), "labels": n % 2} for n in range(8)]
    arguments = TrainingArguments(
        output_dir="trainer", num_train_epochs=3, per_device_train_batch_size=4, logging_steps=1, save_strategy="no"
    )
    Trainer(model, arguments, train_dataset=rows).train()


{"scikit-learn": scikit_learn, "xgboost": xgboost, "lightning": lightning, "transformers": transformers}[
    options.framework
]()
print(json.dumps({options.framework: version(options.framework)}))
