"""Pages of studies."""

from collections.abc import Callable
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q
from django.forms import Form
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from core.edit_forms import opened_data
from core.edits import UNSEEN, Seen
from core.errors import NotFound
from core.keyset import Order
from core.live import current_seqs
from core.pages import carried_out, done, login_user, page_of, say
from core.text import plural, whole
from insights.comparison import MAX_JOBS
from jobs.models import Checkpoint
from jobs.queries.checkpoints import visible_checkpoints
from jobs.queries.groups import usable_groups
from models_registry.models import RegisteredModelVersion
from models_registry.queries import models
from studies import actions, figure_data
from studies.copying import copy_problem
from studies.forms import MetricForm, SeedsForm, StudyForm, TrialForm, TrialsForm
from studies.measures import gpu_seconds
from studies.models import PLUGIN, PluginCall, Study, Trial
from studies.queries import find_study, studies, trials_by_value, with_best
from studies.space import parse_space, varied
from studies.topics import study_topic
from studies.words import best_sentence

__all__ = [
    "study_add_trials",
    "study_change_state",
    "study_delete",
    "study_detail",
    "study_enqueue",
    "study_figures",
    "study_list",
    "study_metric",
    "study_new",
    "study_now",
    "study_seeds",
]

_CRUMB = ("Studies", "/studies/")
#: Number of trials in the table, the best first; the REST API and the CSV file have all.
_MOST_ROWS = 200
_GPU_COLUMNS = ("Time", "Trial", "GPUs", "Why", "Pause (ms)")
_VERBS: dict[str, tuple[Callable[[User, int], Study], str]] = {
    "pause": (actions.pause, "The study is paused. Trials that have been submitted train on."),
    "resume": (actions.resume, "The study submits trials again."),
    "stop": (actions.stop, "The study was stopped, with its trials."),
}


@require_safe
def study_list(request: HttpRequest) -> HttpResponse:
    page = page_of(request, studies(request.user), Order("id", descending=True, parse=whole))
    context = {"section": "studies", "crumbs": [("Studies", None)], "page": page, "rows": with_best(page.rows)}
    return render(request, "studies/list.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
def study_new(request: HttpRequest) -> HttpResponse:
    user, groups = login_user(request), usable_groups(request.user)
    versions: dict[str, RegisteredModelVersion] = {
        str(model.pk): model.latest[0]  # type: ignore[attr-defined]
        for model in models(request.user)
        if model.latest  # type: ignore[attr-defined]
    }
    form = StudyForm(request.POST or None, groups=groups, versions=versions, initial=_initial(request, versions))
    study = carried_out(request, form, lambda: actions.create_study(_request(form.cleaned_data), user))
    if study is not None:
        return redirect("studies:detail", study.pk)
    context = {"section": "studies", "crumbs": [_CRUMB, ("New study", None)], "form": form, "groups": groups}
    return render(request, "studies/new.html", context, status=400 if form.errors else 200)


@require_safe
def study_detail(request: HttpRequest, study_id: int) -> HttpResponse:
    return _page(request, study_id)


@require_safe
def study_now(request: HttpRequest, study_id: int) -> HttpResponse:
    """Return the part of the page that changes while trials train."""
    return render(request, "studies/_now.html", _now(_study(request, study_id)))


@require_safe
def study_figures(request: HttpRequest, study_id: int) -> JsonResponse:
    """Return the figures of the page, which it fetches by themselves: they take longer than the rest."""
    return JsonResponse(figure_data.study_figures(request.user, _study(request, study_id)))


@require_POST
def study_change_state(request: HttpRequest, study_id: int, verb: str) -> HttpResponse:
    study = _study(request, study_id)
    if verb not in _VERBS:
        raise Http404
    act, sentence = _VERBS[verb]
    if done(request, lambda: act(login_user(request), study.pk)):
        say(request, sentence)
    return redirect("studies:detail", study.pk)


@require_POST
def study_add_trials(request: HttpRequest, study_id: int) -> HttpResponse:
    """Raise the limit of trials."""
    study, form = _study(request, study_id), TrialsForm(request.POST)

    def add() -> Study:
        wanted = actions.StudyChange(trials=(study.trials_wanted or 0) + form.cleaned_data["more"])
        return actions.change_study(login_user(request), study.pk, wanted)

    return _changed(request, study, form, add)


@require_POST
def study_metric(request: HttpRequest, study_id: int) -> HttpResponse:
    """Compare the trials by another metric."""
    study, form = _study(request, study_id), MetricForm(request.POST)
    opened = opened_data(request.POST)
    seen = UNSEEN if opened is None else Seen(opened.dict())

    def change() -> Study:
        return actions.change_study(login_user(request), study.pk, actions.StudyChange(**form.cleaned_data), seen)

    return _changed(request, study, form, change)


@require_POST
def study_seeds(request: HttpRequest, study_id: int) -> HttpResponse:
    """Repeat a trial with other seeds."""
    study, form = _study(request, study_id), SeedsForm(request.POST)
    return _changed(
        request,
        study,
        form,
        lambda: actions.more_seeds(
            login_user(request), study.pk, form.cleaned_data["trial"], form.cleaned_data["count"]
        ),
    )


@require_POST
def study_enqueue(request: HttpRequest, study_id: int) -> HttpResponse:
    """Queue a trial with values that the user chose."""
    study, form = _study(request, study_id), TrialForm(request.POST)
    return _changed(
        request,
        study,
        form,
        lambda: actions.enqueue(login_user(request), study.pk, [form.cleaned_data["values"]]),
    )


@require_POST
def study_delete(request: HttpRequest, study_id: int) -> HttpResponse:
    study = _study(request, study_id)
    if not done(request, lambda: actions.delete_study(login_user(request), study.pk)):
        return redirect("studies:detail", study.pk)
    say(request, f"The study {study.name} was deleted. Its trainings are kept.")
    return redirect("studies:list")


def _study(request: HttpRequest, study_id: int) -> Study:
    try:
        return find_study(request.user, study_id)
    except NotFound as error:
        raise Http404 from error


def _changed(request: HttpRequest, study: Study, form: Form, act: Callable[[], object]) -> HttpResponse:
    """Carry out a small form of the page; with an error, show the page again with what was typed."""
    if carried_out(request, form, act) is not None:
        say(request, "The study was changed.")
        return redirect("studies:detail", study.pk)
    return _page(request, study.pk, form)


def _page(request: HttpRequest, study_id: int, mistaken: Form | None = None) -> HttpResponse:
    """Return the page of the study. `mistaken`: the small form with an error, which keeps what was typed."""
    # Read the number first: a change published meanwhile arrives again and has no further effect.
    seq = current_seqs([study_topic(study_id)])[study_topic(study_id)]
    study = _study(request, study_id)
    compared = {name: getattr(study, name) for name in MetricForm.base_fields}
    forms = {
        "seeds_form": SeedsForm(),
        "trials_form": TrialsForm(),
        "trial_form": TrialForm(),
        "metric_form": MetricForm(initial=compared),
    }
    context = {
        "present_metric_form": forms["metric_form"],
        "section": "studies",
        "crumbs": [_CRUMB, (study.name, None)],
        **_now(study),
        **_chart_words(study),
        "topic": {"name": study_topic(study_id), "seq": seq},
        **{name: mistaken if type(mistaken) is type(form) else form for name, form in forms.items()},
    }
    return render(request, "studies/detail.html", context, status=400 if mistaken else 200)


def _now(study: Study) -> dict[str, Any]:
    best = study.best  # type: ignore[attr-defined]
    over = Q(state__in=(Trial.State.COMPLETE, Trial.State.PRUNED, Trial.State.FAILED))
    rows = list(trials_by_value(study)[:_MOST_ROWS])
    names = list(study.space)
    return {
        "study": study,
        "best": best,
        "best_text": best_sentence(study, best),
        "best_checkpoint": _newest_checkpoint(study, best),
        "names": names,
        "rows": [(trial, [(name, trial.values.get(name, "")) for name in names]) for trial in rows],
        "left_out": study.trials.count() - len(rows),
        "over_count": study.trials.filter(over).count(),
        "gpu_hours": gpu_seconds(study, timezone.now()) / 3600,
        "counts": _counts_words(study),
        "reported": _best_jobs(rows),
        "uncopied": copy_problem(study),
        **_plugin(study),
    }


def _best_jobs(trials: list[Trial]) -> str:
    """Return the numbers of the trainings of the best trials, as an address of reports takes them."""
    jobs = [str(trial.job_id) for trial in trials if trial.job_id and trial.value is not None]
    return ",".join(jobs[:MAX_JOBS])


def _plugin(study: Study) -> dict[str, Any]:
    """Return what the page shows of the study's plug-in and of its newest call; {} for another sampler."""
    if study.sampler != PLUGIN:
        return {}
    call = PluginCall.objects.filter(study=study).select_related("job").order_by("-number").first()
    return {"has_plugin": True, "plugin": study.plugin, "call": call}


def _newest_checkpoint(study: Study, best: Trial | None) -> Checkpoint | None:
    """Return the checkpoint of the best trial from which a model version may be made."""
    if best is None or best.job_id is None:
        return None
    return visible_checkpoints(study.owner).filter(job=best.job_id, problem="").order_by("-step").first()


def _chart_words(study: Study) -> dict[str, Any]:
    """Return what the panels of the figures need before the figures are there."""
    return {"with_figures": True, "parameters": _by_importance(study), "gpu_columns": _GPU_COLUMNS}


def _by_importance(study: Study) -> list[str]:
    """Return the names of the parameters that differ, the most important first."""
    names = varied(parse_space(study.space))
    return sorted(names, key=lambda name: -study.importance.get(name, 0))


def _counts_words(study: Study) -> str:
    """Return the numbers of trials, such as "2 train, 5 complete, 1 pruned"."""
    words = {"running": "train", "waiting": "queued", "complete": "complete", "pruned": "pruned", "failed": "failed"}
    counts = [(getattr(study, f"{state}_count"), word) for state, word in words.items()]
    return ", ".join(
        f"{count} {plural(count, f'{word}s', word) if word == 'train' else word}" for count, word in counts if count
    )


def _initial(request: HttpRequest, versions: dict[str, RegisteredModelVersion]) -> dict[str, Any]:
    model = request.GET.get("model", "")
    wanted = {"model": model} if model in versions else {}
    return {"name": f"study-{timezone.now():%Y%m%d%H%M%S}", **wanted}


def _request(given: dict[str, Any]) -> actions.StudyRequest:
    same = ("name", "space", "metric", "goal", "value_of", "sampler", "pruner", "seed", "parameters")
    return actions.StudyRequest(
        **{name: given[name] for name in same},
        model=given["model"].name,
        dataset=given["dataset"].name if given["dataset"] else None,
        instance_group=given["instance_group"].name,
        trials=given["trials"],
        minutes=given["minutes"],
        gpu_hours=given["gpu_hours"],
        at_once=given["at_once"],
        options={name: given[name] for name in ("max_slots", "priority", "seed")},
    )
