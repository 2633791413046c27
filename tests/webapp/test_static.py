"""Style sheets and scripts come without a log-in, whole and cacheable; nothing else does."""

from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib.staticfiles import finders
from django.contrib.staticfiles.storage import staticfiles_storage
from django.core.management import CommandError, call_command
from django.http import HttpResponse
from django.test import Client, RequestFactory

from webapp.collected_static import is_collected
from webapp.middleware import StaticFiles

ICONS = "/static/icons.svg"
LONG = "export const text = 'so long';\n" + "// that it is worth compressing, again and again\n" * 40


def test_a_file_is_served_to_everybody():
    answer = Client().get(ICONS)
    assert (answer.status_code, answer["Content-Type"], answer.streaming) == (200, "image/svg+xml", False)
    assert answer.content.startswith(b"<svg")
    assert "max-age" in answer["Cache-Control"]
    assert answer["X-Content-Type-Options"] == "nosniff"


def test_an_unchanged_file_is_not_sent_again():
    modified = Client().get(ICONS)["Last-Modified"]
    answer = Client().get(ICONS, headers={"if-modified-since": modified})
    assert (answer.status_code, answer.content) == (304, b"")


@pytest.mark.django_db
@pytest.mark.parametrize(
    "path", ["nothing.css", "../webapp/settings.py", "%2e%2e/webapp/settings.py", "..%2fmanage.py", ""]
)
def test_nothing_else_is_served(path):
    assert Client().get(f"/static/{path}").status_code in {302, 404}


@pytest.fixture
def source(tmp_path, settings):
    """A page, the frame of all pages and a module that both import, to be collected."""
    folder = tmp_path / "source"
    (folder / "js/pages").mkdir(parents=True)
    (folder / "js/text.js").write_text(LONG)
    (folder / "js/frame.js").write_text('import { text } from "./text.js";\n\nconsole.log(text);\n')
    (folder / "js/pages/page.js").write_text('import { text } from "../text.js";\n\ndocument.title = text;\n')
    settings.STATICFILES_DIRS, settings.TIDEPOOL_STATIC_ROOT = [folder], tmp_path / "root"
    finders.get_finder.cache_clear()
    yield folder
    finders.get_finder.cache_clear()


@pytest.fixture
def collect(source, settings) -> Callable[[], Path]:
    def collect() -> Path:
        call_command("collectstatic", verbosity=0, interactive=False, clear=True)
        return settings.TIDEPOOL_STATIC_ROOT

    return collect


def test_collected_bundles_import_the_frame_by_its_hash(collect):
    root = collect()
    [page] = root.glob("js/pages/page.*.js")
    [frame] = root.glob("js/frame.*.js")
    assert f'from "../{frame.name}"' in page.read_text()
    assert {path.suffix for path in root.glob("js/frame.*.js.*")} == {".br", ".gz"}
    assert page.stat().st_mode & 0o777 == 0o644
    assert not list(root.glob("js/text*")), "what bundles hold lies in no file of its own"


def test_a_collected_file_is_kept_for_good_and_sent_compressed(collect, settings):
    root = collect()
    settings.STORAGES = settings.STORAGES | {"staticfiles": {"BACKEND": "webapp.static_files.HashedFiles"}}
    settings.STATIC_ROOT, settings.WHITENOISE_USE_FINDERS = root, False
    request = RequestFactory().get(staticfiles_storage.url("js/frame.js"), headers={"accept-encoding": "gzip, br"})
    answer = StaticFiles(lambda _: HttpResponse(status=404))(request)
    assert (answer.status_code, answer["Content-Encoding"]) == (200, "br")
    assert "immutable" in answer["Cache-Control"]
    assert len(answer.content) < (root / "js/frame.js").stat().st_size / 5


def test_files_are_collected_again_only_when_one_has_changed(collect, source):
    root = collect()
    first = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    collect()
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == first
    (source / "js/text.js").write_text("export const text = 'new';\n")
    assert not is_collected(root, [source]), "served from the folder meanwhile"
    collect()
    assert is_collected(root, [source])
    assert [path for path in root.glob("js/frame.*.js") if path not in first]
    assert len(list(root.glob("js/frame.*.js"))) == 1, "the old one is gone"


def test_a_folder_that_cannot_be_written_is_named(collect, settings, tmp_path):
    (tmp_path / "file").touch()
    settings.TIDEPOOL_STATIC_ROOT = tmp_path / "file" / "root"
    with pytest.raises(CommandError, match="set TIDEPOOL_STATIC_ROOT to a folder of your own"):
        collect()
