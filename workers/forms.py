"""Forms of resource groups and join tokens. The actions validate; the forms pass input on and place errors."""

import re
from collections.abc import Sequence
from typing import Any

from django import forms

from core.errors import UserError
from core.pages import show_error
from workers.actions import ResourceGroupSpec
from workers.join_limits import words_of
from workers.models import ResourceGroup
from workers.slot_formula import ATTRIBUTES, FormulaError, parse

__all__ = ["INPUTS", "JoinForm", "ResourceGroupForm", "caret", "in_words", "initial_of"]

NUMBER, ATTRIBUTE, FORMULA = "number", "attribute", "formula"
_RULES = [(NUMBER, "A fixed number"), (ATTRIBUTE, "Attribute × number"), (FORMULA, "Advanced formula")]
#: Kind of rule -> its fields; an error of the slot rule is shown at the last one.
_RULE_FIELDS = {NUMBER: ("number",), ATTRIBUTE: ("attribute", "factor"), FORMULA: ("formula",)}
#: Value of a spec -> inputs that show it, where these are others.
INPUTS = {"slot_rule": ("rule", *(name for names in _RULE_FIELDS.values() for name in names))}
_SELECTIONS = [(ResourceGroup.Selection.DYNAMIC, "Dynamic"), (ResourceGroup.Selection.STATIC, "Static (List of Names)")]
_KINDS = [
    (ResourceGroup.Kind.GPU, "GPUs, which trainings hold"),
    (ResourceGroup.Kind.SERVICE, "CPU slots, which are only shown"),
]
#: Attributes that can be multiplied by a number.
_COUNTED = ("ncpus", "ngpus", "nprocs", "ncores", "nthreads")
_PRODUCT = re.compile(rf"({'|'.join(_COUNTED)}) ?\* ?([0-9]+)")
_RADIO = {"class": "form-check-input"}
_MONO = {"class": "font-monospace", "spellcheck": "false", "autocomplete": "off", "autocapitalize": "none"}


class JoinForm(forms.Form):
    hosts = forms.IntegerField(
        label="Machines", initial=1, help_text="Number of machines that may join with the token."
    )
    hours = forms.FloatField(label="Hours", initial=24, help_text="Hours for which the token is valid.")
    names = forms.CharField(
        label="Only hosts named", required=False, max_length=5000, widget=forms.TextInput(_MONO),
        help_text="Separated by spaces; * stands for any characters, as in gpu-*. Empty: any name.",
    )  # fmt: skip
    networks = forms.CharField(
        label="Only from networks", required=False, max_length=5000, widget=forms.TextInput(_MONO),
        help_text="Networks or addresses, such as 10.1.0.0/16, separated by spaces. Empty: any address.",
    )  # fmt: skip

    def clean_names(self) -> list[str]:
        return words_of(self.cleaned_data["names"])

    def clean_networks(self) -> list[str]:
        return words_of(self.cleaned_data["networks"])


class ResourceGroupForm(forms.Form):
    name = forms.CharField(
        label="Resource group name", max_length=1000, help_text="Instance groups refer to it by this name."
    )
    description = forms.CharField(required=False, max_length=200)
    kind = forms.ChoiceField(
        label="Its slots are", choices=_KINDS, initial=ResourceGroup.Kind.GPU, help_text="This cannot be changed later."
    )
    rule = forms.ChoiceField(label="Slots per host", choices=_RULES, initial=FORMULA, widget=forms.RadioSelect(_RADIO))
    number = forms.IntegerField(label="Slots on each host", min_value=0, initial=1)
    attribute = forms.ChoiceField(
        label="Attribute", choices=[(name, f"Number of {ATTRIBUTES[name]}") for name in _COUNTED]
    )
    factor = forms.IntegerField(label="times", min_value=0, initial=1)
    formula = forms.CharField(
        label="Formula", max_length=1000, strip=False, initial="ngpus", widget=forms.TextInput(_MONO),
        help_text="For example ngpus, which gives one slot per GPU, or min(ngpus, 4).",
    )  # fmt: skip
    selection = forms.ChoiceField(
        label="Resource Selection Method", choices=_SELECTIONS, initial=ResourceGroup.Selection.DYNAMIC,
        widget=forms.RadioSelect(_RADIO),
    )  # fmt: skip
    requirement = forms.CharField(
        required=False, max_length=1000, strip=False, widget=forms.TextInput(_MONO),
        help_text="Condition for members, for example ngpus > 0 and not virtual. Empty: every host.",
    )  # fmt: skip
    #: Check boxes of the table of hosts; the action reports unknown ones.
    hosts = forms.MultipleChoiceField(required=False)

    def __init__(
        self, *args: Any, group: ResourceGroup | None = None, names: Sequence[str] = (), **kwargs: Any
    ) -> None:
        """Create the form. group: the group to change, whose name and kind stay. names: known hosts."""
        super().__init__(*args, **kwargs)
        self._group = group
        hosts = self.fields["hosts"]
        assert isinstance(hosts, forms.MultipleChoiceField)
        hosts.choices = [(name, name) for name in names]
        hosts.error_messages["invalid_choice"] = "The host %(value)s no longer exists: reload the list."
        for kind, fields in _RULE_FIELDS.items():
            for name in fields:
                self.fields[name].required = not self.is_bound or self._typed("rule") == kind
        if group is not None:
            del self.fields["name"], self.fields["kind"]

    @property
    def slot_rule(self) -> str:
        """Slot rule as typed, even if other fields are invalid."""
        kind = self._typed("rule")
        if kind == NUMBER:
            return self._typed("number")
        if kind == ATTRIBUTE:
            return f"{self._typed('attribute')}*{self._typed('factor')}"
        return self._typed("formula")

    def draft(self) -> ResourceGroupSpec:
        """Return the spec of the input so far, for a preview."""
        typed = {name: self._typed(name) for name in ("kind", "selection", "requirement") if name in self.fields}
        return self._spec(name="draft", hosts=self._chosen_hosts(), **typed)

    def spec(self) -> ResourceGroupSpec:
        """Return the spec of a valid form."""
        columns = ("name", "kind", "selection", "description", "requirement", "hosts")
        return self._spec(**{name: self.cleaned_data[name] for name in columns if name in self.cleaned_data})

    def given(self) -> dict[str, Any]:
        """Return the valid values, in the shape of `workers.actions.changeable_values`."""
        columns = ("selection", "description", "requirement", "hosts")
        values = {name: self.cleaned_data[name] for name in columns if name in self.cleaned_data}
        return {"slot_rule": self.slot_rule, **values}

    def _spec(self, **given: Any) -> ResourceGroupSpec:
        stays = {"name": self._group.name, "kind": self._group.kind} if self._group else {}
        return ResourceGroupSpec(slot_rule=self.slot_rule, **{**given, **stays})

    def show(self, error: UserError) -> None:
        """Show an action's error at its field."""
        rule_field = _RULE_FIELDS.get(self._typed("rule"), ("formula",))[-1]
        fields = {rule_field if name == "slot_rule" else name: sentences for name, sentences in error.fields.items()}
        show_error(self, UserError(error.message, fields=fields))

    @property
    def carets(self) -> dict[str, str]:
        """Field -> its text with a mark under the first invalid character."""
        texts = {"requirement": self._typed("requirement")}
        if self._typed("rule") == FORMULA:
            texts["formula"] = self._typed("formula")
        marked = {name: caret(text) for name, text in texts.items() if text.strip()}
        return {name: text for name, text in marked.items() if text}

    def _typed(self, name: str) -> str:
        if self.is_bound:
            return str(self.data.get(self.add_prefix(name), ""))
        return str(self.get_initial_for_field(self.fields[name], name) or "")

    def _chosen_hosts(self) -> list[str]:
        if not self.is_bound:
            return list(self.initial.get("hosts", []))
        return list(self.fields["hosts"].widget.value_from_datadict(self.data, self.files, "hosts") or [])


def caret(text: str) -> str:
    """Return the formula and a line with ^ under its first invalid character; "" if the formula is valid."""
    try:
        parse(text)
    except FormulaError as error:
        return f"{text.replace(chr(9), ' ')}\n{' ' * (error.position - 1)}^"
    return ""


def initial_of(spec: ResourceGroupSpec) -> dict[str, Any]:
    """Return the form's initial values for a stored group."""
    product = _PRODUCT.fullmatch(spec.slot_rule)
    if spec.slot_rule.isascii() and spec.slot_rule.isdecimal():
        rule: dict[str, Any] = {"rule": NUMBER, "number": spec.slot_rule}
    elif product:
        rule = {"rule": ATTRIBUTE, "attribute": product[1], "factor": product[2]}
    else:
        rule = {"rule": FORMULA, "formula": spec.slot_rule}
    same = {name: getattr(spec, name) for name in ("description", "selection", "requirement", "hosts")}
    return {**same, **rule}


def in_words(name: str, value: Any) -> str:
    """Return a value of a spec in words."""
    if name == "selection":
        return dict(_SELECTIONS)[value]
    if isinstance(value, list):
        return ", ".join(value) or "no hosts"
    return str(value) or "empty"
