from __future__ import annotations

from django.urls import path, re_path

from jobs import compare_views, list_views, train_views, validation_views, views

app_name = "jobs"
urlpatterns = [
    path("", list_views.job_list, name="list"),
    path("compare/", compare_views.job_compare, name="compare"),
    path("compare/curves.json", compare_views.job_compare_curves, name="compare-curves"),
    path("compare/tables/", compare_views.job_compare_tables, name="compare-tables"),
    path("filters/", list_views.save_job_filter, name="save-filter"),
    path("filters/<int:filter_id>/forget/", list_views.forget_job_filter, name="forget-filter"),
    path("rows/", list_views.job_list_rows, name="rows"),
    path("stop-question.json", list_views.stop_question_of, name="stop-question"),
    path("live/<str:topic>.json", list_views.job_list_live, name="list-live"),
    path("new/", train_views.train, name="train"),
    path("new/preview/", train_views.train_preview, name="train-preview"),
    path("<int:job_id>/", views.job_detail, name="detail"),
    path("<int:job_id>/live.json", views.job_detail_live, name="live"),
    path("<int:job_id>/curves.json", views.job_curves, name="curves"),
    path("<int:job_id>/change/", views.job_change, name="change"),
    path("<int:job_id>/change/preview/", train_views.job_change_preview, name="change-preview"),
    path("<int:job_id>/undo/", train_views.job_undo, name="undo"),
    path("<int:job_id>/clone/", views.job_clone, name="clone"),
    path("<int:job_id>/validate/", validation_views.job_validate, name="validate"),
    re_path(r"^(?P<job_id>\d{1,18})/(?P<action>cancel|suspend|resume)/$", views.job_act, name="act"),
]
