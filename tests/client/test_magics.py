"""Tests of the magics' output and options; tests/journey/one_stack/test_new_user.py runs them in a kernel."""

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from tidepool.client.api import Client
from tidepool.notebook.magics import TidepoolMagics, _options, bar_of

from tests.scene import Scene


@pytest.mark.django_db
def test_the_bar_tells_gpus_and_why_it_waits(alices: Client, scene: Scene) -> None:
    shown = bar_of(alices.job(scene.first.pk).info)
    assert shown.startswith(f"RUNNING {'▮' * 3}")
    assert f"3 of {scene.first.max_slots} GPUs" in shown
    waiting = alices.job(scene.waiting.pk).info
    assert bar_of(waiting).endswith(f"({waiting.reason.text})")
    assert "0 of" in bar_of(alices.job(scene.done.pk).info)


def test_a_command_that_fails_lets_the_cell_fail(logged_in: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    magics = TidepoolMagics(InteractiveShell())
    magics.tidepool(f"describe {logged_in.first.pk}")
    magics.tidepool("")
    with pytest.raises(UsageError, match=r"%tidepool describe 1000000 ended with exit code 4\."):
        magics.tidepool("describe 1000000")
    assert "Training 1000000" in capsys.readouterr().err


def test_options_that_are_none_are_refused() -> None:
    assert "--requirements" in _options().format_help()
    for words in (["--slot=two"], ["--nothing"], ["-n"]):
        with pytest.raises(UsageError):
            _options().parse_args(words)
