"""Detection of scripts that may accept options which cannot be read from their code. In doubt, the answer is yes."""

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeGuard

__all__ = ["is_declaring", "may_take_others"]

#: Methods of argparse and click that declare an argument.
_DECLARING = frozenset({"add_argument", "option"})
#: Parsers whose arguments are declared elsewhere or in parts, and arguments that take all remaining words.
_OPEN = frozenset(
    {"parse_known_args", "add_subparsers", "HfArgumentParser", "LightningCLI", "from_argparse_args", "REMAINDER"}
)
#: Keywords of a parser that add arguments from elsewhere, or make other words options.
_OPEN_SETTINGS = frozenset({"parents", "prefix_chars", "fromfile_prefix_chars"})
_PARSERS = frozenset({"ArgumentParser", "add_argument_group", "add_mutually_exclusive_group"})


def may_take_others(trees: Sequence[ast.AST]) -> bool:
    """Return whether a script with these sources may accept options that it does not declare in them."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    return (
        any(_last_name(node) in _OPEN for node in nodes)
        or any(_declares_unread(call) for call in calls)
        or _hands_on_declaring(nodes, calls)
        or _hands_on_parser(nodes, calls)
        or _parses_other_words(nodes, calls)
    )


def is_declaring(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _DECLARING


def _last_name(node: ast.AST | None) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else node.name if isinstance(node, ast.alias) else ""


def _declares_unread(call: ast.Call) -> bool:
    """Return whether a call declares names that are not constants, takes all words, or makes an open parser."""
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    if _last_name(call.func) == "ArgumentParser":
        return bool(_OPEN_SETTINGS & keywords.keys())
    if not is_declaring(call):
        return False
    nargs = keywords.get("nargs")
    takes_all = isinstance(nargs, ast.Constant) and nargs.value == "..."
    return takes_all or not call.args or not all(_is_text(each) for each in call.args)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _hands_on_declaring(nodes: Iterable[ast.AST], calls: Iterable[ast.Call]) -> bool:
    """Return whether `add_argument` is passed on, as in `add = parser.add_argument`: later calls are not visible."""
    called = {id(call.func) for call in calls}
    return any(_is_attribute(node, "add_argument") and id(node) not in called for node in nodes)


def _is_attribute(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == name


def _hands_on_parser(nodes: Iterable[ast.AST], calls: Sequence[ast.Call]) -> bool:
    """Return whether a parser is passed to a function from elsewhere, which may declare more arguments."""
    parsers, own = set(_parsers(nodes, calls)), set[str]()
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            own.add(node.name)
    given = [(call, [*call.args, *(keyword.value for keyword in call.keywords)]) for call in calls]
    return any(
        _last_name(call.func) not in own for call, values in given if {_last_name(each) for each in values} & parsers
    )


def _parsers(nodes: Iterable[ast.AST], calls: Iterable[ast.Call]) -> Iterator[str]:
    """Yield the names of variables that contain a parser."""
    for node in nodes:
        if isinstance(node, ast.Assign) and _last_name(getattr(node.value, "func", None)) in _PARSERS:
            yield from filter(None, map(_last_name, node.targets))
    for call in calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument":
            yield from filter(None, [_last_name(call.func.value)])


def _parses_other_words(nodes: Sequence[ast.AST], calls: Iterable[ast.Call]) -> bool:
    """Return whether other words than those after the script's name may be parsed."""
    whole = {id(node.value) for node in nodes if isinstance(node, ast.Subscript) and _is_all_words(node)}
    if any(_is_argv(node) and id(node) not in whole for node in nodes):
        return True
    optional = set(_optional_parameters(nodes))
    for call in calls:
        if _is_attribute(call.func, "parse_args"):
            given = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "args")]
            for words in given:
                is_none = isinstance(words, ast.Constant) and words.value is None
                is_all = isinstance(words, ast.Subscript) and id(words.value) in whole
                if not (is_none or is_all or (isinstance(words, ast.Name) and (whole or words.id in optional))):
                    return True
    return False


def _is_argv(node: ast.AST) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "sys" and any(alias.name in ("argv", "*") for alias in node.names)
    return isinstance(node, ast.Attribute) and node.attr == "argv" and _last_name(node.value) == "sys"


def _is_all_words(node: ast.Subscript) -> bool:
    """Return whether the expression is `sys.argv[1:]`."""
    return _is_argv(node.value) and ast.unparse(node.slice) == "1:"


def _optional_parameters(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield parameters whose default is None, as in `def main(argv=None)`."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            named = [*node.args.posonlyargs, *node.args.args]
            pairs = [*zip(named[::-1], node.args.defaults[::-1], strict=False)]
            for parameter, default in [*pairs, *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)]:
                if isinstance(default, ast.Constant) and default.value is None:
                    yield parameter.arg
