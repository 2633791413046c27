"""Losses that compare the samples of a batch with each other, as the code shows them; it is never run.

On several GPUs, each process compares the samples of its own share. Such losses have many forms; found are those whose
name says so, those whose labels are the places of the samples, and products of a batch with itself.
"""

import ast
import re
from collections.abc import Iterator

__all__ = ["IN_BATCH", "compares_in_batch"]

#: Name of such a loss among a script's layers.
IN_BATCH = "negatives from the same batch"

#: Common names of such losses, without underscores and in lower case.
_NAMED = re.compile(
    r".*(infonce|ntxent|supcon|siglip|cliploss|contrastiveloss|npairs?loss|batch(hard|all|semihard)|inbatchneg|"
    r"multiplenegatives|barlowtwins|vicreg|lifted?structure|softtriple|circleloss).*"
)
_PAIRWISE = frozenset({"pdist"})
#: Functions that only compare scores: labels are their second argument.
_LABELLED = re.compile(r"(?i)cross_?entropy|criterion|loss|nll")
#: Functions that make a loss of the product of a batch with itself, if they are called in the same function.
_OF_SIMILARITIES = frozenset(
    {"fill_diagonal_", "eye", "logsumexp", "log_softmax", "cross_entropy", "exp", "logsigmoid", "arange"}
)
_WEIGHT = re.compile(r"(?i)^w$|weight|kernel|embedding")


def compares_in_batch(tree: ast.AST) -> bool:
    """Return whether the source has a loss over pairs of samples of a batch."""
    return any(_is_named(node) or _is_labelled_by_place(node) for node in ast.walk(tree)) or any(
        _multiplies_batch_with_itself(function) for function in _functions(tree)
    )


def _is_named(node: ast.AST) -> bool:
    name = _name(node)
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        name = node.name
    return name in _PAIRWISE or bool(_NAMED.fullmatch(name.replace("_", "").lower()))


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else node.name if isinstance(node, ast.alias) else ""


def _is_labelled_by_place(node: ast.AST) -> bool:
    """Return whether the node is a body in which labels of a loss come from `arange`."""
    if not isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    places = {
        target.id
        for each in ast.walk(node)
        if isinstance(each, ast.Assign) and _has_arange(each.value, frozenset())
        for target in each.targets
        if isinstance(target, ast.Name)
    }
    return any(
        _has_arange(labels, places)
        for each in ast.walk(node)
        if isinstance(each, ast.Call) and _LABELLED.search(ast.unparse(each.func))
        for labels in _labels(each)
    )


def _labels(call: ast.Call) -> Iterator[ast.expr]:
    yield from call.args[1:2]
    yield from (keyword.value for keyword in call.keywords if keyword.arg in ("target", "labels"))


def _has_arange(value: ast.expr, places: frozenset[str] | set[str]) -> bool:
    """Return whether the value is `arange(...)`, or one of these names, in an expression without a comparison."""
    nodes = list(ast.walk(value))
    if any(isinstance(each, ast.Compare) for each in nodes):
        return False
    is_call = any(isinstance(each, ast.Call) and _name(each.func) == "arange" for each in nodes)
    return is_call or (isinstance(value, ast.Name) and value.id in places)


def _functions(tree: ast.AST) -> Iterator[ast.AST]:
    yield from (each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
    yield ast.Module([each for each in getattr(tree, "body", []) if not isinstance(each, ast.ClassDef)], [])


def _multiplies_batch_with_itself(function: ast.AST) -> bool:
    nodes = list(ast.walk(function))
    if _OF_SIMILARITIES.isdisjoint(map(_name, nodes)):
        return False
    return any(_is_product_with_itself(node) for node in nodes)


def _is_product_with_itself(node: ast.AST) -> bool:
    """Return whether the node is `z @ z.T`, `torch.mm(z, z.t())` or the like."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        left, right = node.left, node.right
    elif isinstance(node, ast.Call) and _name(node.func) in ("mm", "matmul") and len(node.args) == 2:
        left, right = node.args
    elif isinstance(node, ast.Call) and _name(node.func) in ("mm", "matmul") and isinstance(node.func, ast.Attribute):
        left, right = node.func.value, node.args[0]
    else:
        return False
    return ast.unparse(left) == _transposed(right) and not _WEIGHT.search(ast.unparse(left))


def _transposed(node: ast.expr) -> str | None:
    """Return the source of the matrix whose transpose the node is; None if it is none."""
    if isinstance(node, ast.Attribute) and node.attr == "T":
        return ast.unparse(node.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        arguments = [ast.unparse(each) for each in node.args]
        if (node.func.attr, arguments) in (("t", []), ("transpose", ["0", "1"]), ("transpose", ["1", "0"])):
            return ast.unparse(node.func.value)
    return None
