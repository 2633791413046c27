"""Changes of reports, by their owner or an administrator.

Only the owner may add figures: an administrator could add trainings that the owner may not see.
"""

from collections.abc import Collection, Sequence
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Max, Sum
from django.utils import timezone

from core.audit.authors import authors_of
from core.audit.entries import audit
from core.edits import UNSEEN, Seen
from core.errors import Conflict, NotAllowed, NotFound, field_error
from core.roles import may_edit
from core.templatetags.tidepool import size
from core.text import is_storable
from core.visibility import Readers
from jobs.models import Job
from reports.figures import Frozen, freeze
from reports.models import MAX_BLOCK_BYTES, MAX_BLOCKS, MAX_REPORT_TEXT, Report, ReportBlock
from reports.queries import find_report

__all__ = [
    "KIND",
    "MAX_REPORTS",
    "MAX_TITLE",
    "add_figures",
    "add_text",
    "change_text",
    "delete_report",
    "editable",
    "find_block",
    "locked",
    "make_report",
    "move_block",
    "remove_block",
    "rename_report",
    "set_readers",
]

#: Kind of the object in the audit log.
KIND = "report"
MAX_REPORTS = 500
MAX_TITLE = 200
#: Maximum size of all frozen data of a report.
_MAX_BYTES = 4 * 1024**2


@transaction.atomic
def make_report(user: User, title: str, readers: str = Readers.OWNER) -> Report:
    title = _checked_title(title)
    _check_readers(readers)
    User.objects.select_for_update().get(pk=user.pk)  # serialises the count of concurrent requests
    if Report.objects.filter(owner=user).count() >= MAX_REPORTS:
        raise Conflict(f"You have {MAX_REPORTS} reports, which is the maximum: delete one before you create another.")
    now = timezone.now()
    return Report.objects.create(owner=user, title=title, readers=readers, created_at=now, changed_at=now)


@transaction.atomic
def rename_report(user: User, report_id: int, title: str, seen: Seen = UNSEEN) -> Report:
    report, title = locked(user, report_id), _checked_title(title)
    before = {"title": report.title}
    after = seen.merged({"title": title}, before, lambda: authors_of(KIND, report.pk))
    if after:
        report.title = after["title"]
        _changed(user, report, before, after)
    return report


@transaction.atomic
def set_readers(user: User, report_id: int, readers: str, seen: Seen = UNSEEN) -> Report:
    """Set who may read the report at its address."""
    _check_readers(readers)
    report = locked(user, report_id)
    before = {"readers": report.readers}
    merged = seen.merged({"readers": readers}, before, lambda: authors_of(KIND, report.pk))
    report.readers = merged.get("readers", report.readers)
    report.save(update_fields=["readers"])
    audit(
        user, "changed", kind=KIND, key=report.pk, name=report.title, before=before, after={"readers": report.readers}
    )
    return report


@transaction.atomic
def delete_report(user: User, report_id: int) -> None:
    """Delete the report with its blocks and links."""
    report = locked(user, report_id)
    number, before = report.pk, {"owner": report.owner.get_username(), "readers": report.readers}
    report.delete()
    audit(user, "deleted", kind=KIND, key=number, name=report.title, before=before)


@transaction.atomic
def add_figures(user: User, report_id: int, jobs: Sequence[Job], figures: Collection[str]) -> list[ReportBlock]:
    """Append the chosen figures of the trainings to the report, frozen. jobs: trainings that the user may see."""
    report = locked(user, report_id)
    if report.owner_id != user.pk:
        raise NotAllowed("Only the owner of a report can add trainings to it: create your own report.")
    return _append(user, report, freeze(jobs, figures))


@transaction.atomic
def add_text(user: User, report_id: int, text: str, *, below: int | None = None) -> ReportBlock:
    """Add a text block below the block `below`; None: at the end of the report."""
    text = _checked_text(text)
    report = locked(user, report_id)
    upper = find_block(report, below) if below is not None else None
    [made] = _append(user, report, [Frozen(ReportBlock.Kind.TEXT, "", [], text=text)])
    if upper is not None:
        _put(report, made, upper.place + 1)
    return made


@transaction.atomic
def change_text(user: User, report_id: int, block_id: int, text: str, *, after: int | None = None) -> ReportBlock:
    """Replace the text of a block. Raises Conflict if the block no longer has `after` edits; None: no such check."""
    text = _checked_text(text)
    report = locked(user, report_id)
    block = find_block(report, block_id)
    if block.kind != ReportBlock.Kind.TEXT:
        raise Conflict("Frozen blocks cannot be edited: remove the block, or add a text below it.")
    if after is not None and after != block.edits:
        sentence = "Somebody else has changed this text: open the report in another tab and combine the two versions."
        raise Conflict(sentence, code="newer_text", fields={"text": [sentence]})
    if text != block.text:
        ReportBlock.objects.filter(pk=block.pk).update(text=text, edits=F("edits") + 1)
        _changed(user, report, {"text of block": f"{block.pk}, edit {block.edits}"}, {"text of block": "another"})
    block.refresh_from_db()
    return block


@transaction.atomic
def move_block(user: User, report_id: int, block_id: int, place: int) -> None:
    """Move a block to a place, counted from 0 at the top; a place beyond the end means the end."""
    report = locked(user, report_id)
    block = find_block(report, block_id)
    if _put(report, block, place):
        _changed(user, report, {"order": "another"}, {"order": "changed"})


@transaction.atomic
def remove_block(user: User, report_id: int, block_id: int) -> None:
    report = locked(user, report_id)
    block = find_block(report, block_id)
    removed = {"block": f"{block.pk}: {block.title or block.get_kind_display()}"}
    block.delete()
    _close_gap(report)
    _changed(user, report, removed, {})


def locked(user: User, report_id: int) -> Report:
    """Return the report, locked for a change by its owner or an administrator in the caller's transaction."""
    editable(user, report_id)
    report = Report.objects.select_for_update(of=("self",)).select_related("owner").filter(pk=report_id).first()
    if report is None:
        raise NotFound(f"Report {report_id} no longer exists: it has been deleted.")
    return report


def editable(user: User, report_id: int) -> Report:
    """Return the report. Raises NotFound if the user may not read it, NotAllowed if the user may not change it."""
    report = find_report(user, report_id)
    if not may_edit(user, report):
        raise NotAllowed("This report belongs to another user: ask the owner, or create your own report.")
    return report


def find_block(report: Report, block_id: int) -> ReportBlock:
    block = ReportBlock.objects.filter(report=report, pk=block_id).first()
    if block is None:
        raise NotFound(f"The report has no block {block_id}: reload its page.")
    return block


def _append(user: User, report: Report, added: Sequence[Frozen]) -> list[ReportBlock]:
    now = timezone.now()
    _check_room(report, added)
    there = report.blocks.aggregate(last=Max("place"))["last"]
    first = 0 if there is None else there + 1
    rows = [
        ReportBlock(
            report=report,
            place=place,
            kind=one.kind,
            title=one.title,
            text=one.text,
            data=one.data,
            size_bytes=one.size_bytes,
            sources=[[job.pk, job.name] for job in one.sources],
            added_at=now,
        )
        for place, one in enumerate(added, start=first)
    ]
    for row in rows:  # one by one: SQLite before 3.35 returns no ids from bulk_create
        row.save(force_insert=True)
    _changed(user, report, {}, {"blocks": len(rows)})
    return rows


def _check_room(report: Report, added: Sequence[Frozen]) -> None:
    count, there = report.blocks.count(), report.blocks.aggregate(bytes=Sum("size_bytes"))["bytes"] or 0
    if count + len(added) > MAX_BLOCKS:
        raise Conflict(f"The report has {count} blocks of at most {MAX_BLOCKS}: remove some, or create another report.")
    for one in added:
        if one.size_bytes > MAX_BLOCK_BYTES:
            raise Conflict(
                f"{one.title} has {size(one.size_bytes)}, but a block can have at most {size(MAX_BLOCK_BYTES)}."
            )
    if there + sum(one.size_bytes for one in added) > _MAX_BYTES:
        raise Conflict("The report's figures would exceed 4 MiB: remove some, or create another report.")


def _put(report: Report, block: ReportBlock, place: int) -> bool:
    """Move the block to the place, and return whether the order changed."""
    order = list(report.blocks.order_by("place"))
    before = [one.pk for one in order]
    order.remove(block)
    order.insert(place, block)
    _number(order)
    return [one.pk for one in order] != before


def _close_gap(report: Report) -> None:
    _number(list(report.blocks.order_by("place")))


def _number(order: Sequence[ReportBlock]) -> None:
    """Number the blocks from 0, through numbers beyond all present ones: places are unique at any time."""
    beyond = max([len(order), *(one.place + 1 for one in order)])
    for offset in (beyond, 0):
        for place, one in enumerate(order):
            one.place = place + offset
        ReportBlock.objects.bulk_update(order, ["place"])


def _changed(user: User, report: Report, before: dict[str, Any], after: dict[str, Any]) -> None:
    """Set the time of the change, and write an audit entry if the user is not the owner."""
    report.changed_at = timezone.now()
    report.save(update_fields=["title", "changed_at"])
    if user.pk != report.owner_id:
        audit(user, "changed", kind=KIND, key=report.pk, name=report.title, before=before, after=after)


def _checked_title(title: str) -> str:
    title = " ".join(title.split())
    if not title:
        raise field_error("title", "Give the report a title.")
    if len(title) > MAX_TITLE:
        raise field_error("title", f"The title has {len(title)} characters: use at most {MAX_TITLE}.")
    if not is_storable(title):
        raise field_error("title", "The title has characters that cannot be stored (NUL): remove them.")
    return title


def _checked_text(text: str) -> str:
    text = text.replace("\r\n", "\n").strip()
    if not text:
        raise field_error("text", "Write something, or remove the block.")
    if len(text) > MAX_REPORT_TEXT:
        raise field_error("text", f"The text has {len(text):,} characters: write at most {MAX_REPORT_TEXT:,}.")
    if not is_storable(text):
        raise field_error("text", "The text has characters that cannot be stored (NUL): remove them.")
    return text


def _check_readers(readers: str) -> None:
    if readers not in Readers.values:
        raise field_error("readers", f"Choose one of {', '.join(Readers.values)}.")
