"""The way from datasets by trainings to versions of models, as one picture. Pure, but for one query at its entry."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from core.roles import Asking
from datasets.models import DatasetVersion
from jobs.models import Job, TrainedVersion
from jobs.queries.jobs import visible_jobs
from models_registry.models import RegisteredModel
from tracking.models import ModelVersion

__all__ = ["MAX_TRAININGS", "ROW_HEIGHT", "Lineage", "Source", "Step", "drawn", "lineage_of"]

MAX_TRAININGS = 15
#: Heights and widths in pixels, as the style sheet has them.
ROW_HEIGHT, _GAP_WIDTH = 44, 48


@dataclass(frozen=True)
class Step:
    """A training on the way."""

    job: Job
    #: "accuracy 0.953", of what it reported last.
    result: str
    versions: Sequence[ModelVersion]
    #: Versions of models here that were made of its checkpoints.
    trained: Sequence[TrainedVersion] = ()


@dataclass(frozen=True)
class Source:
    """A version of a dataset, and the trainings that read it."""

    dataset: DatasetVersion | None
    steps: Sequence[Step]

    @property
    def height(self) -> int:
        return ROW_HEIGHT * len(self.steps)

    @property
    def curves(self) -> list[str]:
        """From the middle of the dataset to each training, as SVG's paths."""
        begins, half = self.height / 2, _GAP_WIDTH / 2
        ends = [ROW_HEIGHT * (row + 0.5) for row in range(len(self.steps))]
        return [f"M0 {begins:g}C{half:g} {begins:g} {half:g} {end:g} {_GAP_WIDTH} {end:g}" for end in ends]


@dataclass(frozen=True)
class Lineage:
    sources: Sequence[Source]
    #: Trainings that are older than those shown.
    left_out: int


def lineage_of(user: Asking, model: RegisteredModel) -> Lineage:
    """Return the newest trainings with the model that the user may see."""
    jobs = visible_jobs(user).filter(model__model=model, validation=None)
    newest = list(jobs.select_related("initial_job").order_by("-pk")[:MAX_TRAININGS])
    versions: dict[int, list[ModelVersion]] = defaultdict(list)
    for version in ModelVersion.objects.filter(job__in=newest).order_by("name", "number"):
        versions[version.job_id].append(version)
    trained: dict[int, list[TrainedVersion]] = defaultdict(list)
    rows = TrainedVersion.objects.filter(checkpoint__job__in=newest).select_related("version__model", "checkpoint")
    for made in rows.order_by("pk"):
        trained[made.checkpoint.job_id].append(made)
    more = jobs.count() - len(newest) if len(newest) == MAX_TRAININGS else 0
    return Lineage(drawn(newest, versions, trained), more)


def drawn(
    jobs: Iterable[Job],
    versions: Mapping[int, Sequence[ModelVersion]],
    trained: Mapping[int, Sequence[TrainedVersion]] = MappingProxyType({}),
) -> list[Source]:
    """Return the steps by dataset version, each with its newest training on top."""
    steps: dict[int | None, list[Step]] = defaultdict(list)
    datasets: dict[int | None, DatasetVersion | None] = {}
    for job in jobs:
        datasets[job.dataset_id] = job.dataset
        result, of_job = _result_of(job.run.final_metrics), (versions.get(job.pk, ()), trained.get(job.pk, ()))
        steps[job.dataset_id].append(Step(job, result, *of_job))
    return [Source(datasets[key], rows) for key, rows in steps.items()]


def _result_of(metrics: Mapping[str, float | None]) -> str:
    """Return the first accuracy, or whatever comes first by its name."""
    names = sorted(name for name, value in metrics.items() if value is not None)
    name = next((name for name in names if "accuracy" in name), names[0] if names else "")
    return f"{name} {metrics[name]:.4g}" if name else ""
