"""What the processes of a training use of their hosts, whatever program they run: one sentence, by rank, over time."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Final

from django.utils import timezone
from tidepool.units import cores_words, size_words

from insights.gpu_use import claim_spans
from insights.step_time.core_limits import cores_per_gpu
from jobs.control.gpu_spans import SPAN, HostUse, Span
from jobs.gpu_time import HOUR, MINUTE, moment
from jobs.models import Job, SlotClaim
from jobs.queries.rank_numbers import rank_numbers
from jobs.states import TERMINAL

__all__ = ["ProcessesOverTime", "RankUse", "UseAt", "mean_within", "process_use", "use_words"]

#: Most spans of 10 s that are read, and the milliseconds that are read at least, of however many GPUs.
_MOST_SPANS, _LEAST_READ = 20_000, 10 * MINUTE
#: Lengths in milliseconds of a point in time, the shortest first, and the largest number of points.
_LENGTHS, _MOST_POINTS = (SPAN, 30_000, MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR), 60
#: Bytes per second below which a disk or a network counts as hardly used.
_HARDLY: Final = 10 * 1024


@dataclass(frozen=True)
class RankUse:
    rank: Annotated[int | None, "Rank in the newest generation; null: not a member of it."]
    host: str
    gpus: Annotated[int, "Number of GPUs that its process holds."]
    cores: Annotated[float | None, "Cores that its processes use; null: not known."]
    share_cores: Annotated[float | None, "Cores that it has with its GPUs on the host; null: not known."]
    read_rate: Annotated[float | None, "Bytes per second that its processes read from disks; null: not known."]
    written_rate: Annotated[float | None, "Bytes per second that they write to disks; null: not known."]
    received_rate: Annotated[float | None, "Bytes per second that they receive; null: they share the host's network."]
    sent_rate: Annotated[float | None, "Bytes per second that they send; null: they share the host's network."]
    gpu_busy: Annotated[float | None, "Fraction of the time in which its GPUs compute, 0 to 1; null: not reported."]


@dataclass(frozen=True)
class UseAt:
    at: Annotated[datetime, "End of the span of time."]
    cores: Annotated[float | None, "Cores that the processes of all ranks use; null: not known."]
    read_rate: Annotated[float | None, "Bytes per second that all of them read from disks; null: not known."]
    written_rate: Annotated[float | None, "Bytes per second that all of them write to disks; null: not known."]
    received_rate: Annotated[float | None, "Bytes per second that all receive; null: they share a host's network."]
    sent_rate: Annotated[float | None, "Bytes per second that all send; null: they share a host's network."]
    gpu_busy: Annotated[float | None, "Fraction of the time in which a GPU computes, on average, 0 to 1."]


@dataclass(frozen=True)
class ProcessesOverTime:
    #: Sentence on the newest minute; "": nothing is known.
    text: str
    ranks: Sequence[RankUse] = ()
    #: The oldest first.
    points: Sequence[UseAt] = ()


def process_use(job: Job, now: datetime | None = None) -> ProcessesOverTime:
    """Return what the processes of the newest attempt use, or have used in its last minute."""
    now = now or timezone.now()
    rows = SlotClaim.objects.filter(job=job, attempt=job.run.attempt).select_related("slot__host")
    claims = list(rows)
    if not claims:
        return ProcessesOverTime("")
    end = job.finished_at or now
    longest = max(_LEAST_READ, _MOST_SPANS // len(claims) * SPAN)
    start = max(min(claim.claimed_at for claim in claims), end - timedelta(milliseconds=longest))
    spans = {
        claim: [span for span in found if _is_told(span)] for claim, found in claim_spans(rows, start, end).items()
    }
    told = [span for of_claim in spans.values() for span in of_claim]
    if not any(span.processes.cores is not None for span in told):
        return ProcessesOverTime("")
    # A virtual GPU is a processor, and its utilization is that of the processes.
    real = {claim.pk for claim in claims if not claim.slot.virtual}
    newest = max(span.end for span in told)
    ranks = _ranks(job, [claim for claim in claims if spans[claim.pk]], spans, newest)
    whole = mean_within(spans, real, newest - MINUTE, newest)
    known_shares = [rank.share_cores for rank in ranks if rank.share_cores is not None]
    share = sum(known_shares) if len(known_shares) == len(ranks) else None
    gpus = sum(rank.gpus for rank in ranks)
    text = use_words(whole, share, gpus, is_over=job.state in TERMINAL) if whole is not None else ""
    return ProcessesOverTime(text, ranks, _points(spans, real, newest))


def _is_told(span: Span) -> bool:
    return span.busy_percent is not None or span.processes.cores is not None


def _ranks(job: Job, claims: Sequence[SlotClaim], spans: Mapping[int, Sequence[Span]], newest: int) -> list[RankUse]:
    """Return the ranks on the GPUs that were held until the end. A process may hold several GPUs of its host."""
    rows = job.ranks.filter(attempt=job.run.attempt)
    # A program that forms no group of ranks has no generation that has trained.
    numbers = {row.member_id: row.rank for row in rows} | rank_numbers(job, job.run.attempt)
    places = {(row.host, row.slot): row.member_id for row in rows}
    on_host = {host: member for (host, _), member in places.items()}
    held: dict[tuple[str, str], list[SlotClaim]] = defaultdict(list)
    for claim in claims:
        if max(span.end for span in spans[claim.pk]) > newest - MINUTE and (
            claim.released_at is None or job.state in TERMINAL
        ):
            host = claim.slot.host.name
            member = places.get((host, claim.slot.index), on_host.get(host, ""))
            held[host, member].append(claim)
    found = []
    for (host, member), of_member in held.items():
        own = {claim.pk: spans[claim.pk] for claim in of_member}
        real = {claim.pk for claim in of_member if not claim.slot.virtual}
        use = mean_within(own, real, newest - MINUTE, newest)
        per_gpu = cores_per_gpu(job, of_member[0].slot.host)
        cores = None if per_gpu is None else round(per_gpu * len(of_member), 2)
        if use is not None:
            figures = (use.read_rate, use.written_rate, use.received_rate, use.sent_rate, use.gpu_busy)
            found.append(RankUse(numbers.get(member), host, len(of_member), use.cores, cores, *figures))
    return sorted(found, key=lambda rank: (rank.rank is None, rank.rank or 0, rank.host))


def _points(spans: Mapping[int, Sequence[Span]], real: set[int], newest: int) -> list[UseAt]:
    oldest = min(span.start for of_claim in spans.values() for span in of_claim)
    length = next((length for length in _LENGTHS if (newest - oldest) / length < _MOST_POINTS), None)
    length = length or (newest - oldest) // (_MOST_POINTS - 1)
    begins = range(oldest - oldest % length, newest, length)
    pieces: dict[int, dict[int, list[Span]]] = {begin: defaultdict(list) for begin in begins}
    for claim, of_claim in spans.items():
        for span in of_claim:
            for begin in range(span.start - span.start % length, span.end, length):
                pieces[begin][claim].append(span)
    found = (mean_within(piece, real, begin, min(begin + length, newest)) for begin, piece in pieces.items())
    return [point for point in found if point is not None]


def mean_within(spans: Mapping[int, Iterable[Span]], real: set[int], start: int, end: int) -> UseAt | None:
    """Return the use of all processes together from `start` to `end`, in Unix milliseconds; None: it is not known.

    Pure. A GPU that was held for a part of the time counts for that part. spans: by claim. real: claims of GPUs that
    are no processors.
    """
    cut = [
        (claim, span, max(span.start, start), min(span.end, end))
        for claim, of_claim in spans.items()
        for span in of_claim
        if span.end > start and span.start < end
    ]
    if not cut:
        return None
    covered = max(until for *_, until in cut) - min(begin for _, _, begin, _ in cut)
    parts = [(span.processes, until - begin) for _, span, begin, until in cut]
    cores, read, written, received, sent = (_summed(place, parts, covered) for place in range(len(HostUse._fields)))
    busy = [(span.busy_percent, until - begin) for claim, span, begin, until in cut if claim in real]
    known = [(percent, length) for percent, length in busy if percent is not None]
    whole = sum(length for _, length in known)
    mean = round(sum(percent * length for percent, length in known) / whole / 100, 4) if whole else None
    return UseAt(moment(end), cores, read, written, received, sent, mean)


def _summed(place: int, parts: Sequence[tuple[HostUse, int]], covered: int) -> float | None:
    """Return the sum of a figure; None where that of a process which tells of its cores is not known."""
    told = [(use[place], length) for use, length in parts if use.cores is not None]
    known = [value * length for value, length in told if value is not None]
    return round(sum(known) / covered, 3) if told and len(known) == len(told) else None


def use_words(use: UseAt, share_cores: float | None, gpus: int, *, is_over: bool = False) -> str:
    """Return "Its processes use 0.9 of 4 cores, read 120 MiB/s from disk, and the GPU computes 35 % of the time.".

    Sentences on what is not known follow. share_cores: cores that it has with its GPUs; None: not known.
    """
    parts = [*_core_words(use.cores, share_cores, is_over), *_disk_words(use, is_over), *_network_words(use, is_over)]
    if use.gpu_busy is not None:
        verb = "computed" if is_over else "computes" if gpus == 1 else "compute"
        parts.append(f"the {'GPU' if gpus == 1 else 'GPUs'} {verb} {use.gpu_busy * 100:.0f} % of the time")
    sentences = [f"{'In its last minute, its' if is_over else 'Its'} processes {_listed(parts)}."]
    if use.read_rate is None or use.written_rate is None:
        sentences.append(
            "What they read and write on disks is not known: the kernel does not tell their host's executor."
        )
    if use.received_rate is None:
        sentences.append("Their network is not counted, because they share that of their host.")
    return " ".join(sentences)


def _core_words(cores: float | None, share: float | None, is_over: bool) -> list[str]:
    if cores is None:
        return []
    used = f"{'used' if is_over else 'use'} {cores:.{1 if cores >= 0.1 else 2}f}"
    return [f"{used} of {cores_words(share)}" if share else f"{used} cores"]


def _disk_words(use: UseAt, is_over: bool) -> list[str]:
    if use.read_rate is None or use.written_rate is None:
        return []
    if max(use.read_rate, use.written_rate) < _HARDLY:
        return ["hardly used a disk" if is_over else "hardly use a disk"]
    reads = [f"read {_speed(use.read_rate)} from disk"] if use.read_rate >= _HARDLY else []
    verb = "wrote" if is_over else "write"
    return [*reads, *([f"{verb} {_speed(use.written_rate)} to disk"] if use.written_rate >= _HARDLY else [])]


def _network_words(use: UseAt, is_over: bool) -> list[str]:
    if use.received_rate is None or use.sent_rate is None:
        return []
    if max(use.received_rate, use.sent_rate) < _HARDLY:
        return ["hardly used the network" if is_over else "hardly use the network"]
    received, sent = ("received", "sent") if is_over else ("receive", "send")
    return [f"{received} {_speed(use.received_rate)} and {sent} {_speed(use.sent_rate)} over the network"]


def _speed(rate: float) -> str:
    return f"{size_words(rate)}/s"


def _listed(parts: Sequence[str]) -> str:
    if len(parts) < 2:
        return "".join(parts)
    return f"{', '.join(parts[:-1])}{',' if len(parts) > 2 else ''} and {parts[-1]}"
