"""Slot rules and requirements: a small expression language over a host's attributes.

The value of a rule such as `ngpus`, `ncpus*2` or `min(ngpus, 4)` is rounded down to a whole number of slots, 0 or more.
A host meets a requirement such as `ngpus > 0 and not virtual` unless its value is 0. Formulas consist of numbers, the
attributes below, `min`, `max`, `floor`, parentheses and operators, which bind more tightly from line to line:

    or ||
    and &&
    not !               before a value
    < <= > >= == !=     1 or 0; they do not chain
    + -
    * / // %
    -                   before a value

The parser here never passes a formula to Python.
"""

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple

__all__ = ["ATTRIBUTES", "MAX_LENGTH", "MAX_SLOTS", "Attributes", "Formula", "FormulaError", "parse"]

#: Highest number of slots per host: a rule that gives more is a mistake.
MAX_SLOTS = 10_000
MAX_LENGTH = 200
_MAX_DEPTH = 20
_MAX_MAGNITUDE = 1e12

_TOKEN = re.compile(
    r"[ \t]*(?:(?P<known>[0-9]+(?:\.[0-9]+)?|[a-z]+|//|[<>=!]=|&&|\|\||[-+*/%<>(),!])|(?P<unknown>.))", re.DOTALL
)
#: Binary operators in order of precedence, the loosest first.
_LEVELS: tuple[dict[str, Callable[[float, float], float]], ...] = (
    dict.fromkeys(("or", "||"), lambda left, right: left != 0 or right != 0),
    dict.fromkeys(("and", "&&"), lambda left, right: left != 0 and right != 0),
    {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne},
    {"+": operator.add, "-": operator.sub},
    {"*": operator.mul, "/": operator.truediv, "//": operator.floordiv, "%": operator.mod},
)
_COMPARISON = 2
_FUNCTIONS: dict[str, Callable[[list[float]], float]] = {"min": min, "max": max, "floor": lambda x: math.floor(x[0])}
#: Name -> description, in the order of messages and forms.
ATTRIBUTES = {
    "ngpus": "GPUs",
    "ncpus": "CPUs",
    "nprocs": "processors (sockets)",
    "ncores": "cores of each processor",
    "nthreads": "threads of each core",
    "maxmem": "memory in MiB",
    "maxswp": "swap space in MiB",
    "virtual": "1 if its GPUs are CPU processes, else 0",
}


class FormulaError(ValueError):
    """The formula cannot be parsed, or cannot be computed for a host."""

    def __init__(self, sentence: str, position: int) -> None:
        super().__init__(f"{sentence} (at character {position})")
        self.sentence = sentence
        #: Position of the invalid character, from 1.
        self.position = position


class Attributes(NamedTuple):
    """Attributes of a host; None: the host does not report it. Memory and swap are in MiB, as in WMLA."""

    ncpus: int
    ngpus: int
    maxmem: int
    maxswp: int | None = None
    nprocs: int | None = None
    ncores: int | None = None
    nthreads: int | None = None
    virtual: int = 0


_Node = Callable[[Attributes], float]


@dataclass(frozen=True)
class Formula:
    text: str
    _root: _Node

    def slots(self, attributes: Attributes) -> int:
        """Return the number of slots that a host with these attributes offers."""
        slots = math.floor(self._root(attributes))
        if slots > MAX_SLOTS:
            raise FormulaError(f"it yields {slots} slots, more than the maximum of {MAX_SLOTS}", 1)
        return max(slots, 0)

    def is_met(self, attributes: Attributes) -> bool:
        """Return whether a host with these attributes is selected."""
        return self._root(attributes) != 0


# The scheduler parses the same few formulas in each cycle.
@lru_cache(maxsize=256)
def parse(text: str) -> Formula:
    """Parse a formula. Raises FormulaError if the text is invalid."""
    if len(text) > MAX_LENGTH:
        raise FormulaError(f"use at most {MAX_LENGTH} characters", MAX_LENGTH + 1)
    parser = _Parser(text)
    root = parser.expression()
    parser.expect("")
    return Formula(text, root)


class _Token(NamedTuple):
    #: "" at the end of the formula.
    text: str
    position: int


class _Parser:
    """Recursive descent parser; each method parses what it is named after, and returns a function that computes it."""

    def __init__(self, text: str) -> None:
        self._tokens = []
        self._at = self._depth = 0
        text = text.rstrip(" \t")
        for match in _TOKEN.finditer(text):
            if unknown := match["unknown"]:
                raise FormulaError(f"{unknown!a} has no meaning here", match.start("unknown") + 1)
            self._tokens.append(_Token(match["known"], match.start("known") + 1))
        self._tokens.append(_Token("", len(text) + 1))

    def expression(self, level: int = 0) -> _Node:
        """Parse an expression of operators that bind at least as tightly as those of `level`."""
        if level == len(_LEVELS):
            return self._nested(self._unary)
        if level == _COMPARISON and self._take("not", "!"):
            inner = self._nested(partial(self.expression, level))
            return lambda host: float(inner(host) == 0)
        left = self.expression(level + 1)
        while sign := self._take(*_LEVELS[level]):
            left = _combined(sign, _LEVELS[level][sign.text], left, self.expression(level + 1))
            if level == _COMPARISON:
                break
        return left

    def expect(self, text: str) -> None:
        token = self._tokens[self._at]
        if token.text != text:
            wanted, found = (repr(each) if each else "the end" for each in (text, token.text))
            raise FormulaError(f"{wanted} was expected instead of {found}", token.position)
        self._at += 1

    def _take(self, *texts: str) -> _Token | None:
        """Consume and return the next token if it is one of these; else return None."""
        token = self._tokens[self._at]
        if token.text not in texts:
            return None
        self._at += 1
        return token

    def _nested(self, read: Callable[[], _Node]) -> _Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise FormulaError("it is nested too deeply", self._tokens[self._at].position)
        node = read()
        self._depth -= 1
        return node

    def _unary(self) -> _Node:
        if self._take("-"):
            inner = self._nested(self._unary)
            return lambda host: -inner(host)
        if self._take("("):
            inner = self.expression()
            self.expect(")")
            return inner
        return self._value()

    def _value(self) -> _Node:
        token = self._tokens[self._at]
        self._at += 1
        if token.text[:1].isdecimal():
            number = _bounded(float(token.text), token)
            return lambda host: number
        if token.text in ATTRIBUTES:
            return partial(_attribute, token)
        if token.text in _FUNCTIONS:
            return self._call(token)
        if token.text.isalpha() and token.text not in {"or", "and", "not"}:
            known = ", ".join((*ATTRIBUTES, *_FUNCTIONS))
            raise FormulaError(f"{token.text!r} is not known; use {known}", token.position)
        raise FormulaError("a number or an attribute is missing", token.position)

    def _call(self, function: _Token) -> _Node:
        self.expect("(")
        arguments = [self.expression()]
        while self._take(","):
            arguments.append(self.expression())
        self.expect(")")
        if function.text == "floor" and len(arguments) != 1:
            raise FormulaError("'floor' takes one value", function.position)
        compute = _FUNCTIONS[function.text]
        return lambda host: compute([argument(host) for argument in arguments])


def _attribute(token: _Token, host: Attributes) -> float:
    value: int | None = getattr(host, token.text)
    if value is None:
        raise FormulaError(f"this host does not report {token.text}", token.position)
    return float(value)


def _combined(sign: _Token, compute: Callable[[float, float], float], left: _Node, right: _Node) -> _Node:
    def node(host: Attributes) -> float:
        first = left(host)
        # Like Python, do not compute the right side if the left one decides.
        if (sign.text in _LEVELS[0] and first != 0) or (sign.text in _LEVELS[1] and first == 0):
            return float(first != 0)
        try:
            return _bounded(float(compute(first, right(host))), sign)
        except ZeroDivisionError:
            raise FormulaError("it divides by zero on this host", sign.position) from None

    return node


def _bounded(value: float, token: _Token) -> float:
    if not abs(value) <= _MAX_MAGNITUDE:
        raise FormulaError("the number becomes too large", token.position)
    return value
