"""Slot rules and requirements: a small expression language over a host's attributes.

A rule such as `ngpus`, `ncpus*2` or `min(ngpus, 4)` is rounded down to a whole number of slots, 0 at least; a host
meets a requirement such as `ngpus > 0 and not virtual` unless it gives 0. There are numbers, the attributes below,
`+ - * / // %`, comparisons, `and`, `or` and `not` (1 or 0; also `&&`, `||` and `!`), parentheses, `min`, `max` and
`floor`. A text is parsed here and never handed to Python.

    choice     = both {("or" | "||") both}
    both       = negation {("and" | "&&") negation}
    negation   = ("not" | "!") negation | comparison
    comparison = sum [("<" | "<=" | ">" | ">=" | "==" | "!=") sum]
    sum        = product {("+" | "-") product}
    product    = unary {("*" | "/" | "//" | "%") unary}
    unary      = "-" unary | primary
    primary    = number | attribute | function "(" choice {"," choice} ")" | "(" choice ")"
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

__all__ = ["ATTRIBUTES", "MAX_LENGTH", "MAX_SLOTS", "Attributes", "Formula", "FormulaError", "parse"]

#: No host offers more: a rule that says so is a mistake.
MAX_SLOTS = 10_000
MAX_LENGTH = 200
_MAX_DEPTH = 20
_MAX_MAGNITUDE = 1e12

_TOKEN = re.compile(
    r"[ \t]*(?:(?P<number>[0-9]+(?:\.[0-9]+)?)|(?P<name>[a-z]+)|(?P<sign>//|[<>=!]=|&&|\|\||[-+*/%<>(),!]))"
)
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}
_FUNCTIONS: dict[str, Callable[[list[float]], float]] = {"min": min, "max": max, "floor": lambda x: math.floor(x[0])}
_OR, _AND, _NOT = ("or", "||"), ("and", "&&"), ("not", "!")
#: Name -> what it is, in the order in which people are told of them.
ATTRIBUTES = {
    "ngpus": "GPUs",
    "ncpus": "CPUs",
    "nprocs": "processors (sockets)",
    "ncores": "cores of each processor",
    "nthreads": "threads of each core",
    "maxmem": "memory in MiB",
    "maxswp": "swap space in MiB",
    "virtual": "1 where its GPUs are CPU processes, else 0",
}


class FormulaError(ValueError):
    """A rule that cannot be read, or not be computed for a host."""

    def __init__(self, sentence: str, position: int) -> None:
        super().__init__(f"{sentence} (at character {position})")
        self.sentence = sentence
        #: Of the character where it goes wrong, from 1.
        self.position = position


@dataclass(frozen=True, slots=True)
class Attributes:
    """None: the host does not report it."""

    ncpus: int
    ngpus: int
    #: In MiB, as in WMLA.
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
        """The number of slots that a host with these attributes offers."""
        slots = math.floor(self._root(attributes))
        if slots > MAX_SLOTS:
            raise FormulaError(f"it gives {slots} slots; at most {MAX_SLOTS} make sense", 1)
        return max(slots, 0)

    def is_met(self, attributes: Attributes) -> bool:
        """Whether a host with these attributes is selected."""
        return self._root(attributes) != 0


# The scheduler asks for the same few in each cycle.
@lru_cache(maxsize=256)
def parse(text: str) -> Formula:
    if len(text) > MAX_LENGTH:
        raise FormulaError(f"use at most {MAX_LENGTH} characters", MAX_LENGTH + 1)
    parser = _Parser(_tokens(text))
    root = parser.choice()
    parser.expect("end", "")
    return Formula(text, root)


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    position: int


def _tokens(text: str) -> list[_Token]:
    tokens = []
    at = 0
    end = len(text.rstrip(" \t"))
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None:
            position = at + len(text[at:]) - len(text[at:].lstrip(" \t")) + 1
            raise FormulaError(f"{text[position - 1]!a} has no meaning here", position)
        kind = match.lastgroup or ""
        tokens.append(_Token(kind, match[kind], match.start(kind) + 1))
        at = match.end()
    return [*tokens, _Token("end", "", end + 1)]


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._next = 0
        self._depth = 0

    def choice(self) -> _Node:
        left = self._both()
        while self._take(*_OR):
            left = _either(left, self._both())
        return left

    def _both(self) -> _Node:
        left = self._negation()
        while self._take(*_AND):
            left = _each(left, self._negation())
        return left

    def _negation(self) -> _Node:
        if not self._take(*_NOT):
            return self._comparison()
        self._deeper()
        inner = self._negation()
        self._depth -= 1
        return lambda host: float(inner(host) == 0)

    def _comparison(self) -> _Node:
        left = self._sum()
        sign = self._take(*_COMPARISONS)
        if sign is None:
            return left
        right, compare = self._sum(), _COMPARISONS[sign.text]
        return lambda host: float(compare(left(host), right(host)))

    def expect(self, kind: str, text: str) -> _Token:
        token = self._tokens[self._next]
        if token.kind != kind or (text and token.text != text):
            found = repr(token.text) if token.text else "the end"
            wanted = repr(text) if text else "the end"
            raise FormulaError(f"{wanted} was expected instead of {found}", token.position)
        self._next += 1
        return token

    def _sum(self) -> _Node:
        left = self._product()
        while sign := self._take("+", "-"):
            left = _combine(sign, left, self._product())
        return left

    def _product(self) -> _Node:
        left = self._unary()
        while sign := self._take("*", "/", "//", "%"):
            left = _combine(sign, left, self._unary())
        return left

    def _unary(self) -> _Node:
        self._deeper()
        node = self._negated() if self._take("-") else self._primary()
        self._depth -= 1
        return node

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise FormulaError("it is nested too deeply", self._tokens[self._next].position)

    def _negated(self) -> _Node:
        inner = self._unary()
        return lambda host: -inner(host)

    def _primary(self) -> _Node:
        token = self._tokens[self._next]
        if self._take("("):
            inner = self.choice()
            self.expect("sign", ")")
            return inner
        self._next += 1
        if token.kind == "number":
            value = _bounded(float(token.text), token)
            return lambda host: value
        if token.kind == "name" and token.text in ATTRIBUTES:
            return _attribute(token)
        if token.kind == "name" and token.text in _FUNCTIONS:
            return self._call(token)
        if token.kind == "name" and token.text not in (*_OR, *_AND, *_NOT):
            known = ", ".join((*ATTRIBUTES, *_FUNCTIONS))
            raise FormulaError(f"{token.text!r} is not known; use {known}", token.position)
        raise FormulaError("a number or an attribute is missing", token.position)

    def _call(self, function: _Token) -> _Node:
        self.expect("sign", "(")
        arguments = [self.choice()]
        while self._take(","):
            arguments.append(self.choice())
        self.expect("sign", ")")
        if function.text == "floor" and len(arguments) != 1:
            raise FormulaError("'floor' takes one value", function.position)
        compute = _FUNCTIONS[function.text]
        return lambda host: compute([argument(host) for argument in arguments])

    def _take(self, *signs: str) -> _Token | None:
        token = self._tokens[self._next]
        if token.kind not in {"sign", "name"} or token.text not in signs:
            return None
        self._next += 1
        return token


def _attribute(token: _Token) -> _Node:
    name = token.text

    def node(host: Attributes) -> float:
        value = getattr(host, name)
        if value is None:
            raise FormulaError(f"this host does not report {name}", token.position)
        return float(value)

    return node


def _either(left: _Node, right: _Node) -> _Node:
    return lambda host: float(left(host) != 0 or right(host) != 0)


def _each(left: _Node, right: _Node) -> _Node:
    return lambda host: float(left(host) != 0 and right(host) != 0)


def _combine(sign: _Token, left: _Node, right: _Node) -> _Node:
    compute = _ARITHMETIC[sign.text]

    def node(host: Attributes) -> float:
        try:
            return _bounded(compute(left(host), right(host)), sign)
        except ZeroDivisionError:
            raise FormulaError("it divides by zero on this host", sign.position) from None

    return node


def _bounded(value: float, token: _Token) -> float:
    if not abs(value) <= _MAX_MAGNITUDE:
        raise FormulaError("the number becomes too large", token.position)
    return value
