import pytest

from core.errors import UserError
from core.parameters import checked_parameters


def test_scalars_pass():
    parameters = {"epochs": 5, "lr": 0.01, "batch-size": 8, "optimizer": "sgd", "verbose": True, "optimizer.lr": 0.1}
    assert checked_parameters(parameters) == parameters


@pytest.mark.parametrize(
    "parameters",
    [
        None,
        [],
        "epochs",
        {"": 1},
        {"-x": 1},
        {"a b": 1},
        {"a;rm": 1},
        {"x" * 65: 1},
        {"a": None},
        {"a": [1]},
        {"a": {"b": 1}},
        {"a": float("nan")},
        {"a": float("inf")},
        {"a": 10**20},
        {"a": 10**400},
        {"a": -(10**400)},
        {"a": "x\0y"},
        {"a": "\ud800"},
        {"a": "x" * 5000},
        {f"p{n}": n for n in range(101)},
    ],
)
def test_everything_else_is_refused_at_its_field(parameters):
    with pytest.raises(UserError) as caught:
        checked_parameters(parameters)
    assert list(caught.value.fields) == ["parameters"]
    assert caught.value.message.isprintable()
