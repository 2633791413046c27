"""The error of what a script asks for and Tidepool cannot do."""

__all__ = ["Refusal"]


class Refusal(TypeError, ValueError, RuntimeError):
    """Its message says what is refused, why, and what to do. Any further attempt of the training would end likewise.

    It is an error of all three kinds, so that a script may catch it as the one that fits.
    """
