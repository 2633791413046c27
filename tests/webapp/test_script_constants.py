"""Pages give their scripts the server's constants, and both say sizes, dates and durations in the same words."""

import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.conf import settings
from django.test import Client
from tidepool.units import size_words

from core.time import duration, exact_time, relative
from webapp.script_constants import script_constants

NODE = Path(sys.executable).with_name("node")
#: Neither UTC nor whole hours away from it.
ZONE = "Asia/Kolkata"
SIZES = [
    *(0, 1, 1023, 1024, 1025, 1279, 1280, 1331, 10_240, 1024**2 - 1, 1024**2, 307.6 * 1024**2, 322_542_848),
    *(1024**3 - 1, 3 * 1024**3, 15.95 * 1024**3, 1024**4, 5_000 * 1024**4, 0.4, 0.5, 1023.4, 1023.5),
]
SECONDS = [0, 0.5, 1.4, 1.5, 2, 2.5, 59, 59.5, 60, 3_599, 3_600, 7_261, 86_400, 200_000]
MOMENTS = [
    datetime(2026, 11, 27, 5, 53, 9, tzinfo=UTC),
    datetime(2026, 1, 1, tzinfo=UTC),
    datetime(2025, 12, 31, 18, 29, 59, tzinfo=UTC),
    datetime(2028, 2, 29, 23, 59, tzinfo=UTC),
]
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def said_by_scripts(expression: str, values: Any) -> Any:
    """Return the value of an expression that has `words`, the module words.js, and `values`."""
    if not NODE.exists():
        pytest.skip("node is not installed: scripts/setup --dev brings it")
    constants = json.dumps(json.dumps(script_constants()))
    program = f"""
        globalThis.document = {{ getElementById: () => ({{ textContent: {constants} }}) }};
        const words = await import({json.dumps((settings.BASE_DIR / "static/js/words.js").as_uri())});
        const values = {json.dumps(values)};
        console.log(JSON.stringify({expression}));
    """
    command = [str(NODE), "--no-warnings", "--input-type=module", "-e", program]
    done = subprocess.run(command, env=os.environ | {"TZ": ZONE}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_sizes_are_said_alike() -> None:
    assert said_by_scripts("values.map(words.sizeWords)", SIZES) == [size_words(size) for size in SIZES]
    assert [size_words(size) for size in (12, 1536, 322_542_848, 3 * 1024**3)] == [
        "12 B",
        "1.5 KiB",
        "307.6 MiB",
        "3 GiB",
    ]


def test_dates_are_said_alike() -> None:
    said = said_by_scripts("values.map(at => words.exactTime(new Date(at)))", [at.isoformat() for at in MOMENTS])
    assert said == [exact_time(at, ZoneInfo(ZONE)) for at in MOMENTS]
    assert said[0] == "27 Nov 2026, 11:23"


def test_durations_and_relative_times_are_said_alike() -> None:
    milliseconds = [1000 * seconds for seconds in SECONDS]
    assert said_by_scripts("values.map(words.duration)", milliseconds) == [duration(seconds) for seconds in SECONDS]
    moments = [NOW - timedelta(seconds=sign * seconds) for seconds in SECONDS for sign in (1, -1)]
    expression = f"values.map(at => words.relativeTime(new Date(at), new Date({json.dumps(NOW.isoformat())})))"
    assert said_by_scripts(expression, [at.isoformat() for at in moments]) == [relative(at, NOW) for at in moments]


@pytest.mark.django_db
def test_a_page_carries_the_constants(client: Client) -> None:
    page = client.get("/login/").content.decode()
    found = re.search(r'<script id="script-constants" type="application/json">(.*?)</script>', page)
    assert found is not None
    assert json.loads(found[1]) == json.loads(json.dumps(script_constants()))


def test_scripts_name_only_constants_that_there_are() -> None:
    scripts = settings.BASE_DIR / "static" / "js"
    named = {name for file in scripts.rglob("*.js") for name in re.findall(r"\bCONSTANTS\.(\w+)", file.read_text())}
    assert named == script_constants().keys()
