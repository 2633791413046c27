"""Forms of the models pages. Actions validate the values; forms only carry them."""

from collections.abc import Sequence
from typing import Any

from django import forms
from django.forms import BoundField

from core.parameters import ParametersField, parameters_as_text
from core.visibility import Readers
from models_registry.code_inspection import CodeFacts
from models_registry.model_settings import SETTINGS, Setting, own_parameters, setting_uses
from models_registry.models import ModelTemplate, RegisteredModelVersion
from models_registry.script_declarations import Argument

__all__ = ["LocationForm", "ModelForm", "initial_of"]

_ENGINES = [
    (RegisteredModelVersion.Engine.ELASTIC, "Elastic distributed training: grows and shrinks while training"),
    (RegisteredModelVersion.Engine.SINGLE, "Single node: one process on one GPU"),
    (RegisteredModelVersion.Engine.FIXED, "Distributed, fixed size: the same GPUs to the end, as with torchrun"),
]
#: Settings that most people leave to the script.
_MORE = ("momentum", "weight_decay", "hidden_size")


def _readers_field(help_text: str) -> forms.ChoiceField:
    return forms.ChoiceField(label="Who may read the code", choices=Readers.choices, help_text=help_text)


class LocationForm(forms.Form):
    """Form for the location of a template's code."""

    framework = forms.ChoiceField(choices=[(name, name) for name in ModelTemplate.Framework.values])
    name = forms.CharField(max_length=1000, help_text="Name of the template in the list.")
    path = forms.CharField(
        required=False, max_length=4096,
        help_text="Folder with the code, or a single .py file, on the server. Leave empty to upload the code.",
    )  # fmt: skip
    file = forms.FileField(
        label="Or upload the code", required=False, help_text="A .zip or .tar.gz archive, or a single .py file."
    )
    upload = forms.IntegerField(required=False, min_value=1, widget=forms.HiddenInput)
    entry_point = forms.CharField(
        label="Training script", required=False, max_length=1000,
        help_text="Path in the folder, such as main.py. Empty: the only script, or the one that has a usual name.",
    )  # fmt: skip
    readers = _readers_field(
        "Everybody by default. Everybody who may read the code may create models from it; administrators always may."
    )
    description = forms.CharField(required=False, max_length=10_000, widget=forms.Textarea(attrs={"rows": 3}))


class ModelForm(forms.Form):
    """Form of a model: a template's code with its settings."""

    name = forms.CharField(label="Model name", max_length=1000, help_text="Name by which trainings refer to the model.")
    description = forms.CharField(required=False, max_length=10_000, widget=forms.Textarea(attrs={"rows": 2}))
    engine = forms.ChoiceField(
        label="Training engine", choices=_ENGINES, initial=RegisteredModelVersion.Engine.ELASTIC,
        help_text="Elastic training requires a tidepool Session, a prepared loop or a FabricModel in the script. A "
        "plain script can only be stopped as a whole, and continues later only if it saves to CHECKPOINT_DIR on "
        "SIGTERM.",
    )  # fmt: skip
    readers = _readers_field(
        "The same as for its template by default. Everybody who may read the code may train and clone the model; "
        "administrators always may."
    )
    dataset = forms.CharField(
        label="Training dataset", required=False, max_length=1000,
        help_text="Preselected when this model is trained.",
        widget=forms.TextInput(attrs={"list": "dataset-names", "autocomplete": "off"}),
    )  # fmt: skip
    parameters = ParametersField(
        label="Other parameters", required=False,
        help_text="One per line, such as hidden = 64, which is passed to the script as --hidden 64 even if the script "
        "has no such argument.",
    )  # fmt: skip

    def __init__(
        self, data: Any, *, facts: CodeFacts, codes: Sequence[tuple[str, str]], initial: dict[str, Any]
    ) -> None:
        super().__init__(data, initial=initial)
        if codes:
            help_text = "Files of a template, as copied most recently."
            self.fields["code"] = forms.ChoiceField(required=False, choices=codes, help_text=help_text)
        self.fields["name"].disabled = bool(codes)
        for setting in SETTINGS:
            self.fields[setting.name] = _field(setting, facts)

    def chosen_settings(self) -> dict[str, Any]:
        return {setting.name: self.cleaned_data[setting.name] for setting in SETTINGS}

    @property
    def learning(self) -> list[tuple[BoundField, str]]:
        """Return the fields for learning, each with the learning-rate policies that use it."""
        hidden = {*_MORE, "epochs", "batch_size"}
        return [(self[each.name], " ".join(each.policies)) for each in SETTINGS if each.name not in hidden]

    @property
    def more(self) -> list[BoundField]:
        return [self[name] for name in _MORE]


def initial_of(version: RegisteredModelVersion, arguments: Sequence[Argument]) -> dict[str, Any]:
    """Return the initial values of the form for a version."""
    own = own_parameters(version.parameters, version.settings, arguments)
    return {
        "description": version.model.description,
        "readers": version.model.readers,
        "engine": version.engine,
        "dataset": version.default_dataset,
        "parameters": parameters_as_text(own),
        **version.settings,
    }


def _field(setting: Setting, facts: CodeFacts) -> forms.Field:
    wanted = _argument(setting, facts.arguments)
    ways = [f"as --{wanted.name}"] if wanted else []
    ways += ["through pth_parameter_mgr"] if facts.asks_manager else []
    way = f"Passed to the script {' and '.join(ways)}." if ways else "The script has no such argument."
    words = f"{setting.help} {way}"
    if setting.kind == "choice":
        choices = [("", "Default of the script"), *((choice, choice) for choice in setting.choices)]
        return forms.ChoiceField(label=setting.label, required=False, choices=choices, help_text=words)
    default = "" if wanted is None or wanted.default is None else str(wanted.default)
    widget = forms.TextInput(
        attrs={"inputmode": "text" if setting.kind == "list" else "decimal", "placeholder": default}
    )
    return forms.CharField(label=setting.label, required=False, max_length=1000, help_text=words, widget=widget)


def _argument(setting: Setting, arguments: Sequence[Argument]) -> Argument | None:
    """Return the argument that carries the setting, for the first value that any argument accepts."""
    carriers = (setting_uses({setting.name: probe}, arguments)[0].argument for probe in setting.choices or ("1",))
    name = next(filter(None, carriers), "")
    return next((argument for argument in arguments if argument.name == name), None)
