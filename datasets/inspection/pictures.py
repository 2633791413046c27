"""Pictures in class folders: `cat/1.jpg` is an image of the class `cat`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from datasets.inspection.findings import Findings, PartFindings, Sample, file_word
from datasets.inspection.pixels import IMAGE_SUFFIXES, BrokenImage, picture_kind

__all__ = ["FORMAT", "IMAGE_SUFFIXES", "read_pictures"]

FORMAT = "pictures in class folders"
_MAX_CLASSES = 10_000
_SAMPLES = 12
_SAMPLES_PER_CLASS = 2


def read_pictures(findings: Findings, part: PartFindings, files: dict[str, Path], tick: Callable[[int], None]) -> None:
    """Check that each picture begins and ends as one, count classes, and name some as samples."""
    others, outside, read = [], [], 0
    for name, file in files.items():
        if file.suffix.lower() not in IMAGE_SUFFIXES:
            others.append(name)
            continue
        label = _label(part, name)
        if label is None:
            outside.append(name)
        else:
            part.classes[label] = part.classes.get(label, 0) + 1
        part.items += 1
        try:
            picture_kind(file)
        except (BrokenImage, OSError) as error:
            findings.refuse(f"{name} {error}: replace or remove it.")
        read += file.stat().st_size
        tick(read)
    _tell(findings, part, others, outside)
    if not findings.samples:
        _add_samples(findings, part, files)


def _tell(findings: Findings, part: PartFindings, others: list[str], outside: list[str]) -> None:
    findings.warn_of_others(others)
    if outside and part.classes:
        findings.refuse(
            f"{file_word(len(outside), 'picture')} outside of the class folders, such as {outside[0]}: move each into "
            "the folder of its class."
        )
    elif outside:
        findings.warn(f"The pictures of {part.folder or 'the dataset'} lie in no class folder: they have no labels.")
    if len(part.classes) > _MAX_CLASSES:
        findings.refuse(f"There are {len(part.classes):,} class folders: at most {_MAX_CLASSES:,} are taken.")


def _label(part: PartFindings, name: str) -> str | None:
    """The folder right below the part; None where there is none."""
    inside = name.removeprefix(f"{part.folder}/") if part.folder else name
    label, slash, _ = inside.partition("/")
    return label if slash else None


def _add_samples(findings: Findings, part: PartFindings, files: dict[str, Path]) -> None:
    """Some of each class, in turn, as far as there is room."""
    taken: Counter[str] = Counter()
    rounds: list[list[Sample]] = [[] for _ in range(_SAMPLES_PER_CLASS)]
    for name, file in files.items():
        label = _label(part, name) or ""
        if file.suffix.lower() in IMAGE_SUFFIXES and taken[label] < _SAMPLES_PER_CLASS:
            rounds[taken[label]].append(Sample(label, part.role, file=name))
            taken[label] += 1
    findings.samples += [sample for samples in rounds for sample in samples][:_SAMPLES]
