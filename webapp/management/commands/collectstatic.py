"""`manage.py collectstatic`: Django's own, which hashes and compresses, and does nothing where nothing has changed."""

import fcntl
from typing import Any

from django.conf import settings
from django.contrib.staticfiles.management.commands import collectstatic
from django.core.management import CommandError

from webapp.collected_static import is_collected, note_collected
from webapp.static_files import HashedFiles


class Command(collectstatic.Command):
    def handle(self, **options: Any) -> str | None:
        root, sources = settings.TIDEPOOL_STATIC_ROOT, settings.STATICFILES_DIRS
        if is_collected(root, sources):
            return None
        try:
            root.mkdir(parents=True, exist_ok=True)
            # Two homes that share a checkout may start at the same time.
            with (root.parent / f"{root.name}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if is_collected(root, sources):
                    return None
                # The settings name this one only once the files are collected.
                self.storage = HashedFiles(location=root)
                report = super().handle(**options)
                note_collected(root, sources)
                return report
        except OSError as error:
            raise CommandError(
                f"{root} cannot be written ({error.strerror}): run collectstatic as a user who may, or set "
                "TIDEPOOL_STATIC_ROOT to a folder of your own."
            ) from None
