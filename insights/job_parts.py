"""Parts of a job's page that this app renders: advice, GPUs, speed by number of GPUs, stacks, recordings, reason."""

from insights.advisor import job_advice
from insights.cluster import slots_of_job
from insights.gpu_use import GPU_COLUMNS
from insights.recordings.page import recordings_part
from insights.speed import SPEED_COLUMNS, speed_of
from insights.stacks.answers import stacks_of
from insights.step_time.page import slow_part
from insights.why import why
from jobs.pages.job.parts import Part, ViewedJob, register_part

__all__ = ["register_job_parts"]


def register_job_parts() -> None:
    register_part(
        "advice",
        Part(
            "insights/job/_advice.html",
            context=lambda view: {"advice": job_advice(view.job)},
            on_page=lambda view: {"advice": job_advice(view.job, view.curves)},
        ),
    )
    register_part("slots", Part("insights/job/_slots.html", context=_slots, on_page=_slots))
    register_part(
        "speed",
        Part(
            "insights/job/_speed.html",
            context=lambda view: speed_of(view.job),
            on_page=lambda _: {"speed_columns": SPEED_COLUMNS, "gpu_columns": GPU_COLUMNS},
        ),
    )
    register_part("stacks", Part("insights/job/_stacks.html", context=_stacks, on_page=_stacks))
    register_part("recordings", Part("insights/job/_recordings.html", context=_recordings, on_page=_recordings))
    register_part("slow", Part("insights/job/_why_slow.html", context=lambda view: slow_part(view.job)))
    register_part("why", Part("insights/job/_why.html", context=lambda view: why(view.job, view.user)))


def _stacks(view: ViewedJob) -> dict[str, object]:
    return {"stacks": stacks_of(view.job)}


def _recordings(view: ViewedJob) -> dict[str, object]:
    return recordings_part(view.job)


def _slots(view: ViewedJob) -> dict[str, object]:
    return {"slots": slots_of_job(view.user, view.job)}
