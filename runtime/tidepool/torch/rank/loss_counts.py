"""Read from the graph of a loss how many items it is a mean over.

`cross_entropy` with labels that are ignored, or with weights of classes, is a mean over what its micro-batch holds of
them, which differs from rank to rank. So is a sum that the script divides by the tokens of a mask. A plain sum is no
mean at all. Autograd keeps what such a loss was divided by: no call has to be watched for it, and nothing is computed
again. On a GPU, counts are tensors that nobody waits for.

A loss may add several terms: the count is that of its labels. Where several terms have some, it is that of the term
with one for each sample, or else of the first one. A mean of several losses, as of the tasks of a batch, counts the
items of all of them. Penalties of the parameters alone have no count. A graph that says nothing (a compiled loss, say)
counts its samples.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch

__all__ = ["Count", "LossCount", "Weight", "count_of", "weighted_gradient"]

#: Number of items that a loss is a mean over, and its factor in a step: on a GPU tensors that nobody waits for.
Count = float | torch.Tensor
Weight = float | torch.Tensor

#: Upper bound of the nodes of a graph that are looked at.
_MOST_NODES = 2000
#: Losses of torch by the name of their node, with their reduction among what the node keeps.
_LABELLED = frozenset({"NllLossBackward0", "NllLoss2DBackward0"})
_ELEMENTWISE = frozenset(
    {
        *("MseLossBackward0", "SmoothL1LossBackward0", "HuberLossBackward0", "SoftMarginLossBackward0"),
        *("BinaryCrossEntropyBackward0", "BinaryCrossEntropyWithLogitsBackward0", "KlDivBackward0"),
    }
)
_MEAN, _SUM = 1, 2
#: A change of shape or type, or of the sign.
_UNCHANGED = frozenset(
    {
        *("ToCopyBackward0", "ViewBackward0", "ReshapeAliasBackward0", "UnsafeViewBackward0", "CloneBackward0"),
        *("SqueezeBackward0", "SqueezeBackward1", "UnsqueezeBackward0", "AliasBackward0", "NegBackward0"),
        *("RsubBackward1",),
    }
)
_ADDED = frozenset({"AddBackward0", "SubBackward0"})
_JOINED = frozenset({"StackBackward0"})
_MULTIPLIED = frozenset({"MulBackward0", "MulBackward1"})
_DIVIDED = frozenset({"DivBackward0", "DivBackward1"})
_SUMMED = frozenset({"SumBackward0", "SumBackward1"})
_AVERAGED = frozenset({"MeanBackward0", "MeanBackward1"})
_REDUCED = _SUMMED | _AVERAGED | {"LinalgVectorNormBackward0", "NormBackward0", "NormBackward1"}
#: Operations of a penalty: on parameters, and on nothing else.
_OF_PARAMETERS = frozenset(
    {
        *("PowBackward0", "AbsBackward0", "SqrtBackward0", "ExpBackward0", "LogBackward0", "SoftplusBackward0"),
        *("LinalgVectorNormBackward0", "NormBackward0", "NormBackward1", "CatBackward0", "TBackward0"),
        *(
            "PermuteBackward0",
            "MmBackward0",
            "SquareBackward0",
            "ClampBackward0",
            "ClampBackward1",
            "ClampMinBackward0",
        ),
        *(_UNCHANGED | _ADDED | _JOINED | _MULTIPLIED | _DIVIDED | _SUMMED | _AVERAGED),
    }
)


@dataclass(frozen=True)
class LossCount:
    """What a loss is a mean over. count: items; None: the samples. is_sum: it is a sum over them instead."""

    count: Count | None = None
    is_sum: bool = False
    #: Terms of the loss are means over different items, or some are sums: no one count fits all of them.
    is_mixed: bool = False


_OF_SAMPLES = LossCount()


@dataclass(frozen=True)
class _Term:
    """A term of a loss. count: items that it is a mean over; None: the graph does not say."""

    count: Count | None = None
    is_sum: bool = False
    #: Whether the count is one of labels or a divisor of the script, not the number of all elements.
    is_explicit: bool = False
    #: Means of several losses that it belongs to, by their numbers in `_Walk.means`.
    means: tuple[int, ...] = ()


class _Way(NamedTuple):
    """Numbers by which a node is divided above it, and means of several losses that it belongs to."""

    divisors: tuple[Any, ...] = ()
    means: tuple[int, ...] = ()


@dataclass
class _Walk:
    """The way through one graph. samples: of the micro-batch; batch_size: of a step, over all ranks."""

    samples: int
    batch_size: int
    seen: dict[str, bool]
    left: int = _MOST_NODES
    terms: list[_Term] = field(default_factory=list)
    penalties: list[_Term] = field(default_factory=list)
    #: Means of several losses: (how many losses, whether this is known to be a mean of them).
    means: list[tuple[float, bool]] = field(default_factory=list)

    def go(self, root: Any) -> None:
        """Find the terms below the node."""
        #: Nodes, and what lies above each.
        waiting: list[tuple[Any, _Way]] = [(root, _Way())]
        while waiting and self.left > 0:
            self.left -= 1
            node, way = waiting.pop()
            if (below := self._below(node, way)) is not None:
                waiting += below
                continue
            kind = type(node).__name__
            is_penalty = kind in _REDUCED and self._is_of_parameters(node)
            term = replace(self._term(kind, node, way.divisors), means=way.means)
            (self.penalties if is_penalty else self.terms).append(term)
        self.terms = [self._times(term) for term in self.terms]

    def _below(self, node: Any, way: _Way) -> list[tuple[Any, _Way]] | None:
        """Return the nodes that a node adds up or leaves as they are; None: it is a term."""
        kind, inputs = type(node).__name__, _inputs(node)
        if kind in _ADDED | _JOINED or (kind in _UNCHANGED and len(inputs) == 1):
            return [(each, way) for each in inputs]
        if kind in _MULTIPLIED and len(inputs) == 1:
            inverse = _inverse(_constant(node), self.samples)
            return [(inputs[0], self._mean(way, *inverse, is_known=False))]
        if kind in _MULTIPLIED and len(varying := [one for one in inputs if not self._is_of_parameters(one)]) == 1:
            return [(varying[0], way)]
        if kind in _DIVIDED and len(inputs) == 1:
            return [(inputs[0], self._mean(way, node._saved_other, is_known=False))]
        if kind in _DIVIDED and self._is_of_parameters(inputs[1]):
            return [(inputs[0], way)]
        if kind in _SUMMED | _AVERAGED and (not node._saved_self_sym_sizes or type(inputs[0]).__name__ in _JOINED):
            joined = len(_inputs(inputs[0]))
            known = kind in _AVERAGED and type(inputs[0]).__name__ in _JOINED
            return [(inputs[0], way._replace(means=(*way.means, self._note_mean(joined, True))) if known else way)]
        return None

    def _mean(self, way: _Way, *divisors: Any, is_known: bool) -> _Way:
        """Return the way below a division, which may make a mean of several losses."""
        numbers = [one for one in divisors if not isinstance(one, torch.Tensor) or one.device.type == "cpu"]
        found = [self._note_mean(float(one), is_known) for one in numbers if _is_single(one) and _is_python_number(one)]
        return _Way((*way.divisors, *divisors), (*way.means, *found))

    def _note_mean(self, losses: float, is_known: bool) -> int:
        self.means.append((losses, is_known))
        return len(self.means) - 1

    def _times(self, term: _Term) -> _Term:
        """Count the items of all losses of whose mean it is a part, as of a sum divided by the number of its terms."""
        factor = 1.0
        for number in term.means:
            losses, is_known = self.means[number]
            if losses > 1 and (is_known or losses == sum(number in other.means for other in self.terms)):
                factor *= losses
        if factor == 1.0 or term.is_sum:
            return term
        return replace(term, count=factor * (1.0 if term.count is None else term.count))

    def _term(self, kind: str, node: Any, divisors: tuple[Any, ...]) -> _Term:
        if kind in _LABELLED and node._saved_reduction == _MEAN:
            return _Term(_number(node._saved_total_weight), is_explicit=True)
        if kind in _LABELLED and node._saved_reduction == _SUM:
            return self._sum(divisors, (), [lambda: float(node._saved_total_weight)], is_known=True)
        if kind in _ELEMENTWISE and node._saved_reduction == _MEAN:
            return _Term(float(node._saved_target.numel()))
        if kind in _ELEMENTWISE and node._saved_reduction == _SUM:
            sizes = tuple(node._saved_target.shape)
            return self._sum(divisors, (math.prod(sizes), *sizes[:1]), [])
        if kind in _AVERAGED:
            return _averaged(node)
        if kind in _SUMMED:
            sizes = tuple(node._saved_self_sym_sizes)
            return self._sum(divisors, (math.prod(sizes), *sizes[:1]), _masked(_inputs(node)))
        return _Term()

    def _sum(
        self,
        divisors: tuple[Any, ...],
        sizes: tuple[int, ...],
        labels: list[Callable[[], float]],
        *,
        is_known: bool = False,
    ) -> _Term:
        """Find what a sum has been divided by: a count, or numbers that are the same in each micro-batch.

        sizes: of what was added. labels: how many of these count. is_known: no other number counts them.
        """
        for divisor in divisors:
            if isinstance(divisor, torch.Tensor) and divisor.numel() != 1:
                return _Term()
            if isinstance(divisor, torch.Tensor) and divisor.device.type != "cpu":
                return _Term(divisor.detach(), is_explicit=True)
            number, is_python = float(divisor), _is_python_number(divisor)
            counts = [count() for count in labels]
            if is_python and self._is_constant(number, counts):
                continue
            if is_python and number == self.samples:
                return _Term(number, is_explicit=True)
            if not number or (counts and not all(counts)):  # nothing counts; some scripts avoid a division by 0 then
                return _Term(0.0, is_explicit=True)
            if not is_python or number in (*map(float, sizes), *counts) or (number.is_integer() and not is_known):
                return _Term(number, is_explicit=True)
        return _Term(is_sum=True)

    def _is_constant(self, number: float, counts: list[float]) -> bool:
        """Return whether the script divides by the size of its batches. A count of labels may be that number, too."""
        is_batch_size, is_count = number == self.batch_size, number in counts
        if is_batch_size != is_count:
            self.seen["constant"] = is_batch_size
        return is_batch_size and (not is_count or self.seen.get("constant", False))

    def _is_of_parameters(self, root: Any) -> bool:
        """Return whether the value follows from the parameters alone, so that it is the same on all ranks."""
        waiting = [root]
        while waiting:
            self.left -= 1
            node = waiting.pop()
            kind = type(node).__name__
            if kind == "AccumulateGrad":
                continue
            if self.left < 0 or kind not in _OF_PARAMETERS:
                return False
            if len(inputs := _inputs(node)) < len(node.next_functions) and not (
                kind in _MULTIPLIED | _DIVIDED and _is_single(_constant(node))
            ):
                return False
            waiting += inputs
        return True


def count_of(loss: torch.Tensor, samples: int, batch_size: int, seen: dict[str, bool]) -> LossCount:
    """Return what the loss of a micro-batch of so many samples is a mean over.

    batch_size: samples of a whole step. seen: what earlier losses of the training have shown.
    """
    if loss.grad_fn is None or loss.numel() != 1:
        return _OF_SAMPLES
    walk = _Walk(samples, batch_size, seen)
    try:
        walk.go(loss.grad_fn)
    except RuntimeError:  # the graph has been freed, or what it needs was changed: backward says so
        return _OF_SAMPLES
    terms = walk.terms or walk.penalties
    if walk.left <= 0 or not terms:
        return _OF_SAMPLES
    if all(term.is_sum for term in terms):
        return LossCount(is_sum=True)
    means = [term for term in terms if not term.is_sum]
    explicit = [term.count for term in means if term.is_explicit and term.count is not None]
    known = [term.count for term in means if term.count is not None]
    chosen = (
        _chosen(explicit, samples)
        if explicit
        else known[0]
        if _are_alike(known, samples) and len(known) == len(means)
        else None
    )
    is_mixed = len(means) < len(terms) or not _are_alike([chosen, *(term.count for term in means)], samples)
    return LossCount(chosen, is_mixed=is_mixed)


def _chosen(counts: Sequence[Count], samples: int) -> Count:
    """Return that of the term with one label for each sample, or else of the first term, which the walk found last."""
    of_samples = [count for count in counts if isinstance(count, float) and count == samples]
    return of_samples[0] if of_samples else counts[-1]


def weighted_gradient(root: torch.Tensor, gradient: torch.Tensor | None, factor: Weight) -> Any:
    """The gradient to back-propagate a loss with, times its factor. gradient: the script's; None: it gives none."""
    if gradient is not None:
        return gradient * factor
    if root.numel() != 1:
        return None
    if isinstance(factor, torch.Tensor):
        return torch.ones_like(root) * factor.to(root.device, root.dtype)
    return torch.full_like(root, factor)


def _are_alike(counts: Sequence[Count | None], samples: int) -> bool:
    """Return whether weights by any of the counts are the same on all ranks. Counts on a GPU are taken to be."""
    numbers = {float(samples) if count is None else count for count in counts if not isinstance(count, torch.Tensor)}
    return len(numbers) < 2 or all(number % samples == 0 for number in numbers)


def _number(count: torch.Tensor) -> Count:
    return float(count) if count.device.type == "cpu" else count.detach()


def _inputs(node: Any) -> list[Any]:
    return [each for each, _ in node.next_functions if each is not None]


def _constant(node: Any) -> Any:
    """Return the factor or divisor that is no function of the parameters, where there is one."""
    other = node._saved_other
    return other if other is not None or type(node).__name__ in _DIVIDED else node._saved_self


def _inverse(factor: Any, samples: int) -> tuple[float, ...]:
    """Return the samples, if the factor is one by them: `loss * (1 / len(inputs))`."""
    if isinstance(factor, torch.Tensor) and (factor.numel() != 1 or factor.device.type != "cpu"):
        return ()
    number = float(factor)
    return (float(samples),) if number and math.isclose(1 / number, samples, rel_tol=1e-6) else ()


def _averaged(node: Any) -> _Term:
    """Return the term of a mean, which may be a mean of means, or of sums over the samples."""
    while len(inputs := _inputs(node)) == 1 and type(inputs[0]).__name__ in _AVERAGED:
        node = inputs[0]
    if inputs and type(inputs[0]).__name__ == "SumBackward1":
        dimensions = len(inputs[0]._saved_self_sym_sizes)
        if 0 in [_signed(each) % dimensions for each in inputs[0]._saved_dim]:
            return _Term(is_sum=True)
    return _Term(float(node._saved_self_sym_numel))


def _masked(nodes: list[Any]) -> list[Callable[[], float]]:
    """Sums of the mask by which the summed elements were multiplied, or the labels that are not ignored."""
    found: list[Callable[[], float]] = []
    for node in nodes:
        kind = type(node).__name__
        if kind in _MULTIPLIED and len(_inputs(node)) == 1 and not _is_single(mask := _constant(node)):
            found.append(lambda mask=mask: float(mask.sum()))  # type: ignore[misc]
        if kind in _LABELLED:
            found.append(lambda node=node: float((node._saved_target != _signed(node._saved_ignore_index)).sum()))  # type: ignore[misc]
    return found


def _signed(number: int) -> int:
    """Return the number as the C++ of torch means it."""
    return number - 2**64 if number >= 2**63 else number


def _is_python_number(divisor: Any) -> bool:
    """Return whether the script has divided by a number of Python's, which gives way to any type of a tensor."""
    if not isinstance(divisor, torch.Tensor):
        return True
    narrow = torch.zeros((), dtype=torch.float16 if divisor.is_floating_point() else torch.int8)
    return torch.result_type(divisor, narrow) == narrow.dtype


def _is_single(value: Any) -> bool:
    return not isinstance(value, torch.Tensor) or value.numel() == 1
