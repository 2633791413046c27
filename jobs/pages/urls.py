from django.urls import path, re_path

from jobs.pages import charts
from jobs.pages.job import curves, files, labels
from jobs.pages.job import views as job
from jobs.pages.list import views as list_views
from jobs.pages.train import views as train
from jobs.pages.validation import views as validation

app_name = "jobs"
urlpatterns = [
    path("", list_views.job_list, name="list"),
    path("columns/", list_views.choose_job_columns, name="columns"),
    path("charts/", charts.choose_job_charts, name="charts"),
    path("filters/", list_views.save_job_filter, name="save-filter"),
    path("filters/<int:filter_id>/forget/", list_views.forget_job_filter, name="forget-filter"),
    path("counts/", list_views.job_counts, name="counts"),
    path("rows/", list_views.job_list_rows, name="rows"),
    path("new/", train.train, name="train"),
    path("new/code/", train.train_code, name="train-code"),
    path("<int:job_id>/", job.job_detail, name="detail"),
    path("<int:job_id>/live.json", job.job_detail_live, name="live"),
    path("<int:job_id>/curves.json", job.job_curves, name="curves"),
    path("<int:job_id>/log-pattern/", curves.job_log_pattern, name="log-pattern"),
    path("<int:job_id>/file/", files.job_file, name="file"),
    path("<int:job_id>/picture/", files.job_picture, name="picture"),
    path("<int:job_id>/change/", job.job_change, name="change"),
    path("<int:job_id>/note/", job.job_note, name="note"),
    path("<int:job_id>/tag/", labels.job_tags, name="tags"),
    path("<int:job_id>/again/", job.job_again, name="again"),
    path("<int:job_id>/undo/", train.job_undo, name="undo"),
    path("<int:job_id>/validate/", validation.job_validate, name="validate"),
    re_path(r"^(?P<job_id>\d{1,18})/(?P<action>cancel|suspend|resume|keep|wait)/$", job.job_act, name="act"),
    # Other words name parts of the page; unknown ones get a 404.
    re_path(r"^(?P<job_id>\d{1,18})/(?P<part>[a-z]+)/$", job.job_part, name="part"),
]
