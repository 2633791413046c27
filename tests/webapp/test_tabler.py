"""Check that Tabler's style sheet has what pages use, and that the check says when a page uses more."""

import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.conf import settings

FULL = (
    "/*! Its licence */:root{--used:1px;--read-by-it:2px;--unused:var(--never)}@property --unused{inherits:false}"
    ".btn,.card{margin:var(--used)}.btn .card{margin:0}.btn:not(.card){padding:var(--read-by-it,0)}"
    '@media (min-width:1px){.card{margin:0}.alert-info{margin:0;content:";}"}}'
    "[data-bs-theme=dark] .btn{margin:0}[data-bs-carousel] .btn{margin:0}table{margin:0}"
    "@keyframes turns{to{margin:0}}.btn.alert-info{animation:turns}@keyframes stands{to{margin:0}}"
)
TRIMMED = """/*! Its licence */
/* Trimmed by scripts/trim-tabler. */
:root{--used:1px;--read-by-it:2px}
.btn{margin:var(--used)}
.btn:not(.card){padding:var(--read-by-it,0)}
@media (min-width:1px){.alert-info{margin:0;content:";}"}}
[data-bs-theme=dark] .btn{margin:0}
table{margin:0}
@keyframes turns{to{margin:0}}
.btn.alert-info{animation:turns}
"""


@pytest.fixture
def trimmer(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    loader = SourceFileLoader("trim_tabler", str(settings.BASE_DIR / "scripts/trim-tabler"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    monkeypatch.setattr(sys, "argv", ["trim-tabler", "--check"])
    return module


def test_pages_use_no_class_that_was_left_out(trimmer: ModuleType) -> None:
    trimmer.main()


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("templates/page.html", '<p class="btn{% if open %} card{% endif %}">'),
        ("templates/page.html", "{% include '_x.html' with kind='card' %}"),
        ("static/js/page.js", 'element("p", { className: "card" });'),
        ("static/js/page.js", "element('p', { className: `card card-${size}` });"),
        ("jobs/forms.py", 'widget = TextInput(attrs={"class": "card"})'),
    ],
)
def test_a_page_that_uses_one_is_found(
    trimmer: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, text: str
) -> None:
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text(text)
    monkeypatch.setattr(trimmer, "ROOT", tmp_path)
    with pytest.raises(SystemExit, match=r"\bcard\b.*scripts/trim-tabler"):
        trimmer.main()


def test_rules_and_variables_stay_that_pages_use(trimmer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trimmer, "ROOT", tmp_path)
    assert trimmer.trim(FULL, trimmer.Words(["btn", "alert-"])) == TRIMMED
