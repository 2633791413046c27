"""Each option of a training reaches the Train page, the API, the row, a clone and the launch from its declaration."""

from typing import Any

import pytest
from django.contrib.auth.models import User
from drf_spectacular.generators import SchemaGenerator
from tidepool.protocol import DesiredJob, LaunchSpec

from jobs import actions
from jobs.control.dispatch import launch_spec
from jobs.models import Job, NamedEnvironment
from jobs.options import MASK, OPTIONS, Option
from jobs.pages.train.forms import TrainForm
from jobs.queries.serializers import JobOutput, as_json
from jobs.queries.shown_options import option_texts, options_shown
from models_registry.models import RegisteredModelVersion
from tests.jobs.conftest import Submit
from tests.stored_secrets import own_secret

#: Another value than the default of each option, and fitting beside the others of an elastic script.
OTHERS: dict[str, Any] = {
    "min_slots": 2,
    "max_slots": 3,
    "priority": 1234,
    "max_seconds": 3600,
    "exactness": "bitwise",
    "virtual_ranks": 5,
    "adaptive": "off",
    "autolog": "off",
    "cpus_per_gpu": 2,
    "memory_gib_per_gpu": 3,
    "effective_batch_size": 96,
    "seed": 7,
    "checkpoint_seconds": 11,
    "checkpoints_kept": 4,
    "stall_seconds": 900,
    "requirements": "numpy\nsafetensors",
    "log_pattern": r"loss (?P<loss>\S+)",
    "environment": {"WANDB_MODE": "offline"},
    "secrets": "HF_TOKEN",
}
#: Options of a fixed-size script.
FIXED: dict[str, Any] = {
    "placement": "one_host",
    "gpus_per_process": "one",
    "max_slots": 3,
    "named_environment": "vision",
}


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    schema = SchemaGenerator().get_schema(request=None, public=True)
    shape: dict[str, Any] = schema["components"]["schemas"]["JobInputRequest"]
    return shape


def test_every_option_has_another_value_here() -> None:
    values = FIXED | OTHERS
    assert values.keys() == OPTIONS.keys()
    assert all(values[name] != option.default for name, option in OPTIONS.items())


@pytest.mark.parametrize("option", OPTIONS.values(), ids=list(OPTIONS))
def test_the_api_describes_the_option(option: Option, described: dict[str, Any]) -> None:
    field = described["properties"][option.name]
    assert option.help in field["description"]
    assert (option.name in described["required"]) == option.is_required
    assert option.is_required or field.get("default", {} if option.is_variables else None) == option.default


@pytest.mark.django_db
@pytest.mark.parametrize("option", [option for option in OPTIONS.values() if option.label], ids=lambda each: each.name)
def test_the_train_page_asks_for_the_option(option: Option) -> None:
    field = TrainForm(groups=[], versions={}).fields[option.name]
    assert (field.label, field.required) == (option.label, field.initial not in (None, ""))
    assert option.help in str(field.help_text)


@pytest.mark.django_db
def test_the_train_page_hides_of_plain_scripts_only_what_needs_a_session() -> None:
    shown = {option.name: option.is_of_sessions for _, option in TrainForm(groups=[], versions={}).more_options}
    assert {name for name, is_of_sessions in shown.items() if not is_of_sessions} == {
        *("max_seconds", "autolog", "placement", "cpus_per_gpu", "memory_gib_per_gpu", "log_pattern"),
    }


@pytest.fixture
def job(submit: Submit, alice: User) -> Job:
    own_secret(alice)
    return submit(**OTHERS)


@pytest.mark.django_db
@pytest.mark.parametrize(("engine", "values"), [("elastic", OTHERS), ("fixed", FIXED)])
def test_every_option_is_stored_and_cloned(
    submit: Submit, alice: User, code: RegisteredModelVersion, engine: str, values: dict[str, Any]
) -> None:
    RegisteredModelVersion.objects.filter(pk=code.pk).update(engine=engine)
    NamedEnvironment.objects.create(name="vision", kind="text", source="timm", lines="timm")
    own_secret(alice)
    job = submit(**values)
    for row in (job, actions.clone(job, alice)):
        row.refresh_from_db()
        assert {name: getattr(row, name) for name in values} == values


@pytest.mark.django_db
def test_the_api_answers_with_every_option(job: Job) -> None:
    shown = as_json(JobOutput, job)
    assert {name: shown[name] for name in OTHERS} == OTHERS | {"environment": {"WANDB_MODE": MASK}}


@pytest.mark.django_db
def test_the_page_of_a_job_has_a_row_for_each_option_that_says_how_it_trains(submit: Submit, job: Job) -> None:
    deadline = ("Deadline for a step", "stopped after 300 s without one")
    assert options_shown(submit()) == [("Exactness", "sum"), ("Seed", "0"), deadline]
    assert options_shown(job) == [
        ("Exactness", "bitwise"),
        ("Virtual ranks", "5"),
        ("Adaptive batch", "off"),
        ("MLflow", "only the script's own logging"),
        ("Cores per GPU", "2"),
        ("Memory per GPU", "3 GiB"),
        ("Effective batch size", "96"),
        ("Seed", "7"),
        ("Checkpoints", "at least every 11 s"),
        ("Checkpoints kept", "4"),
        ("Deadline for a step", "stopped after 900 s without one"),
        ("Secrets", "HF_TOKEN"),
    ]
    assert option_texts(job) == [
        ("Requirements", "numpy\nsafetensors"),
        ("Environment variables", f"WANDB_MODE = {MASK}"),
    ]


def test_the_desired_state_has_what_may_change_while_it_trains() -> None:
    desired = {name for name, option in OPTIONS.items() if option.is_desired}
    assert desired == set(DesiredJob.__struct_fields__) & OPTIONS.keys()


@pytest.mark.django_db
def test_the_launch_has_what_the_runtime_uses(job: Job) -> None:
    launch = launch_spec(job)
    launched = {name for name, option in OPTIONS.items() if option.is_launched}
    assert {name: getattr(launch, name) for name in launched} == {name: OTHERS[name] for name in launched}
    known = set(LaunchSpec.__struct_fields__)
    merged = {"max_slots", "environment"}  # that of the first start; together with what other apps add
    assert launched == (known & OPTIONS.keys()) - merged
    assert launch.environment.items() >= OTHERS["environment"].items()


@pytest.mark.django_db
@pytest.mark.parametrize("name", [name for name, option in OPTIONS.items() if option.limit and not option.choices])
def test_the_limits_of_the_option_hold(name: str, submit: Submit) -> None:
    option = OPTIONS[name]
    for value in (option.least - 1, option.most + 1, True, "1"):
        with pytest.raises(actions.InvalidSubmission) as refused:
            submit(**{**OTHERS, name: value})
        assert any(sentence.startswith(option.words) for sentence in refused.value.fields[name])
