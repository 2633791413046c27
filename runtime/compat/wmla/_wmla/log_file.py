"""Base of the loggers that append to a file in the folder for logs."""

from typing import Self, TextIO

from tidepool.env import log_folder, training_id

__all__ = ["LogFile"]


class LogFile:
    """A context that ends with the file closed. Names are IBM's."""

    name = ""

    def __init__(self, subId: str | None, f: TextIO) -> None:
        self.trainingId = training_id()
        self.subId = subId
        self.f = f

    @classmethod
    def open(cls, subId: str | None = None) -> Self:
        folder = log_folder() / (subId or "")
        folder.mkdir(parents=True, exist_ok=True)
        return cls(subId, (folder / cls.name).open("a"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self.f.close()

    def write_line(self, line: str) -> None:
        self.f.write(f"{line}\n")
        self.f.flush()
