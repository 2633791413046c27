"""Static files whose names have their hash, compressed by gzip and brotli beforehand."""

from typing import Any

from whitenoise.storage import CompressedManifestStaticFilesStorage

__all__ = ["HashedFiles"]


class HashedFiles(CompressedManifestStaticFilesStorage):  # type: ignore[misc]
    """Modules of JavaScript import each other by hashed names too."""

    support_js_module_import_aggregation = True
    #: A module is hashed once all that it imports are: each pass does one link of the longest chain.
    max_post_process_passes = 50

    def __init__(self, *args: Any, **options: Any) -> None:
        # Uploads are their owner's; these are everybody's, and the web server may be another user.
        super().__init__(*args, **options, file_permissions_mode=0o644, directory_permissions_mode=0o755)
