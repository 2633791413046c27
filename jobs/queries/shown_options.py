"""Values of a row's options as the page of a job shows them."""

from core.parameters import parameters_as_text
from jobs.options import OPTIONS, OptionColumns, masked

__all__ = ["option_texts", "options_shown"]


def options_shown(row: OptionColumns) -> list[tuple[str, str]]:
    """Return noun and text of each option that the page of a job shows in its table of settings."""
    texts = [(option, option.shown(getattr(row, option.name))) for option in OPTIONS.values() if option.shown]
    return [(option.noun, text) for option, text in texts if text]


def option_texts(row: OptionColumns) -> list[tuple[str, str]]:
    """Return noun and text of each option whose value has several lines, values of variables masked."""
    values = [(option, getattr(row, option.name)) for option in OPTIONS.values() if option.has_lines]
    texts = [(option, parameters_as_text(masked(value)) if option.is_variables else value) for option, value in values]
    return [(option.noun, text) for option, text in texts if text]
