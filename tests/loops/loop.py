"""A loop of the corpus: its script, and the outcome that its script names as the right one."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

__all__ = ["CORPUS", "Loop", "corpus", "sentence_of"]

CORPUS = Path(__file__).parent / "corpus"
_TOLERANCE = 1e-4
_COMMENT = re.compile(r"^# (outcome|launch): (.+)$", re.MULTILINE)
_OUTCOME = re.compile(
    r"(?P<kind>trains|differs|refused)(?: within (?P<tolerance>[\d.e-]+))?(?P<either>, or refused)?(?:: (?P<text>.+))?"
)


@dataclass(frozen=True)
class Loop:
    """A script of the corpus.

    Its comment `# outcome:` is one of `trains`, `trains within <tolerance>`, `differs: <documented kind>`, `refused:
    <part of the sentence>`, or `trains` or `differs` with `, or refused: <part of the sentence>`. `# launch:
    exactness=bitwise virtual_ranks=4` sets options of the job.
    """

    name: str
    script: Path
    #: `differs`: all ranks end alike after all steps, with other weights than the twin, as the documentation says.
    outcome: Literal["trains", "differs", "refused"]
    #: Largest difference between a weight and the twin's.
    tolerance: float
    #: Regular expression for a part of the sentence with which the loop is or may be refused; "": it may not be.
    refusal: str
    launch: dict[str, Any] = field(default_factory=dict)

    def refuses(self, error: dict[str, Any] | None) -> bool:
        """Return whether the error that ended a rank is the refusal that the loop names."""
        return bool(self.refusal and error and re.search(self.refusal, sentence_of(error)))


def sentence_of(error: dict[str, Any]) -> str:
    """Return a rank's error in one line."""
    return f"{error['kind']}: {' '.join(error['message'].split())}"


def corpus(names: list[str] | None = None) -> list[Loop]:
    """Return the loops of these names, or all. Raises ValueError for an unknown name."""
    loops = {path.stem: path for path in sorted(CORPUS.glob("*.py")) if path.stem != "twin"}
    if unknown := set(names or ()) - set(loops):
        raise ValueError(f"no loop of the corpus is named {', '.join(sorted(unknown))}")
    return [_read(loops[name]) for name in names or loops]


def _read(script: Path) -> Loop:
    comments: dict[str, str] = dict(_COMMENT.findall(script.read_text()))
    told = _OUTCOME.fullmatch(comments.get("outcome", ""))
    if told is None:
        raise ValueError(f"{script} needs a comment `# outcome:`, as tests.loops.loop.Loop describes it")
    kind, text = told["kind"], told["text"] or ""
    return Loop(
        script.stem,
        script,
        kind,  # type: ignore[arg-type]
        float(told["tolerance"] or _TOLERANCE),
        text if kind == "refused" or told["either"] else "",
        dict(map(_option, comments.get("launch", "").split())),
    )


def _option(text: str) -> tuple[str, Any]:
    name, _, value = text.partition("=")
    return name, int(value) if value.isdigit() else value
