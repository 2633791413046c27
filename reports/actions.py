"""What people do with reports. The owner writes, adds and shares; administrators may also change, take away and end.

Only the owner adds figures: an administrator would show the owner trainings that the owner may not see.
"""

from collections.abc import Collection, Sequence
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, Max, Sum
from django.utils import timezone

from core.audit.entries import audit
from core.errors import Conflict, NotAllowed, NotFound, field_error
from core.roles import may_edit
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

#: As the audit calls it.
KIND = "report"
MAX_REPORTS = 500
MAX_TITLE = 200
#: Of all that is frozen in a report.
_MAX_BYTES = 4 * 1024**2


@transaction.atomic
def make_report(user: User, title: str, readers: str = Readers.OWNER) -> Report:
    title = _checked_title(title)
    _check_readers(readers)
    User.objects.select_for_update().get(pk=user.pk)  # of two requests at once each counts what the other made
    if Report.objects.filter(owner=user).count() >= MAX_REPORTS:
        raise Conflict(f"You have {MAX_REPORTS} reports: delete one that nobody reads.")
    now = timezone.now()
    return Report.objects.create(owner=user, title=title, readers=readers, created_at=now, changed_at=now)


@transaction.atomic
def rename_report(user: User, report_id: int, title: str) -> Report:
    report, title = locked(user, report_id), _checked_title(title)
    before, report.title = report.title, title
    _changed(user, report, {"title": before}, {"title": title})
    return report


@transaction.atomic
def set_readers(user: User, report_id: int, readers: str) -> Report:
    """Say who may read it by its address."""
    _check_readers(readers)
    report = locked(user, report_id)
    before, report.readers = {"readers": report.readers}, readers
    report.save(update_fields=["readers"])
    audit(user, "changed", kind=KIND, key=report.pk, name=report.title, before=before, after={"readers": readers})
    return report


@transaction.atomic
def delete_report(user: User, report_id: int) -> None:
    """With its blocks and links."""
    report = locked(user, report_id)
    number, before = report.pk, {"owner": report.owner.get_username(), "readers": report.readers}
    report.delete()
    audit(user, "deleted", kind=KIND, key=number, name=report.title, before=before)


@transaction.atomic
def add_figures(user: User, report_id: int, jobs: Sequence[Job], figures: Collection[str]) -> list[ReportBlock]:
    """Freeze what was chosen of trainings that the user may see, and put it at the end of the report."""
    report = locked(user, report_id)
    if report.owner_id != user.pk:
        raise NotAllowed("Only its owner adds trainings to a report: make one of your own.")
    return _append(user, report, freeze(jobs, figures))


@transaction.atomic
def add_text(user: User, report_id: int, text: str, *, below: int | None = None) -> ReportBlock:
    """below: the block that it comes after; None: the last."""
    text = _checked_text(text)
    report = locked(user, report_id)
    upper = find_block(report, below) if below is not None else None
    [made] = _append(user, report, [Frozen(ReportBlock.Kind.TEXT, "", [], text=text)])
    if upper is not None:
        _put(report, made, upper.place + 1)
    return made


@transaction.atomic
def change_text(user: User, report_id: int, block_id: int, text: str, *, after: int | None = None) -> ReportBlock:
    """after: how many edits the writer has seen. Raises Conflict where there are more. None: whatever is there."""
    text = _checked_text(text)
    report = locked(user, report_id)
    block = find_block(report, block_id)
    if block.kind != ReportBlock.Kind.TEXT:
        raise Conflict("This is as it was when it was added: remove it, or write a text beside it.")
    if after is not None and after != block.edits:
        sentence = "The text was changed meanwhile: look at the report in another tab, and put the two together."
        raise Conflict(sentence, code="newer_text", fields={"text": [sentence]})
    if text != block.text:
        ReportBlock.objects.filter(pk=block.pk).update(text=text, edits=F("edits") + 1)
        _changed(user, report, {"text of block": f"{block.pk}, edit {block.edits}"}, {"text of block": "another"})
    block.refresh_from_db()
    return block


@transaction.atomic
def move_block(user: User, report_id: int, block_id: int, place: int) -> None:
    """place: from 0 at the top on; beyond the end is the end."""
    report = locked(user, report_id)
    block = find_block(report, block_id)
    if _put(report, block, place):
        _changed(user, report, {"order": "another"}, {"order": "changed"})


@transaction.atomic
def remove_block(user: User, report_id: int, block_id: int) -> None:
    report = locked(user, report_id)
    block = find_block(report, block_id)
    said = {"block": f"{block.pk}: {block.title or block.get_kind_display()}"}
    block.delete()
    _close_gap(report)
    _changed(user, report, said, {})


def locked(user: User, report_id: int) -> Report:
    """Return the report for a change by its owner or an administrator, in the caller's transaction."""
    editable(user, report_id)
    report = Report.objects.select_for_update(of=("self",)).select_related("owner").filter(pk=report_id).first()
    if report is None:
        raise NotFound(f"There is no report {report_id} any more: somebody has deleted it.")
    return report


def editable(user: User, report_id: int) -> Report:
    """Return the report. Raises NotFound and NotAllowed for who may not read, or not change it."""
    report = find_report(user, report_id)
    if not may_edit(user, report):
        raise NotAllowed("This report is somebody else's: ask its owner, or make one of your own.")
    return report


def find_block(report: Report, block_id: int) -> ReportBlock:
    block = ReportBlock.objects.filter(report=report, pk=block_id).first()
    if block is None:
        raise NotFound(f"The report has no block {block_id}: look at its page again.")
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
    for row in rows:  # one by one: SQLite before 3.35 tells no ids of rows that are made together
        row.save(force_insert=True)
    _changed(user, report, {}, {"blocks": len(rows)})
    return rows


def _check_room(report: Report, added: Sequence[Frozen]) -> None:
    count, there = report.blocks.count(), report.blocks.aggregate(bytes=Sum("size_bytes"))["bytes"] or 0
    if count + len(added) > MAX_BLOCKS:
        raise Conflict(f"The report has {count} blocks, and may have {MAX_BLOCKS}: remove some, or begin another one.")
    for one in added:
        if one.size_bytes > MAX_BLOCK_BYTES:
            raise Conflict(f"{one.title} has {one.size_bytes:,} bytes, and a block may have {MAX_BLOCK_BYTES:,}.")
    if there + sum(one.size_bytes for one in added) > _MAX_BYTES:
        raise Conflict("The report's figures would be larger than 4 MiB: remove some, or begin another one.")


def _put(report: Report, block: ReportBlock, place: int) -> bool:
    """Put it at the place, and the others around it; return whether anything moved."""
    order = list(report.blocks.order_by("place"))
    before = [one.pk for one in order]
    order.remove(block)
    order.insert(place, block)
    _number(order)
    return [one.pk for one in order] != before


def _close_gap(report: Report) -> None:
    _number(list(report.blocks.order_by("place")))


def _number(order: Sequence[ReportBlock]) -> None:
    """Number them from 0 on. Twice: on the way no two have the same place."""
    beyond = max([len(order), *(one.place + 1 for one in order)])
    for offset in (beyond, 0):
        for place, one in enumerate(order):
            one.place = place + offset
        ReportBlock.objects.bulk_update(order, ["place"])


def _changed(user: User, report: Report, before: dict[str, Any], after: dict[str, Any]) -> None:
    """Note when; and in the audit, where it is not the owner who changes it."""
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
        raise field_error("title", "The title has characters that cannot be stored (NUL): leave them out.")
    return title


def _checked_text(text: str) -> str:
    text = text.replace("\r\n", "\n").strip()
    if not text:
        raise field_error("text", "Write something, or remove the block.")
    if len(text) > MAX_REPORT_TEXT:
        raise field_error("text", f"The text has {len(text):,} characters: write at most {MAX_REPORT_TEXT:,}.")
    if not is_storable(text):
        raise field_error("text", "The text has characters that cannot be stored (NUL): leave them out.")
    return text


def _check_readers(readers: str) -> None:
    if readers not in Readers.values:
        raise field_error("readers", f"There is no such choice: use {', '.join(Readers.values)}.")
