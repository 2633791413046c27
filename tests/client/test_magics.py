"""Tests of the magics' output and options; tests/journey/one_stack/test_new_user.py runs them in a kernel."""

import pytest
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from tidepool.client.api import Client
from tidepool.notebook.magics import TidepoolMagics, _options, bar_of

from jobs.files.job_folder import job_folder
from jobs.models import Job
from tests.scene import Scene
from tests.stored_secrets import CANARY, own_secret


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


def test_a_cell_gets_secrets_by_name_and_its_training_keeps_no_value(logged_in: Scene) -> None:
    row = own_secret(logged_in.alice)
    magics = TidepoolMagics(InteractiveShell())
    made = magics.tidepool("--detach --secret HF_TOKEN", "import os\nlength = len(os.environ['HF_TOKEN'])\n")
    assert made is not None
    job = Job.objects.get(pk=made.id)
    assert (job.secrets, [use.secret for use in job.secret_uses.all()]) == ("HF_TOKEN", [row])
    kept = [path.read_bytes() for path in job_folder(job).path.rglob("*") if path.is_file()]
    assert kept
    assert not any(CANARY.encode() in content for content in kept)


def test_a_cell_with_a_secret_that_nobody_has_is_refused(logged_in: Scene) -> None:
    with pytest.raises(UsageError, match=r"a secret .NO_SUCH_TOKEN.: add it on the page Secrets"):
        TidepoolMagics(InteractiveShell()).tidepool("--detach --secret NO_SUCH_TOKEN", "print(1)")
