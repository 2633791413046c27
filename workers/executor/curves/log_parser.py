"""Parse output of scripts into points: progress bars, counters and metrics in usual formats, or by a pattern.

Usual are lines such as `epoch 3 loss 0.12`, `Epoch 2/10 ... loss: 0.3 - acc: 0.9`, `[100/1000] loss=0.3`, JSON, the
dictionaries that Hugging Face's Trainer prints, and the bars of tqdm and Keras. All expressions are RE2's, as those of
owners are: a line costs time in proportion to its length.

A step is what a line says, counted on where a counter begins anew with each epoch, so that no curve runs back.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from workers.executor.curves.parsed_points import Point, cleaned_name, number
from workers.executor.curves.pattern import COUNTERS, LinePattern, expression

__all__ = ["MAX_LINE", "LineReader"]

#: Characters of a line that are looked at: of one that is JSON, and of any other.
MAX_LINE: Final = 8192
_MAX_TEXT: Final = 1024
_MAX_PAIRS = 60
_MAX_COUNT: Final = 2**53
_NUMBER = r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|NaN|NAN|inf|Inf|INF)"

_ESCAPES = expression(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-_]")
_EPOCH = expression(r"(?i)\bepochs?\b[\s:#=\[(]*(\d+)(\.\d+)?\s*[\])]?(?:\s*(?:/|of)\s*(\d+))?")
_STEP = expression(
    r"(?i)\b(global[ _]?step|steps?|iter(?:ation)?s?|batch|updates?)\b[\s:#=\[(]*(\d[\d,]*)"
    r"(?:\s*(?:/|of)\s*(\d[\d,]*))?"
)
#: `[100/1000]`, `640/60000 (1%)`, `10/100 ━━━` at the beginning, `| 45/100 [` in a bar.
_FRACTION = expression(r"(?:^\s*|[\[(|]\s*)(\d+)\s*/\s*(\d+)(?:\s*[\])\[]|\s+[A-Za-z\[(━=>.\-]|\s*$)")
_TQDM = expression(r"^(.*?):?\s*(\d{1,3})%\|.*\|\s*([\d.]+)[kKMG]?\s*/\s*([\d.]+)[kKMG]?\s*\[")
_UNBOUNDED_TQDM = expression(r"^(?:(.*?):\s*)?(\d+)it \[")
_QUOTED_PAIR = expression(r"""['"]([\w./ @-]{1,64})['"]\s*:\s*['"]?(""" + _NUMBER + r""")['"]?\s*[,}]""")
_PAIR = expression(
    r"([A-Za-z][\w@./]*(?:[ _-][A-Za-z][\w@./]*){0,2})\s*(?:[:=]+\s*|\s)(" + _NUMBER + r")"
    r"(?:\s*/\s*(\d+)\s*\((\d+)%\))?(%?)(?:[\s,;|)\]}]|\.?$|\.\s)"
)
#: Without a sign between name and number, the words of both would be one name: `loss nan lr 0.1`.
_SPACED_NAN = expression(r"(\w)\s+([-+]?(?:nan|NaN|NAN|inf|Inf|INF))\b")
_SPLIT = expression(r"(?i)^\W*(test|testing|val|valid|validation|eval|evaluation|train|training)\b")
_METRIC_WORD = expression(
    r"(?i)(?:^|[_\W])(?:\w*loss|acc|accuracy|acc@\d+|top\d|err|error|f1|auc|roc_auc|auroc|ppl|perplexity|lr|learning_rate"
    r"|mse|mae|rmse|r2|bleu|rouge\w*|wer|cer|map|iou|miou|dice|precision|recall|reward|return|psnr|ssim|fid|elbo|kl"
    r"|grad_norm|entropy|score|bpc|bpb)(?:$|[_\W])"
)
#: Names that many lines have and that are no metrics.
_NO_METRICS: Final = frozenset(
    {
        *("", "epoch", "epochs", "step", "steps", "iter", "iters", "iteration", "iterations", "batch", "batches"),
        *("global_step", "update", "updates", "it", "eta", "time", "elapsed", "data", "seed", "rank", "world_size"),
        *("gpu", "gpus", "cuda", "device", "port", "pid", "size", "v_num", "version", "mem", "memory", "max_mem"),
        *("workers", "num_workers", "batch_size", "total", "in", "of", "at", "on", "id", "job", "node", "local_rank"),
        *("took", "train", "test", "val", "eval", "set", "s", "ms", "it/s", "line"),
    }
)

_DROPPED_WORDS: Final = frozenset(
    {"average", "avg", "mean", "running", "current", "the", "set", "epoch", "step", "iter"}
)
_SPLITS: Final = {"test": "test", "testing": "test", "val": "val", "valid": "val", "validation": "val"} | dict.fromkeys(
    ("eval", "evaluation"), "eval"
)
_STEP_KEYS: Final = ("step", "global_step", "_step", "trainer/global_step", "iteration", "iter", "steps", "batch")
_TIME_KEYS: Final = frozenset({"timestamp", "time", "_timestamp", "ts", "pid", "level", "seed", "rank"})


@dataclass
class _Seen:
    """Content of one line."""

    epoch: float | None = None
    total_epochs: int | None = None
    step: int | None = None
    total_steps: int | None = None
    #: Of the whole training, 0..1, where the line says so itself.
    part: float | None = None
    #: A bar's name, where the line is a bar.
    bar: str | None = None
    metrics: dict[str, float | None] = field(default_factory=dict)


@dataclass
class LineReader:
    """The lines of one stream, one after the other. What it remembers is in its fields, and small."""

    #: How many epochs it trains, as its arguments say; 0: they do not.
    total_epochs: int = 0
    epoch: float = 0.0
    #: Of the first epoch, 0 or 1; None: none was named yet.
    first_epoch: int | None = None
    #: Where the newest point was.
    step: int = 0
    #: The newest counter as it was printed, its total, and what is added to it.
    counter: int = 0
    total_steps: int = 0
    before: int = 0
    #: Whether lines count steps, so that one that names only an epoch stands where these are.
    counts_steps: bool = False
    #: A counter without an epoch has begun anew: its part is no progress of the whole.
    restarts: bool = False
    #: Epochs have parts, as Hugging Face's, and nothing counts steps: one point after the other then.
    has_parts: bool = False

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "LineReader":
        return cls(**values)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def point(self, line: str, pattern: LinePattern | None = None) -> Point | None:
        """The point that a line gives; None for one that says nothing."""
        text = _plain(line)
        seen = _by_pattern(text, pattern) if pattern else _as_usual(text)
        if seen is None:
            return None
        self._follow(seen)
        if not seen.metrics and seen.bar is None and seen.part is None and not self._tells_position(seen):
            return None
        if seen.metrics and not self.counts_steps and (self.has_parts or (seen.epoch is None and not self.epoch)):
            self.step += 1
        return Point(self.step, seen.metrics, int(self.epoch), self._progress(seen))

    def _tells_position(self, seen: _Seen) -> bool:
        return seen.epoch is not None or seen.step is not None

    def _follow(self, seen: _Seen) -> None:
        """Move on to where the line says that the script is."""
        if seen.total_epochs:
            self.total_epochs = seen.total_epochs
        began = seen.epoch is not None and int(seen.epoch) != int(self.epoch)
        if seen.epoch is not None:
            self.first_epoch = 0 if seen.epoch < 1 or self.first_epoch == 0 else 1
            self.has_parts = self.has_parts or seen.epoch != int(seen.epoch)
            self.epoch = seen.epoch
        if seen.step is not None:
            self._count(seen.step, seen.total_steps or 0, began=began)
        elif seen.epoch is not None and not self.counts_steps and not self.has_parts:
            self.step = int(seen.epoch)

    def _count(self, counter: int, total: int, *, began: bool) -> None:
        self.counts_steps = True
        starts_anew = counter < self.counter or (began and total and counter <= self.counter)
        if starts_anew:
            self.before += max(self.counter, self.total_steps)
            self.restarts = True
        self.counter, self.total_steps = counter, total
        self.step = min(self.before + counter, _MAX_COUNT)

    def _progress(self, seen: _Seen) -> float | None:
        if seen.part is not None:
            return seen.part
        part = min(self.counter / self.total_steps, 1.0) if self.total_steps else 0.0
        if self.first_epoch is None:
            return None if self.restarts or not self.total_steps else part
        if not self.total_epochs:
            return None
        if self.has_parts:
            return min(self.epoch / self.total_epochs, 1.0)
        if not self.total_steps:
            part = 1.0 if seen.metrics else 0.0  # metrics without a counter come at the end of an epoch
        return min(max((self.epoch - self.first_epoch + part) / self.total_epochs, 0.0), 1.0)


def _plain(line: str) -> str:
    """Remove escapes, and of what was written over by backspaces all but the last (Keras)."""
    text = line[-MAX_LINE:] if "\b" in line else line[:MAX_LINE]
    return str(_ESCAPES.sub("", text.rsplit("\b", 1)[-1])).strip()


# --- a pattern -------------------------------------------------------------------------------------------------------


def _by_pattern(text: str, pattern: LinePattern) -> _Seen | None:
    found = pattern.matches(text[:_MAX_TEXT], _MAX_PAIRS)
    if not found:
        return None
    seen = _Seen()
    for groups in found:
        for name, value in groups.items():
            if name not in (*COUNTERS, "name", "value"):
                _add(seen.metrics, name, value)
        if "name" in groups and "value" in groups:
            _add(seen.metrics, groups["name"], groups["value"])
        seen.step = _whole(groups.get("step"), seen.step)
        seen.total_steps = _whole(groups.get("total_steps"), seen.total_steps)
        seen.total_epochs = _whole(groups.get("total_epochs"), seen.total_epochs)
        seen.epoch = _real(groups.get("epoch"), seen.epoch)
        percent = _real(groups.get("percent"), None)
        seen.part = seen.part if percent is None else min(percent / 100, 1.0)
    return seen


# --- the usual ways --------------------------------------------------------------------------------------------------


def _as_usual(text: str) -> _Seen | None:
    if not text:
        return None
    if text[0] == "{" and text[-1] == "}":
        seen = _record(text)
        return seen if seen.metrics else None
    text = text[:_MAX_TEXT]
    if bar := _bar(text):
        return bar
    seen = _counters(text)
    seen.metrics = _pairs(text, is_counted=seen.epoch is not None or seen.step is not None)
    is_position = seen.total_epochs is not None or seen.total_steps is not None
    return seen if seen.metrics or is_position else None


def _record(text: str) -> _Seen:
    """A line of JSON, or the dictionary that Python prints."""
    values = dict(_flat(_json(text))) or dict(_QUOTED_PAIR.findall(text[:_MAX_TEXT])[:_MAX_PAIRS])
    seen = _Seen()
    lower = {name.lower(): name for name in values}
    step = next((lower[key] for key in _STEP_KEYS if key in lower), None)
    epoch = lower.get("epoch")
    seen.step = _whole(str(values[step]), None) if step else None
    seen.epoch = _real(str(values[epoch]), None) if epoch else None
    for name, value in values.items():
        if name not in (step, epoch) and name.lower() not in _TIME_KEYS:
            _add(seen.metrics, name, str(value))
    return seen


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _flat(values: Any) -> Iterator[tuple[str, Any]]:
    """Numbers by name, those one level below with the upper name before theirs."""
    for name, value in list(values.items())[:_MAX_PAIRS] if isinstance(values, dict) else ():
        if isinstance(value, dict):
            yield from ((f"{name}/{part}", each) for part, each in value.items() if type(each) in (int, float))
        elif type(value) in (int, float):
            yield name, value


def _bar(text: str) -> _Seen | None:
    """A bar of tqdm: `Epoch 1:  45%|████▌     | 450/1000 [00:10<00:12, 45.2it/s, loss=0.345]`."""
    if match := _TQDM.search(text):
        name, _, done, total = match.groups()
        counts = _whole(done.partition(".")[0], None), _whole(total.partition(".")[0], None)
        rest = text[match.end() :]
    elif match := _UNBOUNDED_TQDM.search(text):
        name, counts, rest = match.group(1) or "", (_whole(match.group(2), None), None), text[match.end() :]
    else:
        return None
    seen = _counters(name)
    seen.bar, (seen.step, seen.total_steps) = name.strip(), counts
    seen.metrics = _pairs(f" {rest.rstrip(']')} ", is_counted=True) | _pairs(f"{name} ", is_counted=False)
    return seen


def _counters(text: str) -> _Seen:
    seen = _Seen()
    if epoch := _EPOCH.search(text):
        whole, part, total = epoch.groups()
        seen.epoch, seen.total_epochs = _real(whole + (part or ""), None), _whole(total, None)
    if step := _STEP.search(text):
        seen.step, seen.total_steps = _whole(step.group(2), None), _whole(step.group(3), None)
    if seen.total_steps is None:
        for done, total in _FRACTION.findall(text)[:_MAX_PAIRS]:
            of_epochs = seen.total_epochs is not None and _whole(total, None) == seen.total_epochs
            if 0 < int(total[:16]) >= int(done[:16]) and not (of_epochs and _whole(done, None) == seen.epoch):
                seen.step, seen.total_steps = _whole(done, None), _whole(total, None)
                break
    return seen


def _pairs(text: str, *, is_counted: bool) -> dict[str, float | None]:
    """Names with numbers. Where the line counts nothing, only names of usual metrics."""
    split = _SPLIT.search(text)
    prefix = _SPLITS.get(split.group(1).lower(), "") if split else ""
    found: dict[str, float | None] = {}
    signed = _SPACED_NAN.sub(r"\1=\2", text)
    for name, value, total, percent, sign in _PAIR.findall(f"{signed} ")[:_MAX_PAIRS]:
        words = _name_of(name)
        is_metric = bool(words) and _METRIC_WORD.search(words) is not None
        if not {words, words.rpartition("_")[2]}.isdisjoint(_NO_METRICS) or not (
            is_metric or (is_counted and _is_assigned(text, name))
        ):
            continue
        full = f"{prefix}_{words}" if prefix and not words.startswith(f"{prefix}_") else words
        if full not in found:
            _add(found, full, percent if total and percent else value + sign)
    return found


def _is_assigned(text: str, name: str) -> bool:
    """Return whether `:` or `=` stands behind the name: a number behind a blank may be anything."""
    rest = text[text.find(name) + len(name) :].lstrip()
    return rest[:1] in (":", "=")


def _name_of(text: str) -> str:
    words = [word for word in text.replace(" ", "_").split("_") if word]
    while words and words[0].lower() in _DROPPED_WORDS:
        words.pop(0)
    return "_".join(words).lower()


def _add(metrics: dict[str, float | None], name: str, text: str) -> None:
    try:
        value = number(text)
    except ValueError:
        return
    if name := cleaned_name(name):
        metrics[name] = value


def _whole(text: str | None, otherwise: int | None) -> int | None:
    value = _real(text, None)
    return int(value) if value is not None else otherwise


def _real(text: str | None, otherwise: float | None) -> float | None:
    """A count, which is finite and not below 0."""
    try:
        value = number(text) if text else None
    except ValueError:
        return otherwise
    return value if value is not None and 0 <= value < _MAX_COUNT else otherwise
