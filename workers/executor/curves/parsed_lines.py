"""Parse a line of a script's output: its counters, metrics and progress bar, in common formats or by a pattern.

Common formats are `epoch 3 loss 0.12`, `Epoch 2/10 ... loss: 0.3 - acc: 0.9`, `[100/1000] loss=0.3`, JSON (also behind
a logger's prefix), the dictionaries that Hugging Face's Trainer prints, rows of tables with a name and a number, and
the bars of tqdm and Keras. Tensors and NumPy's numbers count as their values, and printed arguments as nothing. All
expressions, like users' patterns, are RE2's: a line takes time linear in its length.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from workers.executor.curves.parsed_points import cleaned_name, number
from workers.executor.curves.pattern import COUNTERS, LinePattern, expression

__all__ = ["HELD_OUT", "MAX_COUNT", "MAX_LINE", "ParsedLine", "parsed_line"]

#: Highest number of characters that are parsed of a line of JSON, and of any other line.
MAX_LINE: Final = 8192
_MAX_TEXT: Final = 1024
#: Highest number of name-value pairs of a line.
_MAX_PAIRS = 60
#: Largest difference of a printed ratio from that of its samples.
_RATIO_TOLERANCE = 0.006
MAX_COUNT: Final = 2**53
_NUMBER = r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|NaN|NAN|inf|Inf|INF)"

_WHOLE_NUMBER = expression(_NUMBER)
_ESCAPES = expression(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-_]")
_EPOCH = expression(
    r"(?i)\b(epochs?|ep)\b(?:\((?:train|val|test)\))?[\s:#=\[(]*(\d+)(\.\d+)?\s*[\])]?(?:\s*(?:/|of)\s*(\d+))?"
)
_STEP = expression(
    r"(?i)\b(global[ _]?step|num_updates|steps?|iter(?:ation)?s?|batch|updates?|episodes?|rounds?)\b"
    r"[\s:#=\[(]*(\d[\d,]*)\b(?:\s*(?:/|of)\s*(\d[\d,]*))?"
)
#: `It: 100`; without the colon, "it" is a word.
_SHORT_STEP = expression(r"(?i)(?:^|[\s\[(])it\s*[:=#]\s*(\d[\d,]*)\b")
#: A line that only says which epoch begins: `Epoch 3`, `----- Starting epoch 3 -----`.
_EPOCH_ALONE = expression(r"(?i)^\W*(?:(?:begin|start|train)\w*\W+)?epoch\b\W*\d+\W*$")
#: Month and day, or a date, in front of the time at which a logger wrote the line: no fraction.
_LOGGED_AT = expression(r"^\W*\d{2}/\d{2}(?:/\d{2,4})?[\s,]+\d{2}:\d{2}:\d{2}\b")
#: `[1,  2000]` at the beginning: an epoch and a step.
_EPOCH_AND_STEP = expression(r"^\W*\[\s*(\d+)\s*,\s*(\d+)\s*\]")
#: `Acc: 91.25% (9125/10000)`: the numbers of samples that the value is a ratio of.
_RATIO = expression(
    r"(?i)(?:acc\w*|err\w*|precision|recall|f1|score|correct\w*)(?:@\d+)?\W*(\d+\.?\d*)\s*%?\s*\((\d+)\s*/\s*(\d+)"
)
#: `[3/25][100/1583]`: epochs and steps. `Train: 1 [50/1251 (4%)]`: an epoch and steps.
_FRACTIONS = expression(r"^\W*\[\s*(\d+)\s*/\s*(\d+)\s*\]\s*\[\s*(\d+)\s*/\s*(\d+)\s*\]")
_TRAIN_EPOCH = expression(r"(?i)^\W*train:?\s+(\d+)\s+\[")
#: A line or a bar about an evaluation, whose counter is not the training's.
_EVALUATION = expression(
    r"(?i)^\W*(?:test|val|eval)(?:ing|id|idation|idating|uation|uating)?\b|\bepoch\((?:val|test)\)"
)
#: Names of bars of other work than training steps.
_OTHER_WORK = expression(
    r"(?i)^\W*(?:sanity|predict|map|filter|download|load|fetch|tokeni|generat|writ|sav|resolv|extract|collat|prepar"
    r"|comput|process|casting|flatten|upload|creating)\w*\b"
)
#: Source files, whose lines are no values: `reducer.cpp:1529`.
_SOURCE_FILE = expression(r"\.(?:cpp|cc|cu|cuh|h|hpp|py|pyx|go|java|rs|js|ts|c)$")
_DIGITS = expression(r"\d+")
#: `[17]` and `100:` at the beginning, as gradient boosting prints its rounds.
_ROUND = expression(r"^(?:\[(\d+)\]|(\d+):)\s")
#: `[100/1000]`, `640/60000 (1%)`, `10/100 ━━━` at the beginning, `| 45/100 [` in a bar.
_FRACTION = expression(
    r"(?:^\s*|[\[(|]\s*|━\s+|[=>.#]\]\s+)(\d+)\s*/\s*(\d+)"
    r"(?:\s*[\])\[]|\s+[A-Za-z\[(━=>.\-]|\s+\d+:\d|\s*$)"
)
_TQDM = expression(r"^(.*?):?\s*(\d{1,3})%\|.*\|\s*([\d.]+)[kKMG]?\s*/\s*([\d.]+)[kKMG]?\s*\[")
#: `1/100  2.1G  1.3  640: 45%|██`: epochs in front of the name of a bar, as YOLO prints them.
_OUTER_FRACTION = expression(r"^\s*(\d+)/(\d+)\s")
#: Name of a bar that counts epochs.
_EPOCH_BAR = expression(r"(?i)^(?:training\s+)?epochs?$")
_UNBOUNDED_TQDM = expression(r"^(?:(.*?):\s*)?(\d+)it \[")
_QUOTED_PAIR = expression(r"""['"]([\w./ @-]{1,64})['"]\s*:\s*['"]?(""" + _NUMBER + r""")['"]?\s*[,}]""")
_PAIR = expression(
    r"([A-Za-z][\w@./]*(?:[ _-][A-Za-z][\w@./]*){0,2})(?:\s*\(([A-Za-z%][\w %/]{0,15})\))?"
    r"\s*(?:[:=]+\s*\[?|\s)(" + _NUMBER + r")"
    r"(?:\s*/\s*(\d+)\s*\((\d+)%\))?(%?)(?:[\s,;|)\]}]|\.?$|\.\s)"
)
#: `Accuracy of the network on the 10000 test images: 55 %`
_SENTENCE = expression(
    r"(?i)^\W*(?:\w+\s+)?(acc\w*|loss|error)\s+(?:of|on|over)\s+[\w\s]{1,60}[:=]\s*(" + _NUMBER + r")\s*(%?)\W*$"
)
_HELD_OUT_WORD = expression(r"(?i)\b(test|val|valid|validation|eval|evaluation)\b")
#: `tensor(0.42, device='cuda:0')`, `np.float64(0.42)`.
_WRAPPED = expression(
    r"\b(?:[A-Za-z_]\w*\.)*(?:tensor|bfloat16|(?:float|int)(?:8|16|32|64)?)\(\s*(" + _NUMBER + r")\s*(?:,[^()]*)?\)"
)
#: `| loss | 0.42 |`, a row of a table.
_CELLS = expression(r"([A-Za-z][\w./ -]*?)\s*\|\s*(" + _NUMBER + r")\s*\|")
#: `training's l2`, as LightGBM names its metrics.
_OWNED = expression(r"(?i)\btraining's\s+|('s)\s+")
#: `Namespace(epochs=10, lr=0.1)`: arguments, not measurements.
_PRINTED_OBJECT = expression(r"\b[A-Z]\w*\(\s*[A-Za-z_]\w*=.*\)\W*$")
#: JSON or a dictionary behind other text.
_PREFIXED_RECORD = expression(r"^([^{]*)(\{\s*['\"].*\})$")
#: `nan` behind a name and a blank, which would otherwise become part of the next name: `loss nan lr 0.1`.
_SPACED_NAN = expression(r"(\w)\s+([-+]?(?:nan|NaN|NAN|inf|Inf|INF))\b")
_SPLIT = expression(r"(?i)^\W*(test|testing|val|valid|validation|eval|evaluation|train|training)\b")
HELD_OUT = expression(
    r"^(?:test|val|valid|validation|eval|evaluation)[_/]|[_/](?:test|val|valid|validation|eval|evaluation)$"
)
_METRIC_WORD = expression(
    r"(?i)(?:^|[_\W])(?:\w*loss|acc|accuracy|acc@\d+|top\d|err|error|f1|auc|roc_auc|auroc|ppl|perplexity|lr|learning_rate"
    r"|mse|mae|rmse|r2|bleu|rouge\w*|wer|cer|map|iou|miou|dice|precision|recall|reward|return|psnr|ssim|fid|elbo|kl"
    r"|grad_norm|entropy|score|bpc|bpb|rew)(?:$|[_\W])"
)
#: Common names of numbers that are no metrics.
_NO_METRICS: Final = frozenset(
    {
        *("", "epoch", "epochs", "step", "steps", "iter", "iters", "iteration", "iterations", "batch", "batches"),
        *("global_step", "update", "updates", "it", "eta", "time", "elapsed", "data", "seed", "rank", "world_size"),
        *("gpu", "gpus", "cuda", "device", "port", "pid", "size", "v_num", "version", "mem", "memory", "max_mem"),
        *("workers", "num_workers", "batch_size", "total", "in", "of", "at", "on", "id", "job", "node", "local_rank"),
        *("batchsize", "bs", "it/s_v_num", "took", "train", "test", "val", "eval", "set", "s", "ms", "it/s", "line"),
    }
)

_DROPPED_WORDS: Final = frozenset(
    {"average", "avg", "mean", "running", "current", "the", "set", "epoch", "step", "iter"}
)
#: Last words of a metric's name, as in `loss_train` and `loss_epoch`, which alone are no metrics.
_LAST_WORDS: Final = frozenset({"train", "test", "val", "eval"})
_JOINED_LAST_WORDS: Final = frozenset({"batch", "epoch", "iter", "set", "step", "total"})
#: Last words that a number follows in a sentence: `val_loss improved from 0.5 to 0.4`.
_PREPOSITIONS: Final = frozenset({"above", "after", "below", "by", "from", "over", "than", "to"})
_SPLITS: Final = {"test": "test", "testing": "test", "val": "val", "valid": "val", "validation": "val"} | dict.fromkeys(
    ("eval", "evaluation"), "eval"
)
#: Keys of settings: a record with one of them, and without a step or an epoch, is a configuration.
_SETTINGS: Final = frozenset(
    {"epochs", "num_epochs", "n_epochs", "max_epochs", "num_train_epochs", "batch_size", "max_steps", "seed"}
)
_STEP_KEYS: Final = (
    "step",
    "num_updates",
    "global_step",
    "_step",
    "trainer/global_step",
    "iteration",
    "iter",
    "steps",
    "batch",
)
_TIME_KEYS: Final = frozenset({"update", "timestamp", "time", "_timestamp", "ts", "pid", "level", "seed", "rank"})


@dataclass
class ParsedLine:
    """Values parsed from one line."""

    epoch: float | None = None
    total_epochs: int | None = None
    step: int | None = None
    total_steps: int | None = None
    #: Progress of the whole training, 0 to 1, if the line states it.
    progress: float | None = None
    #: Name of the progress bar; None if the line is no bar.
    bar: str | None = None
    metrics: dict[str, float | None] = field(default_factory=dict)

    @property
    def bar_key(self) -> str:
        """Return the name of the bar without numbers, and its total, which are equal in all lines of one bar."""
        return f"{_DIGITS.sub('', self.bar or '').strip()}|{self.total_steps or 0}"


def parsed_line(line: str, pattern: LinePattern | None = None) -> ParsedLine | None:
    """Return the values of a line, by the pattern if there is one; None if it has none."""
    text = _plain(line)
    return _by_pattern(text, pattern) if pattern else _by_common_formats(text)


def _plain(line: str) -> str:
    """Remove escape sequences and text overwritten by backspaces (Keras)."""
    text = line[-MAX_LINE:] if "\b" in line else line[:MAX_LINE]
    plain = str(_ESCAPES.sub("", text.rsplit("\b", 1)[-1])).strip()
    return str(_WRAPPED.sub(r"\1", plain)) if "(" in plain else plain


# --- a pattern -------------------------------------------------------------------------------------------------------


def _by_pattern(text: str, pattern: LinePattern) -> ParsedLine | None:
    found = pattern.matches(text[:_MAX_TEXT], _MAX_PAIRS)
    if not found:
        return None
    parsed = ParsedLine()
    for groups in found:
        for name, value in groups.items():
            if name not in (*COUNTERS, "name", "value"):
                _add(parsed.metrics, name, value)
        if "name" in groups and "value" in groups:
            _add(parsed.metrics, groups["name"], groups["value"])
        parsed.step = _whole(groups.get("step"), parsed.step)
        parsed.total_steps = _whole(groups.get("total_steps"), parsed.total_steps)
        parsed.total_epochs = _whole(groups.get("total_epochs"), parsed.total_epochs)
        parsed.epoch = _real(groups.get("epoch"), parsed.epoch)
        percent = _real(groups.get("percent"), None)
        parsed.progress = parsed.progress if percent is None else min(percent / 100, 1.0)
    return parsed


# --- common formats --------------------------------------------------------------------------------------------------


def _by_common_formats(text: str) -> ParsedLine | None:
    if not text:
        return None
    if text[-1] == "}" and (record := _PREFIXED_RECORD.search(text)):
        parsed = _record(record[2])
        if parsed.metrics and (bar := _bar(record[1][:_MAX_TEXT])):
            bar.metrics |= parsed.metrics
            return bar
        return _counted_by(record[1][:_MAX_TEXT], parsed) if parsed.metrics else None
    text = text[:_MAX_TEXT]
    if bar := _bar(text):
        return bar
    if _PRINTED_OBJECT.search(text):
        return None
    if text[0] == "|":
        text = _CELLS.sub(r"\1: \2 |", text)
    parsed = _counters(text)
    parsed.metrics = _pairs(text, is_counted=parsed.epoch is not None or parsed.step is not None) or _stated(text)
    is_position = parsed.total_epochs is not None or parsed.total_steps is not None or _EPOCH_ALONE.search(text)
    return parsed if parsed.metrics or is_position else None


def _counted_by(prefix: str, parsed: ParsedLine) -> ParsedLine:
    """Return a record with the counters of the text in front of it, if it has none: `epoch 3: {'accuracy': 0.9}`."""
    if parsed.epoch is None and parsed.step is None:
        counters = _counters(prefix)
        counters.metrics = parsed.metrics
        return counters
    return parsed


def _stated(text: str) -> dict[str, float | None]:
    """Return the metric of a sentence such as `Accuracy of the network on the 10000 test images: 55 %`."""
    found: dict[str, float | None] = {}
    if (sentence := _SENTENCE.search(text)) and "class" not in text.lower():
        name, value, sign = sentence.groups()
        split = _HELD_OUT_WORD.search(text)
        _add(found, f"{_SPLITS[split[1].lower()]}_{name.lower()}" if split else name.lower(), value + sign)
    return found


def _record(text: str) -> ParsedLine:
    """Parse a line of JSON, or a dictionary printed by Python."""
    values = dict(_flat(_json(text))) or dict(_QUOTED_PAIR.findall(text[:_MAX_TEXT])[:_MAX_PAIRS])
    parsed = ParsedLine()
    lower = {name.lower(): name for name in values}
    step = next((lower[key] for key in _STEP_KEYS if key in lower), None)
    epoch = lower.get("epoch")
    if step is None and epoch is None and not _SETTINGS.isdisjoint(lower):
        return parsed
    parsed.step = _whole(str(values[step]), None) if step else None
    parsed.epoch = _real(str(values[epoch]), None) if epoch else None
    for name, value in values.items():
        if name not in (step, epoch) and name.lower() not in _TIME_KEYS:
            _add(parsed.metrics, name, str(value))
    return parsed


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _flat(values: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, number); numbers one level below have the outer name as prefix."""
    for name, value in list(values.items())[:_MAX_PAIRS] if isinstance(values, dict) else ():
        if isinstance(value, dict):
            yield from ((f"{name}/{part}", each) for part, each in value.items() if _is_number(each))
        elif _is_number(value):
            yield name, value


def _is_number(value: Any) -> bool:
    """Return whether the value is a number, or text that is one, as fairseq writes them."""
    return type(value) in (int, float) or (isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value) is not None)


def _bar(text: str) -> ParsedLine | None:
    """Parse a bar of tqdm: `Epoch 1:  45%|████▌     | 450/1000 [00:10<00:12, 45.2it/s, loss=0.345]`."""
    if match := _TQDM.search(text):
        name, _, done, total = match.groups()
        counts = _whole(done.partition(".")[0], None), _whole(total.partition(".")[0], None)
        rest = text[match.end() :]
    elif match := _UNBOUNDED_TQDM.search(text):
        name, counts, rest = match.group(1) or "", (_whole(match.group(2), None), None), text[match.end() :]
    else:
        return None
    parsed = _counters(name)
    parsed.bar = name.strip()
    if _EPOCH_BAR.search(parsed.bar):
        parsed.step, parsed.total_steps, parsed.total_epochs = None, None, counts[1]
        parsed.progress = (counts[0] or 0) / counts[1] if counts[1] else None
    else:
        if parsed.epoch is None and (outer := _OUTER_FRACTION.search(name)):
            parsed.epoch, parsed.total_epochs = _real(outer[1], None), _whole(outer[2], None)
        is_other_work = _EVALUATION.search(name) or _OTHER_WORK.search(name)
        parsed.step, parsed.total_steps = (None, None) if is_other_work else counts
    parsed.metrics = _pairs(f" {rest.rstrip(']')} ", is_counted=True) | _pairs(f"{name} ", is_counted=False)
    return parsed


def _counters(line: str) -> ParsedLine:
    parsed, text = ParsedLine(), _LOGGED_AT.sub("", line)
    if epoch := _EPOCH.search(text):
        word, whole, part, total = epoch.groups()
        if word[-1] in "sS" and total is None:  # `epochs: 10` is how many there are
            parsed.total_epochs = _whole(whole, None)
        else:
            parsed.epoch, parsed.total_epochs = _real(whole + (part or ""), None), _whole(total, None)
    if step := _STEP.search(text):
        parsed.step, parsed.total_steps = _whole(step.group(2), None), _whole(step.group(3), None)
    elif step := _SHORT_STEP.search(text):
        parsed.step = _whole(step[1], None)
    elif boosting := _ROUND.search(text):
        parsed.step = _whole(boosting[1] or boosting[2], None)
    if parsed.epoch is None and (fractions := _FRACTIONS.search(text)):
        parsed.epoch, parsed.total_epochs = _real(fractions[1], None), _whole(fractions[2], None)
        parsed.step, parsed.total_steps = _whole(fractions[3], None), _whole(fractions[4], None)
    elif parsed.epoch is None and (epoch := _TRAIN_EPOCH.search(text)):
        parsed.epoch = _real(epoch[1], None)
    elif parsed.epoch is None and parsed.step is None and (place := _EPOCH_AND_STEP.search(text)):
        parsed.epoch, parsed.step = _real(place[1], None), _whole(place[2], None)
    if parsed.total_steps is None:
        for done, total in _FRACTION.findall(_without_ratio(text))[:_MAX_PAIRS]:
            of_epochs = parsed.total_epochs is not None and _whole(total, None) == parsed.total_epochs
            if 0 < int(total[:16]) >= int(done[:16]) and not (of_epochs and _whole(done, None) == parsed.epoch):
                parsed.step, parsed.total_steps = _whole(done, None), _whole(total, None)
                break
    if parsed.total_steps is not None and _EVALUATION.search(text):
        parsed.step = parsed.total_steps = None
    return parsed


def _without_ratio(text: str) -> str:
    """Return the text without the numbers of samples behind a ratio: `Acc: 91.25% (9125/10000)`."""
    for ratio in _RATIO.finditer(text):
        value, part, whole = (float(each) for each in ratio.groups())
        if whole and min(abs(value - part / whole), abs(value - 100 * part / whole) / 100) < _RATIO_TOLERANCE:
            return text[: ratio.start(2)] + text[ratio.end(3) :]
    return text


def _pairs(text: str, *, is_counted: bool) -> dict[str, float | None]:
    """Return the name-value pairs. If the line has no counter, only names of common metrics count."""
    split = _SPLIT.search(text)
    prefix = _SPLITS.get(split.group(1).lower(), "") if split else ""
    found: dict[str, float | None] = {}
    signed = _SPACED_NAN.sub(r"\1=\2", _OWNED.sub(lambda owner: "_" if owner[1] else "", text))
    for name, aside, value, total, percent, sign in _PAIR.findall(f"{signed} ")[:_MAX_PAIRS]:
        words = _name_of(f"{name} {aside}" if aside.lower() in {*_SPLITS, "train"} else name)
        is_metric = bool(words) and _METRIC_WORD.search(words) is not None
        if (
            _SOURCE_FILE.search(words)
            or (_ends_as_none(words) and not (is_metric and _may_end_so(words, name)))
            or not (is_metric or (is_counted and not aside and _is_assigned(text, name)))
        ):
            continue
        full = f"{prefix}_{words}" if prefix and not words.startswith(f"{prefix}_") else words
        if full not in found:
            _add(found, full, percent if total and percent else value + sign, is_measured=is_metric)
    return found


def _ends_as_none(words: str) -> bool:
    """Return whether the name, or its last word, is that of no metric."""
    last = {words, words.rpartition("_")[2]}
    return not last.isdisjoint(_NO_METRICS | _PREPOSITIONS)


def _may_end_so(words: str, name: str) -> bool:
    """Return whether the last word says more about the metric before it, as in `loss_train`."""
    last = words.rpartition("_")[2]
    return last in _LAST_WORDS or (last in _JOINED_LAST_WORDS and name.split()[-1].lower() != last)


def _is_assigned(text: str, name: str) -> bool:
    """Return whether `:` or `=` follows the name: a number after a blank may be anything."""
    rest = text[text.find(name) + len(name) :].lstrip()
    return rest[:1] in (":", "=")


def _name_of(text: str) -> str:
    words = [word for word in text.replace(" ", "_").split("_") if word]
    while words and words[0].lower() in _DROPPED_WORDS:
        words.pop(0)
    if len(words) > 1 and words[-1].lower() in ("is", "was"):
        words.pop()
    return "_".join(words).lower()


def _add(metrics: dict[str, float | None], name: str, text: str, *, is_measured: bool = False) -> None:
    try:
        value = number(text, is_measured=is_measured)
    except ValueError:
        return
    if name := cleaned_name(name):
        metrics[name] = value


def _whole(text: str | None, otherwise: int | None) -> int | None:
    value = _real(text, None)
    return int(value) if value is not None else otherwise


def _real(text: str | None, otherwise: float | None) -> float | None:
    """Return a finite number that is not negative, or `otherwise`."""
    try:
        value = number(text) if text else None
    except ValueError:
        return otherwise
    return value if value is not None and 0 <= value < MAX_COUNT else otherwise
