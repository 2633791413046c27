"""The declaration of one option of a training; `jobs.options` has all of them."""

from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, field
from typing import Any, Final

__all__ = ["MAX_INTEGER", "Option", "option", "variables"]

MAX_INTEGER: Final = 2**31 - 1
#: Number of characters above which a text field has several lines.
_LINE: Final = 1000


@dataclass(frozen=True)
class Option:
    #: Name of the option in sentences.
    words: str
    help: str
    #: The label on the Train page; "": only the API takes the option.
    label: str = ""
    unit: str = ""
    #: Limits of a whole number.
    least: int = 0
    most: int = MAX_INTEGER
    #: Values with their labels, if the option is not a number.
    choices: Sequence[tuple[str, str]] = ()
    #: The value is a mapping of names to texts, whose texts are shown masked.
    is_variables: bool = False
    #: Largest length of a text; 0: the value is not a text.
    most_characters: int = 0
    #: The text is a regular expression (RE2).
    is_pattern: bool = False
    #: The meaning of None, as the end of a sentence.
    absent: str = ""
    #: Initial value on the Train page, if not the default.
    initial: int | None = None
    #: The template of the Train page places the field by its name.
    is_placed: bool = False
    #: Only a script with a session uses the option: the Train page hides the field for others.
    is_of_sessions: bool = False
    #: `LaunchSpec` has a field of this name.
    is_launched: bool = False
    #: `DesiredJob` has a field of this name: the option may change while the training runs.
    is_desired: bool = False
    #: The option shapes the results: comparisons show it, and MLflow has it as a parameter.
    shapes_results: bool = False
    #: The noun in tables; "": the label.
    title: str = ""
    #: The text in the table of settings on the page of a job; None or "": no row. Absent: the table leaves it out.
    shown: Callable[[Any], str | None] | None = None
    #: Filled in by `OPTIONS` from the field of `Options`.
    name: str = ""
    default: Any = None
    is_required: bool = False

    @property
    def noun(self) -> str:
        return self.title or self.label

    @property
    def has_lines(self) -> bool:
        """Return whether the value is a text of several lines."""
        return self.is_variables or (self.most_characters > _LINE and not self.is_placed)

    @property
    def limit(self) -> str:
        """Return the limits of a whole number; "" for other values."""
        if self.is_variables or self.most_characters or self.choices:
            return ""
        return f"from {self.least} to {self.most:,}" if self.most < MAX_INTEGER else f"of {self.least} or more"

    @property
    def limit_sentence(self) -> str:
        """Return the valid values, as the rest of a sentence that begins with `words`."""
        if self.choices:
            return f"is {' or '.join(repr(str(value)) for value, _ in self.choices)}"
        return f"must be a whole number {self.limit}"

    def help_with(self, absent: str) -> str:
        """Return the help with the meaning of None, which a form calls "Empty" and the API "Absent"."""
        return f"{self.help} {absent}: {self.absent}" if self.absent else self.help


def option(words: str, help: str, *, default: Any = MISSING, **details: Any) -> Any:
    return field(default=default, metadata={"option": Option(words, help, **details)})


def variables(words: str, help: str, **details: Any) -> Any:
    return field(default_factory=dict, metadata={"option": Option(words, help, is_variables=True, **details)})
