"""The note of a job: Markdown by its owner and administrators. All versions are stored, the newest is shown."""

from django.db import transaction
from django.utils import timezone

from core.audit.entries import Audited, audit_all
from core.errors import Conflict, field_error
from core.text import is_storable
from jobs.control.transition import lock_job
from jobs.models import Note

__all__ = ["MAX_NOTE", "write_note"]

MAX_NOTE = 20_000


@transaction.atomic
def write_note(job_id: int, text: str, actor: str, *, after: int | None = None) -> Note | None:
    """Store the next version of a job's note; "" deletes the note. Returns the newest version, None if there is none.

    after: number of the version that the author has seen, 0 for none; a newer one raises Conflict. None: no check.
    """
    text = text.replace("\r\n", "\n").strip()
    _check(text)
    job = lock_job(job_id)
    newest = Note.objects.filter(job=job).first()
    number, before = (newest.number, newest.text) if newest else (0, "")
    if newest is not None and after is not None and after != number:
        sentence = f"{newest.author} has saved version {number} meanwhile: merge your text with it, then save again."
        raise Conflict(sentence, code="newer_note", fields={"text": [sentence]})
    if text == before:
        return newest
    if actor != job.owner.get_username():
        audit_all(actor, "changed", "job", [Audited(job.pk, job.name, {"note": number}, {"note": number + 1})])
    return Note.objects.create(job=job, number=number + 1, text=text, author=actor, at=timezone.now())


def _check(text: str) -> None:
    if len(text) > MAX_NOTE:
        sentence = f"The note has {len(text):,} characters: write at most {MAX_NOTE:,}."
        raise field_error("text", sentence)
    if not is_storable(text):
        raise field_error("text", "The note contains characters that cannot be stored (NUL): remove them.")
