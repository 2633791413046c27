"""Settings of a model that do not depend on its script, and how they reach the script. Pure functions.

A script gets a setting only if it declares a matching argument: `learning_rate` reaches a script that declares `--lr`
as `--lr 0.1`, and no script without such an argument. A setting can therefore never break a strict parser.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from core.errors import field_error
from core.parameters import Scalar
from models_registry.script_declarations import Argument

__all__ = [
    "SETTINGS",
    "Setting",
    "SettingUse",
    "checked_settings",
    "own_parameters",
    "setting_named",
    "setting_uses",
    "settings_in",
]


@dataclass(frozen=True)
class Setting:
    name: str
    label: str
    help: str
    #: Names of matching arguments; case, '-' and '_' do not matter.
    spellings: tuple[str, ...]
    kind: Literal["number", "whole", "choice", "list"] = "number"
    choices: tuple[str, ...] = ()
    #: Smallest value, itself allowed only if `from_least`.
    least: float = 0.0
    from_least: bool = False
    most: float = 1e9
    #: Learning-rate policies that use it; empty: all.
    policies: tuple[str, ...] = ()


@dataclass(frozen=True)
class SettingUse:
    """A chosen setting, and the argument by which it reaches the script."""

    setting: Setting
    value: Scalar
    #: Name of the argument that carries it; "": the script declares none.
    argument: str
    #: Value of the argument, in the script's own spelling.
    given: Scalar


_POLICIES = ("fixed", "step", "multistep", "exponential", "cosineannealing", "reducelronplateau")
_OPTIMIZERS = ("SGD", "Adam", "AdamW", "RMSprop", "ASGD", "Adadelta", "Adagrad", "SparseAdam", "Adamax", "Rprop")

#: All settings, in the order of the form.
SETTINGS: tuple[Setting, ...] = (
    Setting(
        "lr_policy", "Learning rate policy", "Schedule of the learning rate.",
        ("lr_policy", "learning_rate_policy", "lr_scheduler", "scheduler"), kind="choice", choices=_POLICIES,
    ),
    Setting("learning_rate", "Base learning rate", "Learning rate at the start.",
            ("learning_rate", "lr", "base_lr", "base_learning_rate"), most=1000),
    Setting("gamma", "Gamma", "Factor by which each change multiplies the learning rate.", ("gamma", "lr_gamma"),
            most=1, policies=("step", "multistep", "exponential", "reducelronplateau")),
    Setting("step_size", "Step size", "Epochs between two changes.", ("step_size", "lr_step_size", "stepsize"),
            kind="whole", least=1, from_least=True, policies=("step",)),
    Setting("step_values", "Step values", "Epochs at which the learning rate changes, such as 30,60,80.",
            ("step_values", "stepvalues", "milestones", "lr_milestones"), kind="list", policies=("multistep",)),
    Setting("t_max", "T max", "Epochs until the learning rate reaches its minimum.", ("t_max", "tmax"),
            kind="whole", least=1, from_least=True, policies=("cosineannealing",)),
    Setting("optimizer", "Optimizer type", "Algorithm that updates the weights.",
            ("optimizer", "optim", "opt", "solver"), kind="choice", choices=_OPTIMIZERS),
    Setting("momentum", "Momentum", "Momentum of SGD and RMSprop.", ("momentum",), from_least=True, most=1),
    Setting("weight_decay", "Weight decay", "Strength of the L2 penalty on the weights.",
            ("weight_decay", "wd", "l2"), from_least=True, most=1000),
    Setting("hidden_size", "Hidden state size", "Size of the hidden state in recurrent networks.",
            ("hidden_size", "hidden_state_size", "hidden"), kind="whole", least=1, from_least=True),
    Setting("epochs", "Epochs", "Passes over the dataset.",
            ("epochs", "epoch", "num_epochs", "n_epochs", "max_epochs", "epoch_number"),
            kind="whole", least=1, from_least=True),
    Setting("batch_size", "Batch size", "Samples per step as the script counts them, usually per GPU.",
            ("batch_size", "batchsize", "train_batch_size"), kind="whole", least=1, from_least=True),
)  # fmt: skip
_BY_NAME = {setting.name: setting for setting in SETTINGS}


def checked_settings(given: Any) -> dict[str, Scalar]:
    """Return the chosen settings as numbers and words, in the order of the form; empty ones are left out."""
    if not isinstance(given, Mapping):
        raise field_error("settings", 'Give the settings as an object, such as {"learning_rate": 0.1}.')
    unknown = [str(name)[:80] for name in given if name not in _BY_NAME]
    if unknown:
        known = ", ".join(_BY_NAME)
        raise field_error("settings", f"Setting {unknown[0]!a} is not known: use {known}, or a parameter.")
    chosen = {name: given[name] for name in _BY_NAME if given.get(name) not in (None, "")}
    values = {name: _checked(_BY_NAME[name], value) for name, value in chosen.items()}
    _check_policy(values)
    return values


def setting_uses(settings: Mapping[str, Scalar], arguments: Sequence[Argument]) -> list[SettingUse]:
    """Return each setting with the argument that carries it, if the script declares one that accepts the value."""
    by_spelling = {_plain(argument.name): argument for argument in reversed(arguments)}
    return [_use_of(_BY_NAME[name], value, by_spelling) for name, value in settings.items() if name in _BY_NAME]


def setting_named(name: str) -> str:
    """Return the name of the setting that is spelled like this; "" if there is none."""
    spelled = (one.name for one in SETTINGS if _plain(name) in map(_plain, (one.name, *one.spellings)))
    return next(spelled, "")


def own_parameters(
    parameters: Mapping[str, Scalar], settings: Mapping[str, Scalar], arguments: Sequence[Argument]
) -> dict[str, Scalar]:
    """Return a version's parameters without those that come from its settings."""
    by_settings = {each.argument: each.given for each in setting_uses(settings, arguments)}
    return {name: value for name, value in parameters.items() if by_settings.get(name) != value}


def settings_in(parameters: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Return the parameters of a training that are settings by name, which take precedence over the model's."""
    return {name: value for name, value in parameters.items() if name in _BY_NAME}


def _use_of(setting: Setting, value: Scalar, by_spelling: Mapping[str, Argument]) -> SettingUse:
    for spelling in setting.spellings:
        argument = by_spelling.get(_plain(spelling))
        if argument is None:
            continue
        if argument.choices is None:
            return SettingUse(setting, value, argument.name, value)
        for choice in argument.choices:
            if _plain(str(choice)) == _plain(str(value)):
                return SettingUse(setting, value, argument.name, choice)
    return SettingUse(setting, value, "", value)


def _checked(setting: Setting, value: Any) -> Scalar:
    if setting.kind == "list":
        return _epochs(setting, value)
    if setting.kind == "choice":
        for choice in setting.choices:
            if isinstance(value, str) and choice.lower() == value.lower():
                return choice
        raise field_error(setting.name, f"{setting.label}: choose one of {', '.join(setting.choices)}.")
    return _number(setting, value)


def _number(setting: Setting, value: Any) -> int | float:
    try:
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    low = number >= setting.least if setting.from_least else number > setting.least
    whole = setting.kind == "whole"
    if not (low and number <= setting.most) or (whole and number != int(number)):
        kind = "a whole number" if whole else "a number"
        beginning = f"from {setting.least:g} to" if setting.from_least else f"above {setting.least:g} and at most"
        raise field_error(setting.name, f"{setting.label} must be {kind} {beginning} {int(setting.most)}.")
    return int(number) if whole else number


def _epochs(setting: Setting, value: Any) -> str:
    parts = [part.strip() for part in str(value).split(",")]
    if len(parts) > 100 or not all(part.isascii() and part.isdecimal() and 0 < len(part) < 8 for part in parts):
        raise field_error(setting.name, f"{setting.label} must be a comma-separated list of epochs, such as 30,60,80.")
    return ",".join(parts)


def _check_policy(values: Mapping[str, Scalar]) -> None:
    policy = values.get("lr_policy", "fixed")
    for name in values:
        policies = _BY_NAME[name].policies
        if policies and policy not in policies:
            belongs = f"{_BY_NAME[name].label} applies to the policy {' or '.join(policies)}"
            raise field_error(name, f"{belongs}, not to {policy}: leave it empty.")


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
