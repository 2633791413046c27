"""Modules that pages load together become one file, or the line is named that cannot."""

from pathlib import Path

import pytest
from django.conf import settings

from webapp.bundles import FRAME, bundled

SOURCES = {
    "js/frame.js": 'import "./keys.js";\nimport { words } from "./words.js";\n\nwords();\n',
    "js/keys.js": 'import { words as said } from "./words.js";\n\nsaid();\n',
    "js/words.js": "export function words() {}\n",
    "js/live.js": "export class Live {}\nexport const live = new Live();\nexport async function fetchJson() {}\n",
    "js/pages/job.js": (
        'import { live } from "../live.js";\nimport { words } from "../words.js";\n'
        'import { show } from "./job/logs.js";\n\nshow(live, words);\n'
    ),
    "js/pages/job/logs.js": (
        'import { fetchJson } from "../../live.js";\n\nexport function show() {\n  fetchJson();\n}\n'
    ),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for path, text in SOURCES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def test_a_module_comes_once_and_after_those_that_it_imports(folder: Path) -> None:
    frame = bundled(folder).texts[FRAME]
    order = [frame.index(f"const ${name} = ") for name in ("words", "keys", "frame")]
    assert order == sorted(order)
    assert frame.count("function words()") == 1
    assert "const { words: said } = $words;" in frame
    assert "export { $words, $keys, $frame };" in frame


def test_a_page_takes_what_the_frame_has_from_there(folder: Path) -> None:
    page = bundled(folder).texts["js/pages/job.js"]
    assert page.startswith('import { $words } from "../frame.js";\n')
    assert page.count("class Live") == 1
    assert "return { Live, live, fetchJson };" in page
    assert "function words()" not in page
    assert page.endswith("export { $live, $pages_job_logs, $pages_job };\n")


def test_what_is_in_bundles_is_not_left_beside_them(folder: Path) -> None:
    bundles = bundled(folder)
    assert set(bundles.texts) == {"js/frame.js", "js/pages/job.js"}
    assert bundles.parts == {
        "js/keys.js",
        "js/words.js",
        "js/live.js",
        "js/pages/job/logs.js",
    }


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("js/live.js", "export default 1;"),
        ("js/live.js", 'export { a } from "./b.js";'),
        ("js/live.js", 'import * as words from "./words.js";'),
        ("js/live.js", 'import { fetchJson } from "./pages/job.js";'),
        ("js/keys.js", 'import { words, nothing as something } from "./words.js";'),
    ],
)
def test_what_it_cannot_bundle_is_refused_by_name(folder: Path, path: str, line: str) -> None:
    with (folder / path).open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(ValueError, match=path):
        bundled(folder)


def test_the_sources_of_tidepool_can_be_bundled() -> None:
    bundles = bundled(settings.STATICFILES_DIRS[0])
    assert {"js/frame.js", "js/pages/overview.js"} <= set(bundles.texts)
