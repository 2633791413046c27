"""Check that settings reach a script only where the script asks for them."""

import pytest

from core.errors import UserError
from models_registry.code_inspection import inspect_code
from models_registry.model_settings import SETTINGS, checked_settings, setting_uses
from models_registry.script_declarations import Argument


def _given(settings, *arguments):
    return {each.argument: each.given for each in setting_uses(settings, arguments) if each.argument}


@pytest.mark.parametrize("spelling", ["learning-rate", "learning_rate", "lr", "LR", "base_lr"])
def test_a_setting_finds_the_scripts_spelling(spelling):
    assert _given({"learning_rate": 0.1}, Argument(spelling)) == {spelling: 0.1}


def test_what_the_script_does_not_ask_for_is_not_given():
    settings = {"learning_rate": 0.1, "optimizer": "Adam", "epochs": 3}
    assert _given(settings, Argument("epochs"), Argument("weights")) == {"epochs": 3}
    assert [each.argument for each in setting_uses(settings, [])] == ["", "", ""]


def test_choices_are_given_in_the_scripts_own_spelling():
    assert _given({"optimizer": "SGD"}, Argument("optim", ("adam", "sgd"))) == {"optim": "sgd"}
    assert _given({"optimizer": "Rprop"}, Argument("optim", ("adam", "sgd"))) == {}
    assert _given({"optimizer": "SGD"}, Argument("optim", ())) == {}, "its choices cannot be read"


def test_checked_settings_are_numbers_and_words_in_the_forms_order():
    given = {"epochs": "5", "learning_rate": "1e-3", "optimizer": "adam", "momentum": "", "lr_policy": None}
    assert list(checked_settings(given).items()) == [("learning_rate", 0.001), ("optimizer", "Adam"), ("epochs", 5)]


@pytest.mark.parametrize(
    ("given", "field", "sentence"),
    [
        ({"learning_rate": "fast"}, "learning_rate", "a number above 0 and at most 1000"),
        ({"learning_rate": 0}, "learning_rate", "above 0"),
        ({"learning_rate": float("nan")}, "learning_rate", "must be a number"),
        ({"learning_rate": True}, "learning_rate", "must be a number"),
        ({"epochs": 2.5}, "epochs", "a whole number from 1"),
        ({"epochs": "1e400"}, "epochs", "a whole number"),
        ({"batch_size": -1}, "batch_size", "a whole number from 1"),
        ({"optimizer": "Newton"}, "optimizer", "choose one of SGD, Adam"),
        ({"optimizer": ["SGD"]}, "optimizer", "choose one of"),
        ({"gamma": 0.1}, "gamma", "applies to the policy step or multistep"),
        ({"lr_policy": "step", "t_max": 3}, "t_max", "not to step: leave it empty"),
        ({"lr_policy": "multistep", "step_values": "30;60"}, "step_values", "such as 30,60,80"),
        ({"warp": 9}, "settings", "Setting 'warp' is not known"),
        ([1], "settings", "as an object"),
    ],
)
def test_what_does_not_fit_is_said_at_its_field(given, field, sentence):
    with pytest.raises(UserError, match=sentence) as caught:
        checked_settings(given)
    assert list(caught.value.fields) == [field]


def test_every_setting_has_a_name_of_its_own():
    spellings = [spelling for setting in SETTINGS for spelling in setting.spellings]
    assert len(set(spellings)) == len(spellings)


def test_arguments_are_read_from_argparse_and_click(tmp_path):
    (tmp_path / "main.py").write_text(
        "import argparse, click\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('-e', '--epochs', '--n-epochs', type=int, default=-1, help='how often')\n"
        "parser.add_argument('--optim', choices=['adam', 'sgd'])\n"
        "parser.add_argument('--kind', choices=KINDS)\n"
        "parser.add_argument('--verbose', action='store_true')\n"
        "parser.add_argument('--steps', nargs='+')\n"
        "parser.add_argument('folder')\n"
        "parser.add_argument(name)\n"
        "@click.option('--lr', type=float)\n"
        "@click.option('--solver', type=click.Choice(['a']))\n"
        "@click.option('--fast', is_flag=True)\n"
        "def main(): ...\n"
    )
    assert sorted(inspect_code(tmp_path, "main.py").arguments, key=lambda argument: argument.name) == [
        Argument("epochs", None, -1, "how often", is_number=True, aliases=("n-epochs",)),
        Argument("kind", ()),
        Argument("lr", is_number=True),
        Argument("optim", ("adam", "sgd")),
        Argument("solver", ("a",)),
    ]


@pytest.mark.parametrize(
    ("code", "elastic", "can_validate"),
    [
        ("from fabric_model import FabricModel", True, True),
        ("from tidepool.torch import Session\nsession.validate_on(data, loss)", True, True),
        ("from tidepool.torch import Session", True, False),
        ("import torch", False, False),
    ],
)
def test_what_a_script_can_is_read_from_it(tmp_path, code, elastic, can_validate):
    (tmp_path / "main.py").write_text(code)
    facts = inspect_code(tmp_path, "main.py")
    assert (facts.elastic, facts.can_validate) == (elastic, can_validate)
