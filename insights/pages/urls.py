"""URLs below `/jobs/` that this app answers."""

from django.urls import path

from insights.pages import gpu_use, previews, questions, recordings, stacks
from insights.pages.compare import differences
from insights.pages.compare import views as compare

app_name = "insights"
urlpatterns = [
    path("compare/", compare.job_compare, name="compare"),
    path("compare/differences/", differences.job_differences, name="differences"),
    path("compare/curves.json", compare.job_compare_curves, name="compare-curves"),
    path("compare/tables/", compare.job_compare_tables, name="compare-tables"),
    path("stop-question.json", questions.stop_question_of, name="stop-question"),
    path("priority-question.json", questions.priority_question_of, name="priority-question"),
    path("<int:job_id>/gpus.json", gpu_use.job_gpus, name="gpus"),
    path("<int:job_id>/stacks/take/", stacks.take_stacks, name="stacks"),
    path("<int:job_id>/record-<slug:kind>/", recordings.record, name="record"),
    path("new/preview/", previews.train_preview, name="train-preview"),
    path("<int:job_id>/change/preview/", previews.job_change_preview, name="change-preview"),
]
