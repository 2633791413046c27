"""The command line against the site's own views: what it prints for programs, and its exit codes."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Never

import click
import pytest
from django.utils import timezone
from tidepool.cli import account, completion, follow
from tidepool.cli.app import COMMANDS, cli
from tidepool.cli.completion import job_numbers, names_of
from tidepool.client.api import Client
from tidepool.client.config import config_file
from tidepool.client.errors import Unreachable
from tidepool.client.http import Connection
from tidepool.client.rows import LogLine, Reason

from accounts.models import ApiToken, DeviceGrant
from accounts.tokens import make_token
from jobs.control.gpu_spans import SPAN, HostUse, Span, store
from jobs.files.job_folder import job_folder
from jobs.gpu_time import to_ms
from jobs.models import Job, SlotClaim
from models_registry.models import RegisteredModel
from tests.client.conftest import URL, Call, over_wsgi
from tests.jobs.actions.test_checkpoints import publish
from tests.jobs.api.test_stream import begin, end
from tests.scene import Scene
from tests.test_architecture import ROOT
from workers.models import Host

pytestmark = pytest.mark.django_db


def test_without_a_login_it_says_so(tidepool: Call) -> None:
    code, out, said = tidepool("ps")
    assert (code, out) == (3, "")
    assert "tidepool login" in said


class TestLogin:
    @pytest.fixture(autouse=True)
    def _reaches_the_site(self, in_process: None, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(account, "Connection", partial(Connection, transport=over_wsgi(), tries_for=0.0))

    def test_by_a_code_that_is_confirmed_in_a_browser(
        self, scene: Scene, tidepool: Call, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shown: list[str] = []
        monkeypatch.setattr(account, "show_code", lambda address, code: shown.extend([address, code]))
        # While it waits, Alice confirms.
        monkeypatch.setattr(account.time, "sleep", lambda seconds: DeviceGrant.objects.update(user=scene.alice))

        assert tidepool("login", URL, "--scope", "read")[0] == 0

        assert shown[1] in shown[0]
        assert ApiToken.objects.get(user=scene.alice).scope == "read"
        assert config_file().stat().st_mode & 0o777 == 0o600
        assert json.loads(tidepool("whoami", "--json")[1])["user"] == "alice"
        assert tidepool("cancel", scene.waiting.pk)[0] == 5

    def test_by_a_token_on_stdin_and_out_again(
        self, scene: Scene, tidepool: Call, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        token = make_token(scene.alice, "ci", None).text
        monkeypatch.setattr(account, "read_line", lambda: token)
        assert tidepool("login", URL, "--token-stdin")[0] == 0
        assert tidepool("logout")[0] == 0
        assert not ApiToken.objects.exists()
        assert tidepool("ps")[0] == 3

    def test_a_name_instead_of_a_number_is_answered_with_where_numbers_are(self, tidepool: Call) -> None:
        code, _, said = tidepool("why", "T1")
        assert (code, "'T1' is not the number of a training: `tidepool ps` lists them." in said) == (2, True)

    def test_it_prints_what_mlflows_client_wants(
        self, scene: Scene, tidepool: Call, monkeypatch: pytest.MonkeyPatch, settings: Any
    ) -> None:
        assert tidepool("login")[0] == 2
        assert tidepool("login", "--mlflow")[0] == 3, "nobody is logged in"
        token = make_token(scene.alice, "ci", None).text
        monkeypatch.setattr(account, "read_line", lambda: token)
        code, out, said = tidepool("login", URL, "--token-stdin", "--mlflow")
        assert (code, out) == (4, "")
        assert "has no MLflow" in said
        settings.TIDEPOOL_MLFLOW_SOCKET = "/nowhere.sock"
        line = f"export MLFLOW_TRACKING_URI={URL}/mlflow MLFLOW_TRACKING_TOKEN={token}\n"
        assert tidepool("login", URL, "--token-stdin", "--mlflow")[1] == line
        assert tidepool("login", "--mlflow")[:2] == (0, line)
        assert json.loads(tidepool("login", "--mlflow", "--json")[1])["MLFLOW_TRACKING_TOKEN"] == token

    def test_a_token_that_is_none_is_not_kept(self, tidepool: Call, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(account, "read_line", lambda: "nonsense")
        assert tidepool("login", URL, "--token-stdin")[0] == 3
        assert not config_file().exists()


class TestLists:
    def test_ps(self, logged_in: Scene, tidepool: Call) -> None:
        numbers = [logged_in.waiting.pk, logged_in.second.pk, logged_in.first.pk]
        assert tidepool("ps", "-q")[1].split() == [str(number) for number in numbers]
        rows = json.loads(tidepool("ps", "--json")[1])
        assert [row["id"] for row in rows] == numbers
        assert {"name", "state", "slots", "progress", "submitted_at"} <= set(rows[0])
        assert tidepool("ps", "--state", "failed", "-q")[1].split() == [str(logged_in.failed.pk)]
        assert "\x1b" not in tidepool("ps", "-a")[1]  # no terminal, no colour

    def test_queue_and_gpus(self, logged_in: Scene, tidepool: Call) -> None:
        assert tidepool("queue", "-q")[1].split() == [str(logged_in.waiting.pk)]
        assert len(tidepool("gpus", "-q")[1].split()) == 8
        assert json.loads(tidepool("gpus", "--json")[1])["counts"]["held"] == 8

    def test_top_is_a_table_without_a_terminal(self, logged_in: Scene, tidepool: Call) -> None:
        code, out, _ = tidepool("top")
        assert code == 0
        assert str(logged_in.first.pk) in out

    @pytest.mark.parametrize("words", [("datasets", "ls"), ("models", "ls")])
    def test_things(self, logged_in: Scene, tidepool: Call, words: tuple[str, str]) -> None:
        names = tidepool(*words, "-q")[1].split()
        assert [row["name"] for row in json.loads(tidepool(*words, "--json")[1])] == names
        assert tidepool(words[0], "show", names[0])[0] == 0
        assert tidepool(*words)[1].count("\n") == len(names) + 1


class TestOne:
    def test_shows(self, logged_in: Scene, tidepool: Call) -> None:
        job = logged_in.first.pk
        assert json.loads(tidepool("describe", job, "--json")[1])["id"] == job
        assert tidepool("describe", logged_in.failed.pk)[1].count("FileNotFoundError") >= 1
        assert json.loads(tidepool("why", logged_in.waiting.pk, "--json")[1])["text"]
        assert json.loads(tidepool("events", job, "--json")[1])
        assert tidepool("metrics", job, "loss", "--csv")[1].startswith("name,step,epoch,value,at\nloss,")
        assert tidepool("metrics", job, "no-such")[0] == 4

    def test_changes(self, logged_in: Scene, tidepool: Call) -> None:
        job = logged_in.waiting.pk
        assert tidepool("suspend", job)[0] == 0
        assert tidepool("resume", job)[0] == 0
        assert tidepool("priority", job, 6000)[0] == 0
        assert tidepool("scale", job, "--max", 7, "--min", 2)[0] == 0
        row = Job.objects.get(pk=job)
        assert (row.state, row.priority, row.max_slots, row.min_slots) == ("PENDING", 6000, 7, 2)
        assert tidepool("cancel", job)[0] == 0
        assert tidepool("resume", job)[0] == 5

    def test_one_that_refuses_does_not_hold_up_the_others(self, logged_in: Scene, tidepool: Call) -> None:
        code, _, said = tidepool("cancel", "-y", logged_in.done.pk, logged_in.waiting.pk)
        assert code == 5
        assert str(logged_in.done.pk) in said
        assert Job.objects.get(pk=logged_in.waiting.pk).state == "CANCELLED"

    def test_of_several_it_asks(self, logged_in: Scene, tidepool: Call, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("click.termui.visible_prompt_func", lambda prompt: "n")
        assert tidepool("cancel", logged_in.first.pk, logged_in.waiting.pk)[0] == 130
        assert Job.objects.get(pk=logged_in.waiting.pk).state == "PENDING"

    def test_no_name_of_a_file_commands_the_terminal(self, logged_in: Scene, tidepool: Call) -> None:
        folder = job_folder(logged_in.done).attempt(logged_in.done.run.attempt)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "a\x1b]52;c;cm0=\x07\x9b2J\u202egpj").write_text("x")
        code, shown, _ = tidepool("results", "ls", logged_in.done.pk)
        assert code == 0
        assert "a\ufffd]52;c;cm0=\ufffd\ufffd2J\ufffdgpj" in shown
        assert not {*"\x1b\x07\x9b\u202e"} & {*shown}

    def test_results(self, logged_in: Scene, tidepool: Call, tmp_path: Path) -> None:
        job = logged_in.done.pk
        assert "scores.csv" in tidepool("results", "ls", job, "-q")[1].split()
        assert tidepool("results", "get", job, tmp_path / "out", "scores.csv")[0] == 0
        assert (tmp_path / "out" / "scores.csv").exists()
        assert '"step": 600,' in tidepool("checkpoints", job, "--json")[1]
        assert tidepool("checkpoints", job, "--as", "best")[0] == 2
        assert tidepool("checkpoints", logged_in.waiting.pk, "--json")[1].strip() == "[]"

    def test_a_version_of_a_checkpoint(self, logged_in: Scene, tidepool: Call) -> None:
        job, point = logged_in.done, publish(logged_in.done, 900)
        code, out, said = tidepool("checkpoints", job.pk, "--make-version", point.pk, "--as", "digits-best")
        assert code == 0
        assert f"digits-best v1 was created with the weights of checkpoint {point.pk}." in said
        [line] = [line for line in out.splitlines() if line.split()[0] == str(point.pk)]
        assert "kept" in line
        assert "digits-best v1" in line
        code, out, said = tidepool("checkpoints", job.pk, "--make-version", point.pk, "--json")
        assert (code, said) == (0, "")
        [row] = [row for row in json.loads(out) if row["id"] == point.pk]
        assert row["versions"] == ["digits-best v1", f"{job.model.model.name}-trained v1"]
        made = RegisteredModel.objects.get(name="digits-best").versions.get()
        assert (made.digest, made.trained.checkpoint) == (job.model.digest, point)
        assert tidepool("checkpoints", job.pk, "--make-version", point.pk, "--as", "digits-best")[0] == 5
        assert tidepool("checkpoints", job.pk, "--keep", point.pk + 1)[0] == 4


class TestSubmit:
    def test_a_script_with_its_words(self, logged_in: Scene, tidepool: Call, script: Path) -> None:
        code, out, _ = tidepool("submit", "-q", script, "--name", "mine", "--", "--lr", "0.1")
        row = Job.objects.get(pk=int(out))
        assert (code, row.name, row.arguments, row.model.model.name) == (0, "mine", ["--lr", "0.1"], "hello")

    def test_its_tags_and_no_autologging(self, logged_in: Scene, tidepool: Call, script: Path) -> None:
        tags = ("--tag", "Baseline", "--tag", "lr:0.1")
        row = Job.objects.get(pk=int(tidepool("submit", "-q", script, *tags, "--no-autolog")[1]))
        assert (sorted(tag.name for tag in row.tags.all()), row.autolog) == (["baseline", "lr:0.1"], "off")
        assert Job.objects.get(pk=int(tidepool("submit", "-q", script)[1])).autolog == "on"
        assert tidepool("submit", script, "--tag", "two words")[0] == 2

    def test_who_waits_is_told_how_it_ended(
        self, logged_in: Scene, tidepool: Call, script: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        failed = logged_in.failed.pk
        monkeypatch.setattr("tidepool.client.api.Client.send", lambda self, *_, **__: self.job(failed))
        code, out, said = tidepool("submit", script, "--wait")
        assert (code, out) == (1, "")
        assert "FileNotFoundError" in said
        assert f"Training {failed} failed" in said
        assert tidepool("submit", script, "--wait", "-q")[:2] == (1, f"{failed}\n")

    def test_says_first_how_much_is_sent(self, logged_in: Scene, tidepool: Call, script: Path) -> None:
        _, out, said = tidepool("submit", script)
        assert out == ""
        assert said.index("1 file, 15 B") < said.index("/jobs/")

    def test_a_file_of_settings(self, logged_in: Scene, tidepool: Call, script: Path) -> None:
        file = script.with_name("job.toml")
        file.write_text('script = "hello.py"\nname = "filed"\nseed = 7\n[parameters]\nepochs = 2\n')
        made = json.loads(tidepool("submit", "-f", file, "--json", "--name", "typed")[1])
        row = Job.objects.get(pk=made["id"])
        assert (row.name, row.seed, row.parameters) == ("typed", 7, {"epochs": 2})

    def test_an_adaptdl_job(self, logged_in: Scene, tidepool: Call, script: Path) -> None:
        other = script.with_name("other.py")
        other.write_text("print('other')\n")
        file = script.with_name("job.yaml")
        command = f"[python3, /root/{script.parent.name}/other.py, --lr, 0.1]"
        file.write_text(
            f"kind: AdaptDLJob\nmetadata: {{name: theirs}}\nspec:\n  maxReplicas: 1\n"
            f"  template: {{spec: {{containers: [{{image: a, command: {command}}}]}}}}\n"
        )
        code, out, _ = tidepool("submit", "-q", script.parent, "-f", file)
        row = Job.objects.get(pk=int(out))
        assert (code, row.name, row.arguments, row.model.entry_point) == (0, "theirs", ["--lr", "0.1"], "other.py")
        assert tidepool("submit", script.parent, "-f", file, "--max", "2")[0] == 2
        before = Job.objects.count()
        code, out, _ = tidepool("submit", script.parent, "-f", file, "--dry-run")
        assert (code, Job.objects.count()) == (0, before)
        assert "would start" in out

    def test_options_with_a_name_of_their_own(self, logged_in: Scene, tidepool: Call, script: Path) -> None:
        (script.parent / "wanted.txt").write_text("-r more.txt\n--pre\n")
        (script.parent / "more.txt").write_text("tidehello>=1,<2")
        words = ("submit", "-q", script, "--seed", "0", "--requirements")
        assert Job.objects.get(pk=int(tidepool(*words, "a>=1,<2,b[c]")[1])).requirements == "a<2,>=1\nb[c]"
        code, _, said = tidepool(*words, script.parent / "wanted.txt")
        assert (code, "line 2, '--pre': this option of pip is not supported" in said) == (2, True)
        code, out, _ = tidepool(*words, script.parent / "wanted.txt", "--skip-unusable-requirements")
        row = Job.objects.get(pk=int(out))
        assert (code, row.seed, row.requirements) == (0, 0, "tidehello<2,>=1")
        code, _, said = tidepool(*words, "a", "--image", "b")
        assert (code, "leave out --requirements or --image" in said) == (2, True)
        image = f"docker.io/pytorch/pytorch@sha256:{'0' * 64}"
        code, _, said = tidepool("submit", "-q", script, "--image", image)
        assert (code, "A container image needs podman, enroot or apptainer" in said) == (2, True)
        Host.objects.update(images="podman")
        code, out, _ = tidepool("submit", "-q", script, "--image", image)
        assert (code, Job.objects.get(pk=int(out)).requirements) == (0, f"--image {image}")
        code, _, said = tidepool(*words, "nowhere.txt")
        assert (code, "check the path of --requirements" in said) == (2, True)

    def test_a_job_file_names_requirements_beside_it(self, logged_in: Scene, tidepool: Call, script: Path) -> None:
        (script.parent / "wanted.txt").write_text("tidehello")
        file = script.with_name("job.toml")
        for requirements in ('"wanted.txt"', '["tidehello"]'):
            file.write_text(f'script = "hello.py"\nseed = 7\nrequirements = {requirements}\n')
            row = Job.objects.get(pk=int(tidepool("submit", "-q", "-f", file)[1]))
            assert (row.seed, row.requirements) == (7, "tidehello")
        assert "start_text" in json.loads(tidepool("submit", "-f", file, "--dry-run", "--json")[1])

    def test_what_is_missing_and_what_is_left_out_is_said_before(
        self, logged_in: Scene, tidepool: Call, script: Path
    ) -> None:
        script.write_text("import tide_nowhere\nopen('conf.yaml')\n")
        (script.parent / "conf.yaml").touch()
        code, out, said = tidepool("submit", script, "--dry-run")
        assert code == 0
        assert "imports tide_nowhere, which the site's own environment does not have" in out
        left_out = "conf.yaml is not sent, because the script does not import it. To send it: --include conf.yaml"
        assert left_out in said
        assert left_out in tidepool("submit", "-q", script)[2], "also where only a number is printed"
        assert left_out not in tidepool("submit", script, "--include", "conf.yaml")[2]
        add = ("models", "add", "named", script, "--engine", "single")
        assert left_out in tidepool(*add)[2]
        code, _, said = tidepool(*add, "--include", "conf.yaml")
        assert (code, left_out in said) == (0, False)

    def test_a_dry_run_submits_nothing(self, logged_in: Scene, tidepool: Call, script: Path) -> None:
        before = Job.objects.count()
        assert "start_text" in json.loads(tidepool("run", script, "--dry-run", "--json")[1])
        assert tidepool("run", script, "--dry-run")[0] == 0
        assert Job.objects.count() == before

    def test_the_same_key_makes_one(self, logged_in: Scene, tidepool: Call, script: Path) -> None:
        numbers = {tidepool("submit", "-q", script, "--key", "0123456789", "--name", "n")[1] for _ in range(2)}
        assert len(numbers) == 1

    @pytest.mark.parametrize(
        ("words", "code"),
        [
            (("submit",), 2),
            (("submit", "nowhere.py"), 2),
            (("submit", "--model", "no-such", "--max", "1"), 2),
            (("submit", "--model", "digits-cnn", "--set", "epochs"), 2),
            (("describe", "1000000"), 4),
            (("describe", "abc"), 2),
            (("pss",), 2),
            (("priority", "5"), 2),
            (("scale", "5"), 2),
            (("admin", "users"), 5),
            (("datasets", "show", "no-such"), 4),
        ],
    )
    def test_mistakes(self, logged_in: Scene, tidepool: Call, words: tuple[str, ...], code: int) -> None:
        found, out, said = tidepool(*words)
        assert (found, out) == (code, "")
        assert said.strip()

    @pytest.mark.parametrize("option", ["--set", "--option"])
    def test_a_value_without_a_name_is_refused(
        self, logged_in: Scene, tidepool: Call, script: Path, option: str
    ) -> None:
        said = tidepool("submit", script, option, "=5")[2]
        assert f"{option} '=5' is not NAME=VALUE: write it like epochs=5." in said

    def test_what_does_not_fit_is_said_for_each_field(self, logged_in: Scene, tidepool: Call, script: Path) -> None:
        code, _, said = tidepool("submit", script, "--max", "99", "--option", "seed=-1")
        assert code == 2
        assert said.count("max_slots") + said.count("seed") >= 2


class TestFollowing:
    def test_ends_with_the_trainings_code(self, logged_in: Scene, tidepool: Call) -> None:
        assert tidepool("logs", "-f", logged_in.done.pk)[0] == 0
        code, _, said = tidepool("logs", "-f", logged_in.failed.pk)
        assert code == 1
        assert "FileNotFoundError" in said

    def test_why_it_stops_is_said_once_in_each_attempt(
        self, alices: Client, logged_in: Scene, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        job = alices.job(logged_in.done.pk)
        over = job.refresh()
        stops = replace(
            over, state="PREEMPTING", reason=Reason(code="PREEMPTED", text="high has more priority."), attempt=1
        )
        waits = replace(stops, state="PENDING", reason=Reason(code="WAITS", text="Waits for 4 more GPUs."))
        again = [replace(each, attempt=2) for each in (stops, waits)]
        first, second = LogLine("one", 1, "a"), LogLine("one", 2, "b")
        changes = [first, stops, stops, waits, waits, second, *again, over]
        monkeypatch.setattr("tidepool.client.training.Follower.changes", lambda follower: iter(changes))
        assert follow.follow(job) == 0
        out, said = capsys.readouterr()
        assert out == "one\none\n"
        told = ["preempting: high has more priority.", "pending: Waits for 4 more GPUs."]
        assert said.splitlines()[:-1] == [*told, "--- attempt 2, b ---", *told]

    def test_ctrl_c_leaves_it_running(self, logged_in: Scene, tidepool: Call, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupted(*_: object, **__: object) -> int:
            raise KeyboardInterrupt

        monkeypatch.setattr(follow, "_follow", interrupted)
        code, _, said = tidepool("logs", "-f", logged_in.first.pk)
        assert code == 130
        assert f"tidepool logs -f {logged_in.first.pk}" in said
        assert Job.objects.get(pk=logged_in.first.pk).state == "RUNNING"


class TestCompletion:
    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_of_commands_in_each_shell(self, tidepool: Call, shell: str, tmp_path: Path) -> None:
        """Complete commands by the lines that the shell evaluates."""
        assert "_TIDEPOOL_COMPLETE" in tidepool("completion", shell)[1]
        asked = {"COMP_WORDS": "tidepool cl", "COMP_CWORD": "cl" if shell == "fish" else "1"}
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT / "runtime"), **asked}
        environment |= {"_TIDEPOOL_COMPLETE": f"{shell}_complete", "XDG_CONFIG_HOME": str(tmp_path)}
        found = subprocess.run(
            [sys.executable, "-m", "tidepool"], env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert "clone" in found.stdout
        assert "cancel" not in found.stdout

    def test_of_numbers_and_names_which_are_kept_a_while(
        self, logged_in: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tidepool.client.http.Connection", partial(Connection, transport=over_wsgi()))
        ctx, parameter = click.Context(cli), click.Argument(["job"])

        found = [item.value for item in job_numbers(ctx, parameter, "")]
        assert str(logged_in.first.pk) in found
        Job.objects.filter(pk=logged_in.first.pk).update(name="renamed")
        assert [item.value for item in job_numbers(ctx, parameter, str(logged_in.first.pk))] == [
            str(logged_in.first.pk)
        ]
        assert [item.value for item in names_of("datasets")(ctx, parameter, "dig")] == ["digits"]

    def test_a_slow_site_is_not_waited_for(self, logged_in: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        """Offer what is kept, however old, and let another process ask for the next press."""
        ctx, parameter, job = click.Context(cli), click.Argument(["job"]), str(logged_in.first.pk)
        asked: list[list[str]] = []
        monkeypatch.setattr(completion.subprocess, "Popen", lambda words, **_: asked.append(words))

        def silent(*_: object, **__: object) -> Never:
            raise Unreachable("no answer")

        monkeypatch.setattr("tidepool.client.http.Connection", silent)
        assert job_numbers(ctx, parameter, "") == []
        assert asked[0][-1] == "jobs"

        monkeypatch.setattr("tidepool.client.http.Connection", partial(Connection, transport=over_wsgi()))
        completion.refresh(None, "jobs", 10.0)
        monkeypatch.setattr("tidepool.client.http.Connection", silent)
        monkeypatch.setattr(completion, "_KEPT_SECONDS", 0.0)
        assert job in [item.value for item in job_numbers(ctx, parameter, "")]
        assert len(asked) == 2

    def test_without_a_login_it_offers_nothing(self) -> None:
        assert job_numbers(click.Context(cli), click.Argument(["job"]), "") == []


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each_command_has_an_example(tidepool: Call, name: str) -> None:
    code, out, _ = tidepool(name, "--help")
    assert code == 0
    assert f"tidepool {name}" in out.replace("tidepool completion", f"tidepool {name}" if name == "completion" else "")


def test_each_command_is_there() -> None:
    ctx = click.Context(cli)
    assert all(cli.get_command(ctx, name) is not None for name in COMMANDS)


def test_what_was_changed_is_undone(logged_in: Scene, tidepool: Call) -> None:
    job, before = logged_in.waiting, logged_in.waiting.priority
    assert tidepool("undo", job.pk)[0] == 4
    tidepool("priority", job.pk, 7000)
    assert tidepool("undo", job.pk)[0] == 0
    assert Job.objects.get(pk=job.pk).priority == before


def test_env_tells_what_is_there(tidepool: Call, logged_in: Scene) -> None:
    code, out, _ = tidepool("env", "torch", "Typing_Extensions")
    assert (code, [line.split()[0] for line in out.splitlines()]) == (
        0,
        ["PACKAGE", "python", "torch", "typing-extensions"],
    )
    assert tidepool("env", "no-such-package")[0] == 4


def test_logs_are_filtered_while_they_are_followed(logged_in: Scene, tidepool: Call, home: Path) -> None:
    begin(logged_in.waiting, 1).write_text("loss 1\nother\nloss 2\nloss 3\n")
    end(logged_in.waiting)
    assert tidepool("logs", logged_in.waiting.pk, "--grep", "loss", "-n", 2)[1] == "loss 2\nloss 3\n"
    assert tidepool("logs", "-f", logged_in.waiting.pk, "--grep", "loss", "-n", 3)[1] == "loss 2\nloss 3\n"


def test_why_slow_lists_what_the_processes_of_each_rank_use(logged_in: Scene, tidepool: Call) -> None:
    end = to_ms(timezone.now())
    for claim in SlotClaim.objects.filter(job=logged_in.first).select_related("slot"):
        store(claim.slot.host_id, [Span(claim.pk, end - SPAN, end, None, None, HostUse(1.25, 2**20, 0.0, None, 5.0))])

    lines = tidepool("why-slow", logged_in.first.pk)[1].splitlines()

    assert lines[0].startswith("Its processes use ")
    [host] = set(SlotClaim.objects.filter(job=logged_in.first).values_list("slot__host__name", flat=True))
    heads = lines.index(next(line for line in lines if line.startswith("RANK")))
    assert lines[heads + 1].split() == ["0", host, "1.2", "1", "MiB/s", "0", "B/s", "-", "5", "B/s", "-"]
