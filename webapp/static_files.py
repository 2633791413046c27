"""Static files as browsers get them: bundled, named by their hash, compressed by gzip and brotli beforehand."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import brotli
from whitenoise.compress import Compressor
from whitenoise.storage import CompressedManifestStaticFilesStorage

from webapp.bundles import bundled

__all__ = ["HashedFiles"]


class _QuickCompressor(Compressor):  # type: ignore[misc]
    """The best quality, 11, takes eight times as long for a tenth less: the first start would wait for it."""

    @staticmethod
    def compress_brotli(data: bytes) -> bytes:
        compressed: bytes = brotli.compress(data, quality=9)
        return compressed


class HashedFiles(CompressedManifestStaticFilesStorage):  # type: ignore[misc]
    """Bundles of JavaScript import the frame's by its hashed name too."""

    support_js_module_import_aggregation = True

    def __init__(self, *args: Any, **options: Any) -> None:
        # Uploads are their owner's; these are everybody's, and the web server may be another user.
        super().__init__(*args, **options, file_permissions_mode=0o644, directory_permissions_mode=0o755)

    def create_compressor(self, **options: Any) -> Compressor:
        return _QuickCompressor(**options)

    def post_process(self, paths: dict[str, Any], dry_run: bool = False, **options: Any) -> Iterator[Any]:
        bundles = bundled(Path(self.location))
        for path, text in bundles.texts.items():
            Path(self.path(path)).write_text(text)
        for path in bundles.parts:
            self.delete(path)
        here = {path: (self, path) for path in paths if path not in bundles.parts}
        yield from super().post_process(here, dry_run=dry_run, **options)
