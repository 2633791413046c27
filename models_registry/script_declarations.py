"""Declarations of a script that are read from its code: arguments and requirements. Pure; stored with a version."""

import difflib
import json
import math
import re
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from core.parameters import Scalar

__all__ = ["LOCAL_RANK_ARGUMENTS", "LONG_NAME", "Argument", "Continues", "Declared", "Takes"]

#: Names of the argument for LOCAL_RANK: before torch 2.0, and since.
LOCAL_RANK_ARGUMENTS = ("local_rank", "local-rank")
LONG_NAME = re.compile(r"--[A-Za-z][A-Za-z0-9_.-]{0,63}")
#: Beginning of an option, as opposed to a negative number.
_OPTION = re.compile(r"-(?![\d.])")

#: Largest whole number that every JSON parser reads exactly.
_MAX_WHOLE = 2**53

#: Words after `--name`: a value; none (a flag); none, with `--no-name` for false (a switch); several words.
Takes = Literal["value", "flag", "switch", "words"]

#: Library that continues a stopped training by itself: the Trainer of Transformers, or Lightning. With Accelerate, the
#: script calls `load_state()`, or it never does and begins anew.
Continues = Literal["", "trainer", "lightning", "load_state", "anew"]

#: Similarity from which a name counts as a typing error of another.
_ALIKE = 0.75


@dataclass(frozen=True)
class Argument:
    """A `--name` that a script declares by argparse or click."""

    name: str
    #: Accepted values; () if they cannot be read; None: any.
    choices: tuple[Any, ...] | None = None
    #: Default value; None: there is none, or it cannot be read.
    default: Any = None
    help: str = ""
    takes: Takes = "value"
    #: Whether `int` or `float` converts the value.
    is_number: bool = False
    #: Further long names.
    aliases: tuple[str, ...] = ()

    @property
    def is_boolean(self) -> bool:
        return self.takes in ("flag", "switch")

    @property
    def is_text(self) -> bool:
        """Whether the script takes the value as text, in which a comma may mean anything."""
        return not (self.is_boolean or self.is_number or isinstance(self.default, int | float))


@dataclass(frozen=True)
class Declared:
    """Declarations of the entry point and its imports from the folder."""

    arguments: tuple[Argument, ...] = ()
    #: Whether the script exits at any other argument, and all of them could be read.
    is_complete: bool = False
    #: Whether it needs a dataset: it uses DATA_DIR, or is written for WMLA.
    reads_data: bool = True
    #: Whether it imports WMLA's `pth_parameter_mgr`, which returns every setting.
    asks_manager: bool = False
    #: Layers and losses whose results depend on the division of a step, because they draw random numbers or look at
    #: their batch, such as Dropout and BatchNorm2d.
    layers: tuple[str, ...] = ()
    #: Number of processes that the script asks its library for, such as `Trainer(devices=2)`; None: it does not say.
    processes: int | None = None
    #: Library, or function of one, by which a stopped training continues; "": the code names none.
    continues: Continues = ""
    #: Whether one process of the script uses several GPUs: it starts the others itself, or divides each batch.
    uses_several_gpus: bool = False
    #: Whether its processes must be as many on each host.
    needs_equal_hosts: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """Return the stored declarations; the defaults for a version that was stored without them."""
        arguments = [
            Argument(**{**each, "choices": _tuple(each["choices"]), "aliases": tuple(each["aliases"])})
            for each in stored.get("arguments", ())
        ]
        return cls(**{**stored, "arguments": tuple(arguments), "layers": tuple(stored.get("layers", ()))})

    def find(self, name: str) -> Argument | None:
        """Return the argument with this full name or unambiguous prefix, as argparse does, or None."""
        named = [each for each in self.arguments if name in (each.name, *each.aliases)]
        begun = [each for each in self.arguments if any(one.startswith(name) for one in (each.name, *each.aliases))]
        return named[0] if named else begun[0] if len(begun) == 1 else None

    @property
    def local_rank_argument(self) -> str:
        """Return the name of the argument by which `torch.distributed.launch` tells a process its LOCAL_RANK, or ""."""
        names = {name for each in self.arguments for name in (each.name, *each.aliases)}
        return next((name for name in LOCAL_RANK_ARGUMENTS if name in names), "")

    def misfits(self, parameters: Mapping[str, Any], others: Collection[str] = ()) -> dict[str, str]:
        """Return name -> sentence for each parameter that the script would refuse. `others` are allowed names."""
        found = {name: self._misfit(name, value) for name, value in parameters.items() if name not in others}
        return {name: sentence for name, sentence in found.items() if sentence}

    def unknown_words(self, words: Sequence[str], others: Collection[str] = ()) -> list[str]:
        """Return a sentence for each option at which the script would exit, by argparse's rules.

        The list is empty unless all options of the script are known. `others` are allowed names.
        """
        if not self.is_complete:
            return []
        options = list(words)[: words.index("--")] if "--" in words else words
        named = [word.partition("=")[0] for word in options]
        names = dict.fromkeys(each[2:] for each in named if LONG_NAME.fullmatch(each))
        return [self._unknown(name) for name in names if name not in others and not self._takes_option(name)]

    def words(self, parameters: Mapping[str, Scalar]) -> list[str]:
        """Return the parameters as words of the command line: `--name value`, or `--name` for a flag that is on."""
        return [word for name, value in parameters.items() for word in self._words(name, value)]

    def values_in(self, words: Sequence[str]) -> dict[str, Scalar]:
        """Return the parameters in words of the command line, by their declared names, without positional words."""
        rest = deque(words[: list(words).index("--")] if "--" in words else words)
        found: dict[str, Scalar] = {}
        while rest:
            option, has_value, value = rest.popleft().partition("=")
            if not LONG_NAME.fullmatch(option):
                continue
            argument, is_on = self._declared(option[2:])
            name = argument.name if argument is not None else option[2:]
            if has_value:
                found[name] = _scalar(value)
            elif (argument is not None and argument.is_boolean) or not rest or _OPTION.match(rest[0]):
                found[name] = is_on
            elif argument is not None and argument.takes == "words":
                found[name] = " ".join(_until_option(rest))
            else:
                found[name] = _scalar(rest.popleft())
        return found

    def _declared(self, name: str) -> tuple[Argument | None, bool]:
        """Return the argument, and whether it is on: False for the `--no-name` of a switch."""
        switches = {f"no-{each.name}": each for each in self.arguments if each.takes == "switch"}
        return (switches[name], False) if name in switches else (self.find(name), True)

    def _takes_option(self, name: str) -> bool:
        if "help".startswith(name) or self.find(name) is not None:
            return True
        return any(each.takes == "switch" and f"no-{each.name}".startswith(name) for each in self.arguments)

    def _misfit(self, name: str, value: Any) -> str:
        argument = self.find(name)
        if argument is None:
            return self._unknown(name)
        if argument.is_boolean and not isinstance(value, bool):
            return f"The parameter {name} must be true or false: the script declares --{argument.name} without a value."
        if argument.is_number and (isinstance(value, bool) or not isinstance(value, int | float)):
            return f"The parameter {name} must be a number{_such_as(argument.default)}."
        if argument.choices and str(value) not in [str(choice) for choice in argument.choices]:
            return f"The parameter {name} must be one of {', '.join(map(str, argument.choices))}."
        return ""

    def _unknown(self, name: str) -> str:
        names = [each for argument in self.arguments for each in (argument.name, *argument.aliases)]
        alike = difflib.get_close_matches(name, names, 1, _ALIKE)
        if not alike and not self.is_complete:
            return ""
        hint = f"did you mean {alike[0]}?" if alike else f"it has {', '.join(sorted(names)) or 'none'}."
        return f"The script declares no --{name}: {hint}"

    def _words(self, name: str, value: Scalar) -> list[str]:
        argument = self.find(name)
        if argument is not None and argument.is_boolean and isinstance(value, bool):
            off = [f"--no-{argument.name}"] if argument.takes == "switch" else []
            return [f"--{name}"] if value else off
        if argument is not None and argument.takes == "words" and isinstance(value, str):
            return [f"--{name}", *value.split()]
        return [f"--{name}", str(value).lower() if isinstance(value, bool) else str(value)]


def _scalar(text: str) -> Scalar:
    """Return the word as a number if it is one, otherwise the word."""
    try:
        number = float(text)
    except ValueError:
        return text
    if not math.isfinite(number):
        return text
    is_whole = text.lstrip("+-").isdecimal() and abs(number) <= _MAX_WHOLE
    return int(text) if is_whole else number


def _until_option(words: deque[str]) -> Iterator[str]:
    while words and not _OPTION.match(words[0]):
        yield words.popleft()


def _tuple(choices: Sequence[Any] | None) -> tuple[Any, ...] | None:
    return None if choices is None else tuple(choices)


def _such_as(default: Any) -> str:
    is_number = isinstance(default, int | float) and not isinstance(default, bool) and math.isfinite(default)
    return f", such as {json.dumps(default)}" if is_number else ""
