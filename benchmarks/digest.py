"""Time to compute a digest of a model, by which ranks compare their weights, against reading the weights once.

    python -m benchmarks.digest [--long] [--json FILE]

One process and one thread, with models of one and of many tensors.
"""

import time
from collections.abc import Callable
from functools import partial

import torch
from tidepool.torch.state.digest import digest

from benchmarks.results import arguments, result, show

#: Name -> number of layers, and width of each.
MODELS = {"1M parameters in 4 layers": (4, 500), "25M parameters in 100 layers": (100, 500), "25M in one": (1, 5000)}


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    torch.set_num_threads(1)
    found = []
    for name, (layers, width) in MODELS.items():
        model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers)))
        ours, once = _alternated([partial(digest, model), partial(_read, model)], 200 if options.long else 30)
        found.append(result(name, "ms", ours, "reading the weights once", once))
    show(found, options.json)


def _alternated(calls: list[Callable[[], object]], rounds: int) -> list[list[float]]:
    """Return the milliseconds of each call, made in turns."""
    times = [[1000 * _seconds(call) for call in calls] for _ in range(rounds)]
    return [list(one) for one in zip(*times, strict=True)]


def _read(model: torch.nn.Module) -> int:
    return int(sum(parameter.detach().view(-1).view(torch.int64).sum() for parameter in model.parameters()))


def _seconds(call: Callable[[], object]) -> float:
    begun_at = time.perf_counter()
    call()
    return time.perf_counter() - begun_at


if __name__ == "__main__":
    main()
