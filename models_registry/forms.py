"""Forms of the models pages. Actions check what is given; forms only carry it."""

from __future__ import annotations

from django import forms

from models_registry.models import RegisteredModelVersion
from webapp.lib.formfields import ParametersField

__all__ = ["ModelForm"]

_ENGINES = [
    (RegisteredModelVersion.Engine.ELASTIC, "Elastic: grows and shrinks while it trains"),
    (RegisteredModelVersion.Engine.FIXED, "Fixed: all its GPUs from start to end, as under torchrun"),
    (RegisteredModelVersion.Engine.SINGLE, "Single: one process on one GPU"),
]


class ModelForm(forms.Form):
    name = forms.CharField(max_length=1000, help_text="How trainings refer to it, such as digits-cnn.")
    framework = forms.ChoiceField(choices=[(name, name) for name in RegisteredModelVersion.Framework.values])
    engine = forms.ChoiceField(
        label="Training engine", choices=_ENGINES, initial=RegisteredModelVersion.Engine.ELASTIC,
        help_text="Elastic needs a script with a tidepool Session or a FabricModel. A plain torchrun, DDP or single "
        "script is stopped only as a whole, and goes on afterwards only if it saves to CHECKPOINT_DIR on SIGTERM.",
    )  # fmt: skip
    path = forms.CharField(
        label="Path on the server", required=False, max_length=4096,
        help_text="The folder with the code, below the models folder. Leave it empty to upload instead.",
    )  # fmt: skip
    file = forms.FileField(
        label="Or upload the code", required=False, help_text="A .zip or .tar.gz archive, or a single Python script."
    )
    entry_point = forms.CharField(
        initial="main.py", max_length=1000, help_text="The script that trains, relative to the folder."
    )
    dataset = forms.CharField(
        label="Usual dataset", required=False, max_length=1000,
        help_text="The name of a dataset, such as digits: it is filled in when somebody trains this model.",
    )  # fmt: skip
    parameters = ParametersField(
        required=False, help_text="One per line, such as epochs = 5: each reaches the script as --epochs 5."
    )
    description = forms.CharField(required=False, max_length=10_000, widget=forms.Textarea(attrs={"rows": 3}))
